"""The compiled clock: advance from event to event and let the policy decide at each."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from simulator.compiled import kernel
from simulator.gpu.events.placing import free_gpus, move_gpus, settle
from simulator.gpu.events.recorded_machine import (
    OUTSIDE,
    RecordedMachine,
    admit,
    arrive,
    count_job,
    make_changes,
    next_change_s,
)
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    DECISIONS,
    DONE,
    END,
    JOBS,
    LEFT,
    NEVER,
    OPEN,
    OPEN_SLOTS,
    PENDING,
    SEEN,
    SLOT,
    STATUS,
    STOPS,
    SUBMIT,
    WAKE,
    GpuState,
)

ENDLESS = -2
MOST_DECISIONS = 1_000_000  # after which a run in which no job ends or arrives is given up
MOST_STOPS = 500  # of a job that has arrived, in the mean, after which a run is given up
FEW_JOBS = 200  # count as so many then


def clock(decide: Callable[[GpuState, float], None]) -> Callable[[GpuState, RecordedMachine], tuple[float, int]]:
    """Compile the clock for one scheduler, cached with the scheduler's file.

    A scheduler has a copy of `_run`: numba caches no function that gets a compiled one as an argument or by closure.
    """
    copy = FunctionType(_run.__code__, {**globals(), "_decide": decide}, _run.__name__)
    copy.__module__ = decide.__module__
    return kernel(copy)


def _decide(state: GpuState, now: float) -> None:
    """Stand in for the scheduler's function, which replaces this one in each copy of `_run`."""


def _run(state: GpuState, machine: RecordedMachine) -> tuple[float, int]:
    """Run to the last end; return the GPU seconds that were free while a job waited, and a job that never starts.

    The job is -1 if all end. It is ENDLESS if none ends in MOST_DECISIONS (more with more jobs), or if jobs are stopped
    too often (MOST_STOPS). At an instant jobs end first, then the machine changes, then jobs arrive, then the policy
    decides once.
    """
    stranded, now, coming, waiting = 0.0, 0.0, 0, 0
    jobs = state.counts[JOBS]
    ended_at, active = 0, 0  # decision after the last end or arrival, and the number of active jobs after it
    while True:
        instant = state.real[SUBMIT, coming] if coming < jobs else NEVER
        for at in range(state.counts[ACTIVE]):
            job = state.whole[ACTIVE_JOB, at]
            instant = min(instant, state.real[END, job], state.real[WAKE, job])
        if coming < jobs or state.counts[ACTIVE] or machine.progress[OUTSIDE]:
            instant = min(instant, next_change_s(machine))
        if instant == NEVER:
            return stranded, (state.whole[ACTIVE_JOB, 0] if state.counts[ACTIVE] else -1)
        if waiting:
            stranded += free_gpus(state) * (instant - now)
        now = max(now, instant)
        _finish(state, machine, now)
        make_changes(state, machine, now)
        while coming < jobs and state.real[SUBMIT, coming] <= now:
            arrive(machine, coming)
            coming += 1
        admit(state, machine, now)
        if state.counts[ACTIVE] != active:
            ended_at, active = state.counts[DECISIONS], state.counts[ACTIVE]
        is_endless = state.counts[STOPS] > MOST_STOPS * (FEW_JOBS + coming)
        if is_endless or state.counts[DECISIONS] - ended_at > MOST_DECISIONS + jobs:
            return stranded, ENDLESS
        if state.counts[ACTIVE]:
            _decide(state, now)
            state.counts[DECISIONS] += 1
        waiting = 0
        for at in range(state.counts[ACTIVE]):
            waiting += state.whole[STATUS, state.whole[ACTIVE_JOB, at]] == PENDING


@kernel
def _finish(state: GpuState, machine: RecordedMachine, now: float) -> None:
    """End the jobs that have reached their end, and clear the requested wake-up times."""
    kept, seen = 0, state.counts[SEEN]
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.real[END, job] <= now:
            settle(state, job, state.real[END, job])
            move_gpus(state, job, -1)
            state.slots[OPEN, state.counts[OPEN_SLOTS]] = state.whole[SLOT, job]
            state.counts[OPEN_SLOTS] += 1
            state.whole[STATUS, job], state.real[LEFT, job], state.real[WAKE, job] = DONE, 0.0, NEVER
            count_job(machine, machine.owner[job], machine.job_nodes[job], -1)
            state.counts[SEEN] -= at < seen
        else:
            if state.real[WAKE, job] <= now:
                state.real[WAKE, job] = NEVER
            state.whole[ACTIVE_JOB, kept] = job
            kept += 1
    state.counts[ACTIVE] = kept
