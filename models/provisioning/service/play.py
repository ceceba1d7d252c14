"""Play chains of a wanted service under players, in order of time, in the recorded cluster.

    chains = play_services(record, predecessors, players, service)

A chain begins with a link in place of a recorded job that its limit cut: that job's start, nodes, user and run time.
A player decides at the instants a multiple of `decision_s` before the end of the last link that has started, and also
after that end while no link has started.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.service.chain import ChainPlayer, Link, Move, ServiceChain, ServiceView, work_of
from models.provisioning.service.links import LinkCluster
from simulator.recorded.record import NEVER, RecordedTrace
from traces.counted import counted
from traces.errors import InputError
from traces.progress import Progress
from traces.units import DAY_S, HOUR_S

ROOM = 16  # links of a chain that run or wait beyond those that the service takes


@dataclass(frozen=True)
class Service:
    """What chains have to deliver, and how it is counted; s."""

    wanted_s: int  # work of a chain
    restart_s: int  # lost in each link after the first
    decision_s: int
    limits_s: tuple[int, ...]  # that a link may ask for, rising

    def within(self, longest_s: int) -> Service:
        """The service without limits longer than `longest_s`. Raises InputError if none is left."""
        limits_s = tuple(limit_s for limit_s in self.limits_s if limit_s <= longest_s)
        if not limits_s:
            raise InputError(
                f"no limit of {self.limits_s[0] / HOUR_S:g} h or more is allowed: the longest in the record is "
                f"{longest_s / HOUR_S:g} h; give shorter --limits"
            )
        return replace(self, limits_s=limits_s)


def play_services(
    record: RecordedTrace,
    predecessors: Predecessors,
    players: Sequence[ChainPlayer],
    service: Service,
    fit_span_s: int | None = None,
) -> list[list[ServiceChain]]:
    """Play a chain for each predecessor under each player; returns the chains by player, in their order."""
    own_s = record.limit_s[predecessors.row]
    rows = int(-(-service.wanted_s // min(int(own_s.min(initial=DAY_S)), *service.limits_s))) + ROOM
    play = _Play(LinkCluster(record, predecessors, rows, fit_span_s), service)
    chains = [[_first(record, int(row), k) for k, row in enumerate(predecessors.row)] for _ in players]
    queue: list[tuple[int, int, ServiceChain, ChainPlayer]] = []
    order = 0
    for player, of_player in zip(players, chains, strict=True):
        for chain in of_player:
            play.wait(chain, chain.started[0].start_s)
            heapq.heappush(queue, (min(chain.due_s, chain.ask_s), order, chain, player))
            order += 1
    name = f"{counted(len(own_s), 'chain')} of {service.wanted_s / DAY_S:g} days, {counted(len(players), 'time')}"
    with Progress(name, order, "chains", stays=False) as progress:
        over = 0
        while queue:
            now, place, chain, player = heapq.heappop(queue)
            if play.go_on(chain, player, now):
                heapq.heappush(queue, (min(chain.due_s, chain.ask_s), place, chain, player))
            else:
                over += 1
                progress.reach(over)
    return chains


def _first(record: RecordedTrace, row: int, number: int) -> ServiceChain:
    """A chain whose first link runs as the recorded job did."""
    limit_s, start_s = int(record.limit_s[row]), int(record.start_s[row])
    link = Link(limit_s, int(record.submit_s[row]), start_s, start_s + limit_s)
    return ServiceChain(number, limit_s, [link])


def next_decision_s(chain: ServiceChain, now: int, decision_s: int, again_s: int | None = None) -> int:
    """Return the chain's first decision after `now`, and not before `again_s`: counted back from its last end."""
    after = now + 1 if again_s is None else max(now + 1, again_s)
    return after + (chain.covered_until_s - after) % decision_s if after < NEVER else NEVER


class _Play:
    """Advances one chain at a time."""

    def __init__(self, cluster: LinkCluster, service: Service) -> None:
        self.cluster, self.service = cluster, service

    def wait(self, chain: ServiceChain, now: int, again_s: int | None = None) -> None:
        """Set the chain's next decision: the first instant after `now`, and not before `again_s`."""
        chain.ask_s = next_decision_s(chain, now, self.service.decision_s, again_s)

    def go_on(self, chain: ServiceChain, player: ChainPlayer, now: int) -> bool:
        """Process the chain's next event, at `now`; returns whether the chain goes on after it."""
        work = work_of(chain.started, self.service.wanted_s, self.service.restart_s)
        if now >= NEVER or (work.is_finished and work.until_s <= now):
            return False
        if chain.due_s <= now:
            self._start(chain, now)
            return True
        before = [link for link in chain.started if link.start_s <= now]
        done = work_of([replace(link, end_s=min(link.end_s, now)) for link in before], NEVER, self.service.restart_s)
        move = player.act(self._view(chain, now, done.done_s))
        if move.is_action:
            self._do(chain, move, now)
        self.wait(chain, now, move.again_s)
        return True

    def _start(self, chain: ServiceChain, now: int) -> None:
        """Let the links that are due start."""
        for place in chain.due:
            link = chain.queued[place]
            link.start_s, link.end_s = now, now + link.limit_s
            chain.started.append(link)
        chain.queued = [link for place, link in enumerate(chain.queued) if place not in chain.due]
        self._settle(chain, now)

    def _do(self, chain: ServiceChain, move: Move, now: int) -> None:
        """Carry out a player's actions."""
        running = chain.running(now)
        for place in move.end:
            running[place].end_s = now
        chain.queued = [link for place, link in enumerate(chain.queued) if place not in move.cancel]
        chain.queued += [Link(limit_s, now) for limit_s in move.submit]
        chain.most_queued = max(chain.most_queued, len(chain.queued))
        if move.chosen is None:
            self._settle(chain, now)
            return
        submit_s, start_s = move.chosen
        chain.queued, chain.due_s, chain.due = [Link(chain.limit_s, submit_s)], start_s, (0,)
        chain.most_queued, chain.memory = max(chain.most_queued, 1), None
        if start_s <= now:
            self._start(chain, start_s)

    def _settle(self, chain: ServiceChain, now: int) -> None:
        """Simulate when the next queued link starts, after the chain has changed."""
        chain.memory, chain.due_s, chain.due = None, NEVER, ()
        if chain.queued:
            chain.due_s, chain.due = self.cluster.first_start(chain, now, chain.running(now), chain.queued)
        self.wait(chain, now)

    def _view(self, chain: ServiceChain, now: int, done_s: int) -> ServiceView:
        running, cluster = chain.running(now), self.cluster
        return ServiceView(
            now_s=now,
            chain=chain,
            running=running,
            limits_s=self.service.limits_s,
            wanted_left_s=self.service.wanted_s - done_s,
            restart_s=self.service.restart_s,
            observe=partial(cluster.observation, chain, now, running),
            futures=lambda limits_s, horizon_s: cluster.futures(
                chain, now, running, chain.queued, [Link(limit_s, now) for limit_s in limits_s], horizon_s
            ),
            queued_futures=lambda horizon_s: cluster.futures(
                chain, now, running, chain.queued[1:], chain.queued[:1], horizon_s
            )[0],
            would_start=lambda limit_s: cluster.first_start(chain, now, running, [Link(limit_s, now)])[0],
        )
