"""Simulation of the futures of one decision in plain Python, for the agent and as the twin of compiled futures.

The compiled code is in `models.provisioning.futures`.

A future consists of the publicly visible cluster at the decision and of random draws: the run time of each present job
(from jobs that have ended), the release of held jobs, and the arrivals (from the previous weeks).
`features.futures.plain` simulates each future until the successor starts. The compiled twin is
`models.provisioning.futures.recorded`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from features.futures.arrivals import cycles_s
from features.futures.draws import RELEASE, RUN, spread
from features.futures.holds import held_longer_s
from features.futures.plain import FAR_S, FutureJob, FutureUserLimits, Usable, start_in_plain_future
from features.futures.run_times import ROOM, RunTimeHistory, draw_run_s, like_runs
from traces.arrays import Int64s


@dataclass(frozen=True)
class ObservedJob:
    """A pending or running job, or the successor. Times are epoch s."""

    number: int  # seeds the random numbers: the same job has the same ones at every decision
    nodes: int
    limit_s: int
    user: int  # from 0, as in the history
    name: int
    key: int  # place in the queue: falling key
    submit_s: int
    start_s: int | None = None  # None while it pends
    is_held: bool = False
    known_end_s: int | None = None  # end of the predecessor, which is known to run to its limit
    group: int | None = None  # of jobs that limits count together, numbered as users; None: those of its user


class PastArrival(NamedTuple):
    """A job that was submitted before the decision and that futures may repeat. Times are epoch s."""

    number: int
    nodes: int
    limit_s: int
    user: int
    name: int
    submit_s: int
    run_s: int | None  # None if it has not ended


@dataclass(frozen=True)
class FutureInputs:
    """The inputs of the futures of one decision; `models.provisioning.futures.recorded` takes the same from a record.

    pending: in queue order, including held jobs at their place. came: past arrivals by submission, without jobs that
    were withdrawn from the queue. key_of: the queue key of a repeated job at an instant. successor: it may be submitted
    later than `now_s`. usable: nodes. horizon_s: a successor that has not started after this time counts as started
    then.
    """

    now_s: int
    pending: Sequence[ObservedJob]
    running: Sequence[ObservedJob]
    came: Sequence[PastArrival]
    key_of: Callable[[PastArrival, int], int]
    history: RunTimeHistory
    successor: ObservedJob
    limits: FutureUserLimits
    usable: Usable
    horizon_s: int


def starts_in_futures(
    scene: FutureInputs,
    futures: int,
    goes_on: Callable[[], bool] = lambda: True,
    is_enough: Callable[[Sequence[int]], bool] = lambda _: False,
) -> Int64s:
    """Simulate futures and return when the successor starts in each: epoch s, int64, (at most `futures`,).

    goes_on: called repeatedly; if it returns False, the starts of the completed futures are returned. is_enough: called
    after each future with the starts so far; if it returns True, these are returned.
    """
    run_s = {}
    for job in (*scene.pending, *scene.running):
        if not goes_on():
            return np.zeros(0, np.int64)
        run_s[job.number] = _run_s(scene, job, futures)
    release_s = {job.number: _release_s(scene, job, futures) for job in scene.pending if job.is_held}
    start_times: list[int] = []
    for future, cycle_s in enumerate(cycles_s(futures).tolist()):
        drawn = {number: int(each[future]) for number, each in run_s.items()}
        released = {number: int(each[future]) for number, each in release_s.items()}
        start_s = _start(scene, drawn, released, cycle_s, goes_on)
        if start_s is None:
            break
        start_times.append(start_s)
        if is_enough(start_times):
            break
    return np.array(start_times, np.int64)


def _run_s(scene: FutureInputs, job: ObservedJob, futures: int) -> Int64s:
    """Draw the run times of a job in each future, s."""
    out = np.empty(futures, np.int64)
    if job.known_end_s is not None and job.start_s is not None:
        out[:] = job.known_end_s - job.start_s
        return out
    elapsed_s = 0 if job.start_s is None else scene.now_s - job.start_s
    share, weight, quantile = np.empty(ROOM), np.empty(ROOM), np.empty(futures)
    count = like_runs(scene.history, job.user, job.name, job.limit_s, elapsed_s, scene.now_s, share, weight)
    spread(job.number, RUN, quantile)
    draw_run_s(share, weight, count, job.limit_s, elapsed_s, quantile, out)
    return out


def _release_s(scene: FutureInputs, job: ObservedJob, futures: int) -> Int64s:
    """Draw when a held job is released in each future, epoch s."""
    quantile = np.empty(futures)
    spread(job.number, RELEASE, quantile)
    longer_s = [held_longer_s(scene.now_s - job.submit_s, share) for share in quantile.tolist()]
    return np.array(longer_s, np.int64) + scene.now_s


def _start(
    scene: FutureInputs, run_s: dict[int, int], release_s: dict[int, int], cycle_s: int, goes_on: Callable[[], bool]
) -> int | None:
    """Simulate one future and return when the successor starts; None if `goes_on` returned False."""
    now_s, last_s = scene.now_s, scene.now_s + scene.horizon_s
    pending, running = [], []
    for row, seen in enumerate(scene.pending):
        job = _job(seen, row, run_s[seen.number])
        job.is_held, job.release_s = seen.is_held, release_s.get(seen.number, FAR_S)
        pending.append(job)
    for row, seen in enumerate(scene.running, len(pending)):
        job = _job(seen, row, run_s[seen.number])
        job.start_s = now_s if seen.start_s is None else seen.start_s
        running.append(job)
    watched = _job(scene.successor, len(pending) + len(running), scene.successor.limit_s)
    arriving = _arriving(scene, run_s, cycle_s, watched.row + 1, last_s)
    busy = sum(job.nodes for job in running)
    usable = Usable(max(scene.usable.yet, busy), max(scene.usable.then, scene.usable.yet))
    queue = [*pending, watched]
    if watched.submit_s > now_s:
        queue, arriving = pending, sorted([watched, *arriving], key=lambda job: job.submit_s)
    return start_in_plain_future(queue, running, arriving, watched, scene.limits, usable, now_s, last_s, goes_on)


def _job(seen: ObservedJob, row: int, run_s: int) -> FutureJob:
    group = seen.user if seen.group is None else seen.group
    return FutureJob(seen.nodes, seen.limit_s, group, seen.key, row, run_s, submit_s=seen.submit_s)


def _arriving(scene: FutureInputs, run_s: dict[int, int], cycle_s: int, row: int, last_s: int) -> list[FutureJob]:
    """List the arrivals until `last_s`: the jobs of the last `cycle_s`, repeated every cycle. Rows count from `row`.

    Jobs with the successor's user and name are left out, because the successor replaces them.
    """
    own = scene.successor
    repeated = [
        past
        for past in scene.came
        if scene.now_s - cycle_s <= past.submit_s < scene.now_s and (past.user, past.name) != (own.user, own.name)
    ]
    arrivals: list[FutureJob] = []
    for later_s in range(cycle_s, scene.horizon_s + cycle_s if repeated else 0, cycle_s):
        for past in repeated:
            submit_s = past.submit_s + later_s
            if submit_s >= last_s:
                break
            runs_s = run_s[past.number] if past.run_s is None else past.run_s
            key = scene.key_of(past, submit_s)
            row_here = row + len(arrivals)
            arrivals.append(FutureJob(past.nodes, past.limit_s, past.user, key, row_here, runs_s, submit_s=submit_s))
    return arrivals
