"""The recorded cluster with the links of a chain in it, week by week: when queued links start, and what is seen.

Whenever a chain changes (a link is submitted, cancelled, ended, or starts), the cluster is the recorded one at that
instant, without the recorded job that the first link replaces and its user's next job. The running links hold nodes and
count against their user's limits; the queued ones have the places that their submissions give them. From there the
forked form simulates until the first queued link starts. Nothing is simulated further: at that start the cluster is
taken from the record again. Links cost other jobs nothing beyond that simulation.

Rules are fitted every week, as in `models.provisioning.pairs.recorded.build_recorded_pairs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from features import observe
from features.futures.arrivals import cycles_s
from features.futures.run_times import RunTimeHistory
from features.futures.summary import FUTURES
from models.provisioning.futures.recorded import (
    FuturesWorkspace,
    futures_workspace,
    history_of,
    most_arrivals,
    play_futures,
)
from models.provisioning.pairs.injected import observe_branch
from models.provisioning.pairs.recorded import Predecessors, week_of, week_world
from models.provisioning.service.chain import NOTHING, Link, LinkShape, ServiceChain
from simulator.cluster import NONE, advance, copy
from simulator.compiled import njit
from simulator.recorded.branch import RecordedBranch, RecordedCluster, key_beyond
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.stand_in import first_start_of_queued, stand_in
from simulator.recorded.state import enter
from simulator.recorded.world import Extra
from traces.arrays import Float32s, Int64s
from traces.units import DAY_S, HOUR_S

CYCLES_S = cycles_s(FUTURES)
HORIZON_S = 4 * DAY_S  # of a future


@njit
def _anchor(
    cluster: RecordedCluster,
    branches: tuple[RecordedBranch, RecordedBranch],
    now: int,
    first: int,
    start_s: Int64s,
    end_s: Int64s,
    out: Int64s,
) -> None:
    """Make the second branch the record at `now` with rows first, first + 1, ... running, without the rows `out`."""
    followed, leaf = branches
    advance(cluster, followed, now - 1)
    copy(cluster, leaf, followed)
    stand_in(cluster, leaf, followed, now, first, start_s, out)
    for k in range(len(end_s)):
        leaf.state.end_s[first + k] = end_s[k]


@njit
def _first_start(
    cluster: RecordedCluster, leaf: RecordedBranch, now: int, first: int, submit_s: Int64s, started: Int64s
) -> int:
    """As `first_start_of_queued`, in a branch from `_anchor`."""
    return first_start_of_queued(cluster, leaf, now, first, submit_s, started)


@njit
def _enter(cluster: RecordedCluster, leaf: RecordedBranch, first: int, submit_s: Int64s) -> None:
    """Queue rows first, first + 1, ... in a branch from `_anchor`, submitted at `submit_s`."""
    for k in range(len(submit_s)):
        row = first + k
        leaf.state.submit_s[row], leaf.state.key[row] = submit_s[k], key_beyond(cluster, leaf, row, submit_s[k])
        enter(leaf.state, row)


class LinkCluster:
    """The record with a chain's links in it (`ChainCluster`). Instants must not go back."""

    def __init__(
        self, record: RecordedTrace, predecessors: Predecessors, rows: int, fit_span_s: int | None = None
    ) -> None:
        """rows: most links of a chain that run or wait at once."""
        self.cluster: Any  # of the week
        self.record, self.predecessors, self.rows, self.fit_span_s = record, predecessors, rows, fit_span_s
        self.week_s = NONE
        self._workspace: FuturesWorkspace | None = None  # of the week, once futures are played in it

    def change(self, chain: ServiceChain, at_s: int, submitted: Sequence[Link], gone: Sequence[Link]) -> None:
        """Do nothing: the cluster is taken from the record again at every question."""

    def first_start(
        self, chain: ServiceChain, now_s: int, granted: Mapping[int, int] = NOTHING
    ) -> tuple[int, tuple[int, ...]]:
        """When the first queued link starts, epoch s, and the positions of those that start in that second.

        Links have the limits `granted` from now on.
        """
        if not chain.queued:
            return NEVER, ()
        queued = [
            Link(granted[place], link.submit_s, shape=link.shape._replace(least_s=None)) if place in granted else link
            for place, link in enumerate(chain.queued)
        ]
        return self._first_of(chain, now_s, queued)

    def would_start(self, chain: ServiceChain, now_s: int, limit_s: int) -> int:
        """When a link of that limit starts that is submitted now, epoch s, if no other is queued."""
        return self._first_of(chain, now_s, [Link(limit_s, now_s)])[0]

    def _first_of(self, chain: ServiceChain, now_s: int, queued: Sequence[Link]) -> tuple[int, tuple[int, ...]]:
        row = self.anchor(chain, now_s, chain.running(now_s), queued)
        submit_s, started = np.array([link.submit_s for link in queued], np.int64), np.zeros(len(queued), np.int64)
        start_s = _first_start(self.cluster, self.branches[1], now_s, row, submit_s, started)
        return int(start_s), tuple(np.flatnonzero(started).tolist())

    def observation(self, chain: ServiceChain, now_s: int, limit_s: int, nodes: int | None = None) -> Float32s:
        """The observation before a link of that limit is submitted. The branch stays as `anchor` leaves it."""
        link = Link(limit_s, now_s, shape=LinkShape(nodes=nodes))
        row = self.anchor(chain, now_s, chain.running(now_s), [link])
        last, seen = chain.started[-1], np.zeros(len(observe.FEATURES), np.float32)
        job = int(self.predecessors.row[chain.number])
        wait_s, size, user = last.start_s - last.submit_s, self._nodes(link, job), self.record.user[job]
        pair = (last.start_s, wait_s, last.end_s, size, limit_s, user)
        observe_branch(self.cluster, self.branches[1], now_s, row, pair, seen)
        return seen

    def futures(
        self, chain: ServiceChain, now_s: int, limits_s: Sequence[int], horizon_s: int, nodes: int | None = None,
        delay_s: int = 0,
    ) -> Int64s:  # fmt: skip
        """When a link of each limit submitted `delay_s` from now would start in each future, behind the queued ones."""
        shape = LinkShape(nodes=nodes)
        links = [Link(limit_s, now_s, shape=shape) for limit_s in limits_s]
        return self._played(chain, now_s, chain.queued, links, horizon_s, delay_s)

    def queued_futures(self, chain: ServiceChain, now_s: int, horizon_s: int, limit_s: int | None = None) -> Int64s:
        """The same for the last of the queued links, (futures,). limit_s: as if it had this limit."""
        *others, last = chain.queued
        watched = replace(last, limit_s=last.fits_s if limit_s is None else limit_s)
        starts_s: Int64s = self._played(chain, now_s, others, [watched], horizon_s)[0]
        return starts_s

    def _played(
        self, chain: ServiceChain, now_s: int, queued: Sequence[Link], watched: Sequence[Link], horizon_s: int,
        delay_s: int = 0,
    ) -> Int64s:  # fmt: skip
        """When each of `watched` alone would start in each future, beside the queued links: (watched, futures), s.

        Futures are those of `models.provisioning.futures.recorded`, with common random numbers, so that links of
        different limits meet the same arrivals and run times. One that has not started after `horizon_s` counts as
        started then. Links submitted earlier have their age as points of priority; without priorities, none.
        """
        row = self.anchor(chain, now_s, chain.running(now_s), queued)
        job = int(self.predecessors.row[chain.number])
        _enter(self.cluster, self.branches[1], row, np.array([link.submit_s for link in queued], np.int64))
        record, workspace = self.record, self._futures_workspace(job, chain)
        name = record.name[job] if len(record.name) else NONE
        starts = np.zeros((len(watched), FUTURES), np.int64)
        for link, found in zip(watched, starts, strict=True):
            aged = record.priority[job] + round(-self.cluster.beyond.key_per_s * (now_s - link.submit_s) / HOUR_S)
            asked = (now_s, self._nodes(link, job), link.limit_s, record.user[job], name, aged)
            submission = np.array([*asked, min(horizon_s, HORIZON_S), NONE, NONE, NONE], np.int64)
            play_futures(workspace, self.branches[1], submission, CYCLES_S, found, delay_s=delay_s)
        return starts

    def _futures_workspace(self, job: int, chain: ServiceChain) -> FuturesWorkspace:
        """The workspace of the week; a replaced job that arrives again in a future runs as long as its limit."""
        if self._workspace is None:
            most = most_arrivals(self.record.submit_s, CYCLES_S, HORIZON_S)
            self._workspace = futures_workspace(self.record, self._known, self.world, self.place, most)
        for removed in (job, int(self.predecessors.next_row[chain.number])):
            if removed != NONE:
                self._workspace.room.drawn_s[removed] = chain.limit_s
        return self._workspace

    @cached_property
    def _known(self) -> RunTimeHistory:
        return history_of(self.record)

    def anchor(self, chain: ServiceChain, now_s: int, running: Sequence[Link], queued: Sequence[Link]) -> int:
        """Put the running links into the record at `now_s`; return the row that the first queued one has then."""
        self._turn_to(now_s)
        job = int(self.predecessors.row[chain.number])
        self._give_rows([*running, *queued], job)
        self.cluster.log.end_s[self.first_row : self.first_row + len(running)] = 0  # one that is ended counts no longer
        start_s, end_s = (
            np.array([getattr(link, name) for link in running], np.int64) for name in ("start_s", "end_s")
        )
        _anchor(self.cluster, self.branches, now_s, self.first_row, start_s, end_s, self.removed[chain.number])
        return self.first_row + len(running)

    def _give_rows(self, links: Sequence[Link], job: int) -> None:
        """Let the rows beyond the record be these links, which request what the record's `job` does, or less."""
        rows, limits_s = slice(self.first_row, self.first_row + len(links)), [link.fits_s for link in links]
        jobs, beyond = self.cluster.jobs, self.cluster.beyond
        jobs.size[rows], jobs.user[rows] = [self._nodes(link, job) for link in links], self.record.user[job]
        jobs.limit_s[rows] = self.cluster.log.end_s[rows] = limits_s
        if self.has_priority:
            beyond.own[:] = HOUR_S * self.record.priority[job]

    def nodes_of(self, chain: ServiceChain) -> int:
        """Nodes of the job that the first link replaces."""
        return int(self.record.size[self.predecessors.row[chain.number]])

    def _nodes(self, link: Link, job: int) -> int:
        return link.shape.nodes or int(self.record.size[job])

    def _turn_to(self, now_s: int) -> None:
        """Build the world of the week of `now_s`, unless it is there."""
        week_s = int(week_of(np.array([now_s]))[0])
        if week_s == self.week_s:
            return
        last_user = self.record.users - 1  # the week has room for every user, also for one without jobs around it
        extra = Extra(*(np.full(self.rows, value, np.int64) for value in (1, 1, last_user, 0)))
        self._workspace = None
        self.world, self.place = world, place = week_world(self.record, week_s, extra, self.fit_span_s)
        rows = np.stack([self.predecessors.row, self.predecessors.next_row], axis=1)
        self.week_s, self.first_row = week_s, world.first_extra
        self.cluster = world.clusters[0]
        self.has_priority = bool(self.cluster.beyond.own[0] != NONE)
        self.branches = world.branch(0, observe.RECENT), world.branch(0, observe.RECENT)
        self.removed = np.where(rows == NONE, NONE, place[rows])
