"""Play chains of a wanted service under players, in order of time, in a world of `ChainCluster`.

    chains = play_services(record, predecessors, players, service)      # the recorded cluster
    chains = play_injected(cluster, submits_s, players, service)        # a simulated one

In the recorded cluster a chain begins with a link in place of a recorded job that its limit cut: that job's start,
nodes, user and run time. In a simulated one it begins with a job that is submitted in addition to all recorded ones.
A player decides at the instants a multiple of `decision_s` before the end of the last link that has started, and also
after that end while no link has started.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.service.chain import NOTHING, ChainPlayer, Link, Move, ServiceChain, ServiceView, work_of
from models.provisioning.service.injected import InjectedCluster
from models.provisioning.service.links import LinkCluster
from simulator.recorded.record import NEVER, RecordedTrace
from traces.arrays import Float32s, Int64s
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


class ChainCluster(Protocol):
    """The cluster with the links of chains in it. Times in epoch s."""

    def change(self, chain: ServiceChain, at_s: int, submitted: Sequence[Link], gone: Sequence[Link]) -> None:
        """Links are submitted at `at_s`; others (`gone`) are cancelled, or ended if they run."""

    def first_start(
        self, chain: ServiceChain, now_s: int, granted: Mapping[int, int] = NOTHING
    ) -> tuple[int, tuple[int, ...]]:
        """When the first queued link starts, and the positions of those that start then; (NEVER, ()) if none does.

        granted: by position, the limits that links get if they start at `chain.due_s`.
        """

    def would_start(self, chain: ServiceChain, now_s: int, limit_s: int) -> int:
        """When a link starts that is submitted now."""

    def nodes_of(self, chain: ServiceChain) -> int:
        """Nodes of the chain's first link."""

    def observation(self, chain: ServiceChain, now_s: int, limit_s: int, nodes: int | None = None) -> Float32s:
        """As `ServiceView.observe`."""


@runtime_checkable
class SeesFutures(Protocol):
    """A `ChainCluster` in which futures can be simulated."""

    def futures(
        self, chain: ServiceChain, now_s: int, limits_s: Sequence[int], horizon_s: int, nodes: int | None = None,
        delay_s: int = 0,
    ) -> Int64s:  # fmt: skip
        """As `ServiceView.futures`."""

    def queued_futures(self, chain: ServiceChain, now_s: int, horizon_s: int, limit_s: int | None = None) -> Int64s:
        """As `ServiceView.queued_futures`."""


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
    cluster = LinkCluster(record, predecessors, rows, fit_span_s)
    chains = [[_first(record, int(row), k) for k, row in enumerate(predecessors.row)] for _ in players]
    plays = [(chain, player) for player, some in zip(players, chains, strict=True) for chain in some]
    with _progress(len(own_s), players, service) as progress:
        for over, _ in enumerate(_play_all(cluster, plays, service), 1):
            progress.reach(over)
    return chains


def play_injected(
    cluster: InjectedCluster, submits_s: Int64s, players: Sequence[ChainPlayer], service: Service
) -> list[list[ServiceChain]]:
    """Play a chain from each submission (rising) under each player, each as if no other chain existed.

    Returns the chains by player, in the order of the submissions.
    """
    chains: list[list[ServiceChain]] = [[] for _ in players]
    with _progress(len(submits_s), players, service) as progress:
        for number, submit_s in enumerate(submits_s.tolist()):
            cluster.begin(submit_s)
            for player, of_player in zip(players, chains, strict=True):
                of_player += _play_all(cluster, [(cluster.chain(number), player)], service)
            progress.reach((number + 1) * len(players))
    return chains


def _progress(chains: int, players: Sequence[ChainPlayer], service: Service) -> Progress:
    name = f"{counted(chains, 'chain')} of {service.wanted_s / DAY_S:g} days, {counted(len(players), 'time')}"
    return Progress(name, chains * len(players), "chains", stays=False)


def _play_all(
    cluster: ChainCluster,
    plays: Sequence[tuple[ServiceChain, ChainPlayer]],
    service: Service,
) -> Iterator[ServiceChain]:
    """Play chains that have begun; yields each at its end."""
    play = _Play(cluster, service)
    queue: list[tuple[int, int, ServiceChain, ChainPlayer]] = []
    for order, (chain, player) in enumerate(plays):
        play.wait(chain, chain.started[0].start_s)
        heapq.heappush(queue, (min(chain.due_s, chain.ask_s), order, chain, player))
    while queue:
        now, place, chain, player = heapq.heappop(queue)
        if play.go_on(chain, player, now):
            heapq.heappush(queue, (min(chain.due_s, chain.ask_s), place, chain, player))
        else:
            yield chain


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

    def __init__(self, cluster: ChainCluster, service: Service) -> None:
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
        before = [replace(link, end_s=min(link.end_s, now)) for link in chain.started]
        done = work_of(before, NEVER, self.service.restart_s)
        move = player.act(self._view(chain, now, done.done_s))
        if move.is_action:
            self._do(chain, move, now)
        self.wait(chain, now, move.again_s)
        return True

    def _start(self, chain: ServiceChain, now: int) -> None:
        """Let the links that are due start."""
        for place, limit_s in chain.due.items():
            link = chain.queued[place]
            link.limit_s, link.shape = limit_s, link.shape._replace(least_s=None)
            link.start_s, link.end_s = now, now + limit_s
            chain.started.append(link)
        chain.queued = [link for place, link in enumerate(chain.queued) if place not in chain.due]
        self._settle(chain, now)

    def _do(self, chain: ServiceChain, move: Move, now: int) -> None:
        """Carry out a player's actions."""
        running = chain.running(now)
        submitted = [Link(limit_s, now, shape=move.shape) for limit_s in move.submit]
        gone = [*(running[place] for place in move.end), *(chain.queued[place] for place in move.cancel)]
        for place in move.end:
            running[place].end_s = now
        chain.queued = [link for place, link in enumerate(chain.queued) if place not in move.cancel] + submitted
        chain.most_queued = max(chain.most_queued, len(chain.queued))
        if move.chosen is None:
            self.cluster.change(chain, now, submitted, gone)
            self._settle(chain, now)
            return
        submit_s, start_s = move.chosen
        chain.queued, chain.due_s, chain.due = [Link(chain.limit_s, submit_s)], start_s, {0: chain.limit_s}
        chain.most_queued, chain.memory = max(chain.most_queued, 1), None
        self.cluster.change(chain, submit_s, chain.queued, ())
        if start_s <= now:
            self._start(chain, start_s)

    def _settle(self, chain: ServiceChain, now: int) -> None:
        """Simulate when the next queued link starts, after the chain has changed.

        A link gets the longest listed limit with which the same links start then, in turn for several.
        """
        chain.memory = None
        chain.due_s, due = self.cluster.first_start(chain, now)
        chain.due = {place: chain.queued[place].fits_s for place in due}
        for place in due:
            link = chain.queued[place]
            longer = [limit_s for limit_s in self.service.limits_s if link.fits_s < limit_s <= link.limit_s]
            tries = (chain.due | {place: limit_s} for limit_s in reversed(longer))
            same = (tried for tried in tries if self.cluster.first_start(chain, now, tried) == (chain.due_s, due))
            chain.due = next(same, chain.due)
        self.wait(chain, now)

    def _view(self, chain: ServiceChain, now: int, done_s: int) -> ServiceView:
        cluster = self.cluster
        seeing = cluster if isinstance(cluster, SeesFutures) else None
        return ServiceView(
            now_s=now,
            chain=chain,
            running=chain.running(now),
            limits_s=self.service.limits_s,
            wanted_left_s=self.service.wanted_s - done_s,
            restart_s=self.service.restart_s,
            nodes=cluster.nodes_of(chain),
            observe=partial(cluster.observation, chain, now),
            futures=partial(seeing.futures, chain, now) if seeing else None,
            queued_futures=partial(seeing.queued_futures, chain, now) if seeing else None,
            would_start=partial(cluster.would_start, chain, now),
        )
