"""Replay a workload on a simulated cluster: check the inputs, then run the compiled kernel."""

from __future__ import annotations

import time

import numpy as np

from simulator.flat.dispatch import knobs_in_force
from simulator.flat.kernel import NO_ROOM, advance, grown, new_state
from simulator.flat.state import NEVER, NONE, FlatJobs, FlatKnobs
from simulator.names import check_names
from simulator.workload import Replay, Workload
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError

_FIRST_QUEUE_ROWS = 4096  # doubled when needed: a queue seldom grows with the trace


def simulate(
    workload: Workload,
    *,
    scheduler: str,
    capacity: int,
    estimate: str = "limit",
    pass_: str = "event",
    kill_at_limit: bool = False,
) -> Int64s:
    """Return the start of each job, s, shape (jobs,), NONE (-1) for a job that never starts.

    `scheduler` is one of `simulator.names.SCHEDULERS`, each defined by its file in `simulator/flat/schedulers`.
    `capacity` counts the units of `Workload.size`. `estimate` names the run time that the scheduler plans with, and
    `pass_` when a pass happens. `mirage` ignores `pass_` and `kill_at_limit`: it plans with limits, makes a pass each
    minute and ends jobs at their limit.

    Raises InputError for an unknown name, a capacity below the largest job, and jobs with impossible values.
    """
    return replay(
        workload, scheduler=scheduler, capacity=capacity, estimate=estimate, pass_=pass_, kill_at_limit=kill_at_limit
    ).starts


def replay(
    workload: Workload,
    *,
    scheduler: str,
    capacity: int,
    estimate: str = "limit",
    pass_: str = "event",
    kill_at_limit: bool = False,
) -> Replay:
    """Replay as `simulate` does; also return each job's run time and the kernel's seconds without compilation."""
    knobs = checked_knobs(
        scheduler=scheduler, capacity=capacity, estimate=estimate, pass_=pass_, kill_at_limit=kill_at_limit
    )
    _check_jobs(workload, capacity)
    _run(workload.take(np.arange(0)), knobs)  # compiles, or loads the compiled code
    before = time.perf_counter()
    starts = _run(workload, knobs)
    wall_s = time.perf_counter() - before
    run_s = np.minimum(workload.run_s, workload.limit_s) if knobs.kill else workload.run_s
    return Replay(scheduler, starts, run_s, wall_s)


def checked_knobs(
    *, scheduler: str, capacity: int, estimate: str = "limit", pass_: str = "event", kill_at_limit: bool = False
) -> FlatKnobs:
    """Return the kernel's knobs for these names. Raises InputError, which lists the allowed names."""
    check_names(scheduler=scheduler, estimate=estimate, pass_=pass_)
    if capacity < 1:
        raise InputError(f"capacity {capacity} is too small: give at least 1 node or processor")
    exact, instant = int(estimate == "exact"), int(pass_ == "instant")
    return knobs_in_force(scheduler, FlatKnobs(0, int(capacity), exact, instant, int(kill_at_limit)))


def as_jobs(workload: Workload) -> FlatJobs:
    """Return the workload as the kernel takes it: contiguous, writable int64 arrays (numba recompiles for others)."""
    return FlatJobs(
        *(
            np.require(column, np.int64, ("C", "W"))
            for column in (workload.submit_s, workload.size, workload.run_s, workload.limit_s)
        )
    )


def _check_jobs(workload: Workload, capacity: int) -> None:
    for column, lowest in (("submit_s", 0), ("size", 1), ("run_s", 0), ("limit_s", 1)):
        values = getattr(workload, column)
        if (bad := np.flatnonzero(values < lowest)).size:
            job = workload.job_id[bad[0]]
            raise InputError(
                f"job {job} has {column} {values[bad[0]]}, but the minimum is {lowest} "
                f"({counted(bad.size, 'such job')}): leave such jobs out or correct the trace"
            )
    if (bad := np.flatnonzero(workload.size > capacity)).size:
        worst = bad[np.argmax(workload.size[bad])]
        raise InputError(
            f"job {workload.job_id[worst]} needs {counted(workload.size[worst], 'node')} or processors, but "
            f"the cluster has {capacity} ({counted(bad.size, 'such job')}): give a capacity of "
            f"{workload.size[worst]} or more"
        )
    if (bad := np.flatnonzero(np.diff(workload.submit_s) < 0)).size:
        raise InputError(
            f"job {workload.job_id[bad[0] + 1]} follows job {workload.job_id[bad[0]]} but was submitted earlier: "
            "sort the workload by (submit_s, job_id)"
        )


def _run(workload: Workload, knobs: FlatKnobs) -> Int64s:
    jobs, count = as_jobs(workload), len(workload)
    state = new_state(knobs, count, min(count, _FIRST_QUEUE_ROWS), min(count, knobs.capacity))
    starts = np.full(count, NONE, np.int64)
    while advance(jobs, knobs, state, starts, NEVER, NONE) == NO_ROOM:
        state = grown(knobs, state)
    return starts
