"""Play many chains at once in one simulated cluster: each agent decides on what it would see.

The rules for a chain are those of `models.provisioning.service`: links, decisions, interruptions. Here the first link
waits in the queue too. A `LinkCap` bounds the links that are queued ahead; an agent that may not queue another one
looks again at its next decision. A chain of which nothing runs or waits may always submit one, as its user would.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from models.provisioning.service.chain import ChainPlayer, Link, Move, ServiceChain, ServiceView, work_of
from models.provisioning.service.play import Service, next_decision_s
from models.what_if.agents.live import LinkOwner, LiveCluster
from simulator.recorded.record import NEVER
from traces.counted import counted
from traces.progress import Progress


class LinkCap(NamedTuple):
    """The most links that may be queued ahead; None: no bound."""

    of_user: int | None = None  # links of a user
    share: float | None = None  # of the pending jobs

    def allows(self, of_user: int, links: int, pending: int) -> bool:
        """Whether one more link may wait beside these."""
        is_within = self.of_user is None or of_user < self.of_user
        return is_within and (self.share is None or links + 1 <= max(self.share * (pending + 1), 1))


NO_CAP = LinkCap()


@dataclass
class AgentChain:
    """A chain of one agent: what its links request, when its first one is submitted (epoch s), and its links."""

    owner: LinkOwner
    submit_s: int  # of its first link
    chain: ServiceChain
    is_over: bool = False


@dataclass
class WaitingLinks:
    """Links that wait: now, the most at once, and those of each user now.

    cancelled: submission and cancellation of those that were cancelled while they waited, epoch s.
    """

    links: int = 0
    most: int = 0
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    by_user: dict[int, int] = field(default_factory=dict)


def play_agents(
    cluster: LiveCluster,
    chains: Sequence[AgentChain],
    player: ChainPlayer,
    service: Service,
    until_s: int,
    cap: LinkCap = NO_CAP,
) -> WaitingLinks:
    """Play all until `until_s`, or until the chains have done their work. The links are in the chains."""
    play = _Play(cluster, player, service, cap)
    events = [(one.submit_s, order) for order, one in enumerate(chains)]
    heapq.heapify(events)
    with Progress(counted(len(chains), "agent"), len(chains), "chains", stays=False) as progress:
        while events or any(one.chain.queued for one in chains):
            next_s = min(events[0][0] if events else until_s, until_s)
            if cluster.advance(next_s) < next_s:
                for order, one in enumerate(chains):
                    if play.start(one):
                        heapq.heappush(events, (one.chain.ask_s, order))
                continue
            if next_s == until_s:
                break
            now, order = heapq.heappop(events)
            one = chains[order]
            if one.is_over or (one.chain.started and one.chain.ask_s != now):
                continue  # replaced by another decision
            play.decide(one, now)
            progress.reach(sum(each.is_over for each in chains))
            if not one.is_over and one.chain.ask_s < NEVER:
                heapq.heappush(events, (one.chain.ask_s, order))
        cluster.advance(until_s)  # the other jobs
    return play.waiting


class _Play:
    def __init__(self, cluster: LiveCluster, player: ChainPlayer, service: Service, cap: LinkCap) -> None:
        self.cluster, self.player, self.service, self.cap = cluster, player, service, cap
        self.waiting = WaitingLinks()

    def start(self, one: AgentChain) -> bool:
        """Let the links that have started run; returns whether there are any."""
        chain, at_s = one.chain, self.cluster.now_s
        begun = self.cluster.started(chain.queued)
        for place in begun:
            link = chain.queued[place]
            link.start_s, link.end_s = at_s, at_s + link.limit_s
            chain.started.append(link)
            self._count(one, -1)
        chain.queued = [link for place, link in enumerate(chain.queued) if place not in begun]
        if begun:
            chain.memory = None
            self._ask(chain, at_s)
        return bool(begun)

    def decide(self, one: AgentChain, now: int) -> None:
        """Process a decision of a chain at `now`; before its first link has been submitted, submit that."""
        chain, service = one.chain, self.service
        if not chain.started and not chain.queued:
            self._submit(one, Link(chain.limit_s, now))
            chain.ask_s = NEVER
            return
        for link in [link for link in chain.started if link.end_s < now and id(link) in self.cluster.row_of]:
            self.cluster.forget(link)
        before = [replace(link, end_s=min(link.end_s, now)) for link in chain.started]
        done = work_of(before, service.wanted_s, service.restart_s)
        if done.is_finished:
            self._finish(one, now)
            return
        if self._may_submit(one, now) or sum(link.end_s > now for link in chain.running(now)) > 1:
            move = self.player.act(self._view(one, now, done.done_s))
            self._do(one, move, now)
            self._ask(chain, now, move.again_s)
        else:
            self._ask(chain, now)

    def _ask(self, chain: ServiceChain, now: int, again_s: int | None = None) -> None:
        """Set the next decision, at the latest when the work is done."""
        work = work_of(chain.started, self.service.wanted_s, self.service.restart_s)
        chain.ask_s = next_decision_s(chain, now, self.service.decision_s, again_s)
        if work.is_finished:
            chain.ask_s = min(chain.ask_s, max(work.until_s, now + 1))

    def _may_submit(self, one: AgentChain, now: int) -> bool:
        """Whether the cap lets this chain queue a link."""
        if not one.chain.queued and not any(link.end_s > now for link in one.chain.started):
            return True
        of_user = self.waiting.by_user.get(one.owner.user, 0)
        return self.cap.allows(of_user, self.waiting.links, self.cluster.queue_length())

    def _do(self, one: AgentChain, move: Move, now: int) -> None:
        chain = one.chain
        running = chain.running(now)
        for place in move.end:
            self.cluster.end(running[place], now)
            running[place].end_s = now
        for place in move.cancel:
            self._cancel(one, chain.queued[place], now)
        chain.queued = [link for place, link in enumerate(chain.queued) if place not in move.cancel]
        for limit_s in move.submit:
            self._submit(one, Link(limit_s, now))
        if move.is_action:
            chain.memory = None
        chain.most_queued = max(chain.most_queued, len(chain.queued))

    def _submit(self, one: AgentChain, link: Link) -> None:
        if self._may_submit(one, link.submit_s):
            self.cluster.submit(one.owner, link)
            one.chain.queued.append(link)
            self._count(one, 1)

    def _cancel(self, one: AgentChain, link: Link, now: int) -> None:
        self.cluster.cancel(link)
        self.waiting.cancelled.append((link.submit_s, now))
        self._count(one, -1)

    def _count(self, one: AgentChain, change: int) -> None:
        waiting, user = self.waiting, one.owner.user
        waiting.links += change
        waiting.by_user[user] = waiting.by_user.get(user, 0) + change
        waiting.most = max(waiting.most, waiting.links)

    def _finish(self, one: AgentChain, now: int) -> None:
        """Cancel what still waits or runs."""
        for link in one.chain.queued:
            self._cancel(one, link, now)
        for link in one.chain.started:
            if id(link) in self.cluster.row_of:
                self.cluster.end(link, now)
                link.end_s = min(link.end_s, now)
        one.chain.queued, one.is_over = [], True

    def _view(self, one: AgentChain, now: int, done_s: int) -> ServiceView:
        chain, cluster, owner, service = one.chain, self.cluster, one.owner, self.service
        return ServiceView(
            now_s=now,
            chain=chain,
            running=chain.running(now),
            limits_s=service.limits_s,
            wanted_left_s=service.wanted_s - done_s,
            restart_s=service.restart_s,
            nodes=owner.nodes,
            observe=lambda limit_s: cluster.observation(owner, chain.started[-1], limit_s, now),
            futures=lambda limits_s, horizon_s, delay_s=0: cluster.futures(owner, limits_s, now, horizon_s, delay_s),
            queued_futures=lambda horizon_s: cluster.queued_futures(owner, chain.queued[-1], now, horizon_s),
            would_start=None,  # it depends on what all agents do
        )
