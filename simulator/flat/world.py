"""The flat pool of equal nodes as a world of `simulator.cluster`, for each flat scheduler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator import cluster as interface
from simulator.cluster import NO_LIMIT, Built, Operations, Visible
from simulator.compiled import kernel, njit
from simulator.flat import kernel as clock
from simulator.flat.replay import checked_knobs
from simulator.flat.state import (
    ARRIVALS,
    NEVER,
    NEXT_ARRIVAL,
    NONE,
    QUEUE_ESTIMATE,
    QUEUE_HEAD,
    QUEUE_SIZE,
    QUEUE_SUBMIT,
    QUEUE_TAIL,
    RELEASE_SIZE,
    RELEASE_START,
    RELEASE_TIME,
    RUNNING,
    FlatJobs,
    FlatKnobs,
    FlatState,
    copy_state,
    withdraw,
)
from simulator.recent import ENDS, NODES, STARTS, TIME, WAIT, settle_recent
from simulator.workload import Workload
from traces.arrays import Int64s
from traces.units import DAY_S


class FlatCluster(NamedTuple):
    """The trace and the extra jobs after it, the scheduler, and working memory. Its branches are `FlatState`s."""

    jobs: FlatJobs
    knobs: FlatKnobs
    starts: Int64s  # (jobs,) scratch of `clock.advance`


def build(
    workload: Workload, *, scheduler: str, capacity: int, extra: int, nodes: int, limit_s: int, threads: int
) -> Built:
    """Build a world of the workload's jobs on `capacity` nodes. Jobs are planned by their limits and end at them."""
    knobs = checked_knobs(scheduler=scheduler, capacity=capacity, kill_at_limit=True)
    jobs = FlatJobs(
        *(
            np.append(column, np.full(extra, value, np.int64)).astype(np.int64)
            for column, value in (
                (workload.submit_s, NONE),
                (workload.size, nodes),
                (workload.run_s, limit_s),
                (workload.limit_s, limit_s),
            )
        )
    )
    count = len(workload)
    alive = min(count + extra, capacity)

    def branch(rows: int, remembered: int) -> FlatState:
        return clock.new_state(knobs, count, rows, alive, remembered)

    def resize(cluster: FlatCluster, job: int, nodes: int) -> None:
        cluster.jobs.size[job] = nodes

    clusters = tuple(FlatCluster(jobs, knobs, np.full(count + extra, NONE)) for _ in range(threads))
    return Built(clusters, count, capacity, branch, resize)


@kernel
def _advance(cluster: FlatCluster, branch: FlatState, until_s: int) -> int:
    if clock.advance(cluster.jobs, cluster.knobs, branch, cluster.starts, until_s, NONE) == clock.NO_ROOM:
        return interface.NO_ROOM
    return 0


@kernel
def _copy(cluster: FlatCluster, target: FlatState, source: FlatState) -> None:
    copy_state(target, source)


@kernel
def _submit(cluster: FlatCluster, branch: FlatState, job: int, submit_s: int) -> None:
    clock.submit(branch, job, submit_s)


@kernel
def _start_of(cluster: FlatCluster, branch: FlatState, job: int) -> int:
    start = clock.advance(cluster.jobs, cluster.knobs, branch, cluster.starts, NEVER, job)
    settle_recent(branch.recent)
    return start


@kernel
def _place_of(cluster: FlatCluster, branch: FlatState, job: int, submit_s: int) -> int:
    return int(branch.scalars[QUEUE_TAIL] - branch.scalars[QUEUE_HEAD])


@kernel
def _withdraw(cluster: FlatCluster, branch: FlatState, job: int, now_s: int) -> None:
    withdraw(branch, job, now_s)


@kernel
def _relimit(cluster: FlatCluster, branch: FlatState, job: int, limit_s: int) -> None:
    clock.relimit(cluster.jobs, cluster.knobs, branch, job, limit_s)


@njit
def _visible(cluster: FlatCluster, branch: FlatState, now_s: int) -> Visible:
    jobs, scalars, recent = cluster.jobs, branch.scalars, branch.recent
    queue = branch.queue[scalars[QUEUE_HEAD] : scalars[QUEUE_TAIL]]
    running = branch.releases[: scalars[RUNNING]]
    started = recent.started[: min(recent.counts[STARTS], len(recent.started))]
    arrived = scalars[NEXT_ARRIVAL]
    first = np.searchsorted(jobs.submit_s[: scalars[ARRIVALS]], now_s - DAY_S)
    return Visible(
        cluster.knobs.capacity,
        cluster.knobs.capacity,
        queue[:, QUEUE_SIZE],
        queue[:, QUEUE_ESTIMATE],
        queue[:, QUEUE_SUBMIT],
        np.zeros(len(queue), np.int64),
        np.zeros(len(queue), np.int64),
        running[:, RELEASE_SIZE],
        running[:, RELEASE_TIME] - running[:, RELEASE_START],
        running[:, RELEASE_START],
        np.zeros(len(running), np.int64),
        started[:, TIME],
        started[:, WAIT],
        started[:, NODES],
        recent.ended_use[: min(recent.counts[ENDS], len(recent.ended_use))],
        jobs.submit_s[first:arrived],
        jobs.size[first:arrived] * jobs.limit_s[first:arrived],
        NO_LIMIT,
        NO_LIMIT,
    )


interface.implement(
    FlatCluster, Operations(_advance, _copy, _submit, _start_of, _place_of, _visible, _withdraw, _relimit)
)
