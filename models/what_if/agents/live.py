"""The calibrated cluster, replayed from an instant on, with links of chains that players submit, cancel and end.

Nothing is taken from the record again, so the links delay the other jobs and these delay the links. What a replay takes
as given is that of `simulator.recorded.free`: arrivals, run times, cancellations, held jobs and usable nodes. The rules
are those inferred before the instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from features import observe
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
from models.provisioning.service.chain import Link
from models.provisioning.service.links import CYCLES_S, HORIZON_S
from models.what_if.recorded.scene import Stretch
from simulator.cluster import copy
from simulator.compiled import njit
from simulator.recorded import branch as recorded
from simulator.recorded.branch import LEFT_S, OWN, RecordedBranch, RecordedCluster, key_beyond
from simulator.recorded.follow import TICK_S
from simulator.recorded.free import ARRIVED, NEXT_S, Given, given_by, new_clock, restore, step
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from simulator.recorded.state import PENDING, enter, finish, leave
from simulator.recorded.world import Extra, build_with
from traces.arrays import Float32s, Int64s
from traces.units import HOUR_S

WIDEST_S = NEVER + 1  # [NEVER, WIDEST_S) holds the submissions of rows beyond the record alone


@njit
def _until(
    cluster: RecordedCluster, branch: RecordedBranch, given: Given, clock: Int64s, until_s: int, starts: Int64s
) -> int:
    """Simulate the instants before `until_s`, or up to the first start of a link; return that instant or `until_s`."""
    while clock[NEXT_S] < until_s:
        now = clock[NEXT_S]
        if step(cluster.jobs, cluster.rules, given, branch.state, cluster.scratch, clock, NEVER, WIDEST_S, starts):
            return int(now)
    return until_s


@njit
def _enter(cluster: RecordedCluster, branch: RecordedBranch, row: int, submit_s: int) -> None:
    state = branch.state
    state.submit_s[row], state.key[row] = submit_s, key_beyond(cluster, branch, row, submit_s)
    enter(state, row)


class LinkOwner:
    """What all links of a chain request: nodes, user, priority and name of one row of the record."""

    def __init__(self, record: RecordedTrace, row: int) -> None:
        self.row, self.nodes, self.user = row, int(record.size[row]), int(record.user[row])
        self.priority = int(record.priority[row])
        self.name = int(record.name[row]) if len(record.name) else NONE


class LiveCluster:
    """The cluster from the stretch's beginning on, without the rows `absent` of the record. Times in epoch s."""

    def __init__(self, record: RecordedTrace, stretch: Stretch, absent: Int64s, rows: int) -> None:
        """rows: most links that run or wait at once."""
        self.cluster: Any
        near, shown = record.take(stretch.rows), stretch.shown
        extra = Extra(*(np.full(rows, value, np.int64) for value in (1, 1, record.users - 1, 0)))
        self.world = build_with(near, extra, rules=stretch.rules, points_per_hour=stretch.points_per_hour, threads=1)
        self.cluster = self.world.clusters[0]
        self.record, self.stretch = record, stretch
        self.has_priority = bool(self.cluster.beyond.own[0] != NONE) if rows else False
        self.first = len(near)
        given = given_by(near, shown.held, shown.usable)
        present = np.where(np.isin(stretch.rows, absent), 0, given.present)
        none = np.zeros(rows, np.int64)
        self.given = given._replace(
            present=np.append(present, none),
            **{
                name: np.append(getattr(given, name), none) for name in ("run_s", "start_s", "end_s", "limit_s", "held")
            },
        )
        anchor = shown.anchors[0]
        self.now_s = anchor.at_s
        self.branch = self.world.branch(0, observe.RECENT)
        self.branch.scalars[OWN], self.branch.scalars[LEFT_S] = NONE, self.now_s
        restore(self.cluster.jobs, self.given, self.branch.state, anchor.running, anchor.pending)
        self.clock = new_clock(self.cluster.jobs, self.given, self.now_s)
        self.starts = np.full(len(self.cluster.jobs.submit_s), NEVER, np.int64)
        self.free = list(range(self.first, self.first + rows))[::-1]
        self.row_of: dict[int, int] = {}  # id of a link that waits or runs -> its row

    def advance(self, until_s: int) -> int:
        """Simulate everything before `until_s`, or up to the first start of a link; returns the instant."""
        self.now_s = _until(self.cluster, self.branch, self.given, self.clock, until_s, self.starts)
        return self.now_s

    def started(self, links: Sequence[Link]) -> list[int]:
        """Positions of those of the waiting links that have started."""
        return [place for place, link in enumerate(links) if self.starts[self.row_of[id(link)]] < NEVER]

    def submit(self, owner: LinkOwner, link: Link) -> None:
        """Submit a link at its submission, which is not before the last instant simulated."""
        row = self.free.pop()
        self.row_of[id(link)], self.starts[row] = row, NEVER
        self._ask(row, owner, link.limit_s)
        self._follow()
        _enter(self._seen(), self.branch, row, link.submit_s)
        self.clock[NEXT_S] = min(self.clock[NEXT_S], link.submit_s)

    def cancel(self, link: Link) -> None:
        """Take a waiting link out of the queue; others may start in its place."""
        leave(self.branch.state, self._freed(link))
        self.clock[NEXT_S] = min(self.clock[NEXT_S], self.now_s)

    def end(self, link: Link, now_s: int) -> None:
        """End a running link."""
        row = self._freed(link)
        if link.end_s >= now_s:
            finish(self.cluster.jobs, self.branch.state, row, now_s)
            self.clock[NEXT_S] = min(self.clock[NEXT_S], now_s)

    def forget(self, link: Link) -> None:
        """Give back the row of a link that has ended by its limit."""
        self._freed(link)

    def _freed(self, link: Link) -> int:
        row = self.row_of.pop(id(link))
        self.free.append(row)
        return row

    def observation(self, owner: LinkOwner, last: Link, limit_s: int, now_s: int) -> Float32s:
        """The observation before a link of that limit is submitted (features.observe.FEATURES)."""
        row, seen = self.free[-1], np.zeros(len(observe.FEATURES), np.float32)
        self._ask(row, owner, limit_s)
        self._follow()
        pair = (last.start_s, last.start_s - last.submit_s, last.end_s, owner.nodes, limit_s, owner.user)
        observe_branch(self._seen(), self.branch, now_s, row, pair, seen)
        return seen

    def futures(
        self, owner: LinkOwner, limits_s: Sequence[int], now_s: int, horizon_s: int, delay_s: int = 0
    ) -> Int64s:
        """When a link of each limit would start in each future, as `LinkCluster.futures`."""
        self._follow()
        links = [(limit_s, now_s) for limit_s in limits_s]
        return self._played(self.branch, owner, links, now_s, horizon_s, delay_s)

    def queued_futures(self, owner: LinkOwner, link: Link, now_s: int, horizon_s: int) -> Int64s:
        """The same for a waiting link, (futures,)."""
        self._follow()
        copy(self.cluster, self._copy, self.branch)
        leave(self._copy.state, self.row_of[id(link)])
        starts: Int64s = self._played(self._copy, owner, [(link.limit_s, link.submit_s)], now_s, horizon_s)[0]
        return starts

    @cached_property
    def _copy(self) -> RecordedBranch:
        branch: RecordedBranch = self.world.branch(0, observe.RECENT)
        return branch

    def _played(
        self,
        branch: RecordedBranch,
        owner: LinkOwner,
        links: Sequence[tuple[int, int]],
        now_s: int,
        horizon_s: int,
        delay_s: int = 0,
    ) -> Int64s:
        workspace = self._workspace._replace(cluster=self._seen())
        starts = np.zeros((len(links), FUTURES), np.int64)
        for (limit_s, submit_s), found in zip(links, starts, strict=True):
            aged = owner.priority + round(-self.cluster.beyond.key_per_s * (now_s - submit_s) / HOUR_S)
            asked = (now_s, owner.nodes, limit_s, owner.user, owner.name, aged, min(horizon_s, HORIZON_S))
            submission = np.array([*asked, NONE, NONE, NONE], np.int64)
            play_futures(workspace, branch, submission, CYCLES_S, found, delay_s=delay_s)
        return starts

    @cached_property
    def _workspace(self) -> FuturesWorkspace:
        """Arrivals of futures are those of the record before; run times are drawn from the jobs ended in the record."""
        place = np.full(len(self.record), NONE)
        place[self.stretch.rows] = np.arange(self.first)
        most = most_arrivals(self.record.submit_s, CYCLES_S, HORIZON_S)
        return futures_workspace(self.record, self._known, self.world, place, most)

    @cached_property
    def _known(self) -> RunTimeHistory:
        return history_of(self.record)

    def _ask(self, row: int, owner: LinkOwner, limit_s: int) -> None:
        """Let a row beyond the record request what a link does."""
        jobs, log = self.cluster.jobs, self.cluster.log
        jobs.size[row], jobs.user[row], jobs.limit_s[row] = owner.nodes, owner.user, limit_s
        log.end_s[row] = self.given.run_s[row] = limit_s
        if self.has_priority:
            self.cluster.beyond.own[row - self.first] = HOUR_S * owner.priority

    def _follow(self) -> None:
        """Let the branch show what the clock has reached."""
        self.branch.scalars[recorded.ARRIVED] = self.clock[ARRIVED]

    def _seen(self) -> Any:
        """The cluster with the nodes that are usable now."""
        usable = self.given.usable
        tick = min((self.now_s - int(self.cluster.jobs.submit_s[0])) // TICK_S, len(usable) - 1)
        rules = self.cluster.rules._replace(window_s=0, nodes=int(usable[tick]))
        return self.cluster._replace(rules=rules)

    def queue_length(self) -> int:
        """Number of pending jobs."""
        return int(self.branch.state.scalars[PENDING])
