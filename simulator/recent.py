"""The latest starts and ends of jobs in a simulated cluster, which are publicly visible. Compiled.

A scheduler's kernel calls `remember_start` and `remember_end` when it starts and ends jobs. The length of the arrays
determines how many are remembered. A state that remembers none pays one comparison per start.

Both rings are ordered by (time, row of the job). So their content depends neither on the order in which a scheduler
processes the jobs of one second, nor on the stops of the clock between seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel, kernel_inline, kernel_part
from traces.arrays import Float64s, Int64s

STARTS, ENDS, SETTLED_STARTS, SETTLED_ENDS = 0, 1, 2, 3  # entries of RecentJobs.counts
TIME, JOB, WAIT, NODES = 0, 1, 2, 3  # columns of RecentJobs.started; RecentJobs.ended has the first two


class RecentJobs(NamedTuple):
    """Two rings: the k-th start remembered, from 0, lies in row k % len(started), the k-th end in k % len(ended)."""

    counts: Int64s  # (4,) starts and ends remembered so far, including replaced ones; how many of each are settled
    started: Int64s  # (remembered, 4) start (s), row of the job, wait (s), nodes
    ended: Int64s  # (remembered, 2) end (s), row of the job
    ended_use: Float64s  # (remembered,) run time over limit of the jobs in `ended`


def new_recent(remembered: int) -> RecentJobs:
    """Return empty rings for the last `remembered` starts and ends (0: none)."""
    return RecentJobs(
        np.zeros(4, np.int64),
        np.zeros((remembered, 4), np.int64),
        np.zeros((remembered, 2), np.int64),
        np.zeros(remembered),
    )


@kernel
def copy_recent(target: RecentJobs, source: RecentJobs) -> None:
    """Make `target` equal to `source`, which remembers as many. A target that remembers none is not changed."""
    if len(target.started) == 0:
        return
    for i in range(4):
        target.counts[i] = source.counts[i]
    for i in range(len(source.started)):  # a loop, because numba takes seconds to compile an assignment of slices
        for k in range(4):
            target.started[i, k] = source.started[i, k]
        target.ended[i, 0], target.ended[i, 1] = source.ended[i, 0], source.ended[i, 1]
        target.ended_use[i] = source.ended_use[i]


@kernel_inline
def settle_recent(recent: RecentJobs) -> None:
    """Mark a stop of the clock within a second: starts and ends in the rest of the second count as later."""
    recent.counts[SETTLED_STARTS], recent.counts[SETTLED_ENDS] = recent.counts[STARTS], recent.counts[ENDS]


@kernel_part
def remember_start(recent: RecentJobs, job: int, submit_s: int, start_s: int, nodes: int) -> None:
    """Remember that row `job`, submitted at `submit_s`, starts at `start_s`; calls are in order of `start_s`."""
    if len(recent.started) > 0:
        _add_start(recent.counts, recent.started, job, submit_s, start_s, nodes)


@kernel_part
def remember_end(recent: RecentJobs, job: int, end_s: int, run_s: int, limit_s: int) -> None:
    """Remember that row `job` ended at `end_s` after `run_s` of its `limit_s`."""
    if len(recent.ended) > 0:
        _add_end(recent.counts, recent.ended, recent.ended_use, job, end_s, run_s / limit_s)


@kernel
def _add_start(counts: Int64s, ring: Int64s, job: int, submit_s: int, start_s: int, nodes: int) -> None:
    count, room = counts[STARTS], len(ring)
    place = _place(ring, count, counts[SETTLED_STARTS], start_s, job)
    if place == count - room:
        return  # all remembered starts are later
    for k in range(count, place, -1):
        for column in range(4):
            ring[k % room, column] = ring[(k - 1) % room, column]
    row = place % room
    ring[row, TIME], ring[row, JOB], ring[row, WAIT], ring[row, NODES] = start_s, job, start_s - submit_s, nodes
    counts[STARTS] = count + 1


@kernel
def _add_end(counts: Int64s, ring: Int64s, use: Float64s, job: int, end_s: int, used: float) -> None:
    count, room = counts[ENDS], len(ring)
    place = _place(ring, count, counts[SETTLED_ENDS], end_s, job)
    if place == count - room:
        return
    for k in range(count, place, -1):
        ring[k % room, TIME], ring[k % room, JOB] = ring[(k - 1) % room, TIME], ring[(k - 1) % room, JOB]
        use[k % room] = use[(k - 1) % room]
    row = place % room
    ring[row, TIME], ring[row, JOB], use[row] = end_s, job, used
    counts[ENDS] = count + 1


@kernel_inline
def _place(ring: Int64s, count: int, settled: int, time_s: int, job: int) -> int:
    """Return the position of (time_s, job) among `count` entries by time and row, of which `settled` are fixed."""
    room = len(ring)
    place, first = count, max(settled, count - room)
    while place > first:
        before = (place - 1) % room
        if ring[before, TIME] < time_s or (ring[before, TIME] == time_s and ring[before, JOB] < job):
            break
        place -= 1
    return place
