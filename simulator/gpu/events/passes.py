"""Functions that several policies share: passes over an order with and without preemption, and sorting."""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.placing import find, find_any, free_gpus, give_up, is_free_still, move_gpus, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    ASKED_TYPES,
    CHOICE,
    DONE,
    GPUS,
    KEY,
    KIND,
    LEVEL,
    ON_TYPE,
    ORDER,
    RUNNING,
    SEEN,
    SORTED,
    STATUS,
    TYPE_FREE,
    TYPE_GPUS,
    GpuState,
)

EVERY = 2  # value of `local`: every gang starts only on the fewest nodes; 1: a gang that loses much when spread
_OUT, _KEEP, _STOP = -3, -2, -1  # decision about a job in a pass; values >= 0 are the type to start on


@kernel
def follow(state: GpuState, sorted_jobs: int, now: float, local: int) -> None:
    """Run the jobs at the front of `order` (its first `sorted_jobs`), as many as the GPUs of each type can hold.

    Running jobs behind them are stopped, but only if the jobs that replace them can be placed. Remaining GPUs go to any
    jobs that fit, in order. With `local` 1, a gang of a kind that loses much when spread starts only on the fewest
    nodes; with EVERY, every gang does.
    """
    least_free = min(0, free_gpus(state))  # below 0 if running jobs hold GPUs that have left the machine
    last = _choose(state, sorted_jobs)
    stopped = 0
    for at in range(last):
        if state.whole[CHOICE, state.whole[ORDER, at]] == _STOP:
            move_gpus(state, state.whole[ORDER, at], -1)
            stopped += 1
    for at in range(last):
        job = state.whole[ORDER, at]
        kind = state.whole[CHOICE, job]
        if kind >= 0:
            if find(state, job, kind, local + state.local[state.whole[KIND, job]] >= EVERY):
                start(state, job, kind, now)
            else:
                state.whole[CHOICE, job] = _OUT
    if stopped:
        for at in range(last):
            job = state.whole[ORDER, at]
            if state.whole[CHOICE, job] == _STOP:
                if is_free_still(state, job) and free_gpus(state) - state.whole[GPUS, job] >= least_free:
                    move_gpus(state, job, 1)
                    state.whole[CHOICE, job] = _KEEP
                else:
                    give_up(state, job, now)
    fill(state, sorted_jobs, now, local)


@kernel
def _choose(state: GpuState, sorted_jobs: int) -> int:
    """Decide in order, within the GPUs of each type, which jobs keep running, stop, or start on which type.

    Return the number of jobs in order up to the last one that stops or starts. Later jobs get no decision.
    """
    last, left, running = 0, 0, 0  # left: GPUs of no job yet; running: those of running jobs not yet seen
    for kind in range(state.of_type.shape[1]):
        state.of_type[ASKED_TYPES, kind] = state.of_type[TYPE_GPUS, kind]
        left += state.of_type[TYPE_GPUS, kind]
        running += state.of_type[TYPE_GPUS, kind] - state.of_type[TYPE_FREE, kind]
    for at in range(sorted_jobs):
        if left == 0 and running == 0:
            break
        job = state.whole[ORDER, at]
        gpus = state.whole[GPUS, job]
        if state.whole[STATUS, job] == RUNNING:
            running -= gpus
            kind = state.whole[ON_TYPE, job]
            if state.of_type[ASKED_TYPES, kind] >= gpus:
                state.whole[CHOICE, job] = _KEEP
                state.of_type[ASKED_TYPES, kind] -= gpus
                left -= gpus
            else:
                state.whole[CHOICE, job] = _STOP
                last = at + 1
        else:
            state.whole[CHOICE, job] = _OUT
            if gpus > left:
                continue
            for rank in range(state.of_type.shape[1]):
                kind = state.preference[state.whole[KIND, job], rank]
                if state.of_type[ASKED_TYPES, kind] >= gpus:
                    state.of_type[ASKED_TYPES, kind] -= gpus
                    left -= gpus
                    state.whole[CHOICE, job] = kind
                    last = at + 1
                    break
    return last


@kernel
def fill(state: GpuState, sorted_jobs: int, now: float, local: int) -> None:
    """Start the waiting jobs that fit on free GPUs, in order."""
    free = free_gpus(state)
    for at in range(sorted_jobs):
        if free == 0:
            break
        job = state.whole[ORDER, at]
        if state.whole[STATUS, job] != RUNNING and state.whole[GPUS, job] <= free:
            kind = find_any(state, job, local + state.local[state.whole[KIND, job]] >= EVERY)
            if kind >= 0:
                start(state, job, kind, now)
                free -= state.whole[GPUS, job]


@kernel
def start_in_order(state: GpuState, sorted_jobs: int, now: float, consolidates: bool) -> None:
    """Start the waiting jobs in order, up to the first that does not fit."""
    for at in range(sorted_jobs):
        job = state.whole[ORDER, at]
        if state.whole[STATUS, job] != RUNNING:
            kind = find_any(state, job, consolidates)
            if kind < 0:
                return
            start(state, job, kind, now)


@kernel
def sort(state: GpuState) -> int:
    """Sort the active jobs into `order` by (level, key, arrival); return how many. The last order is nearly sorted.

    A job's number is its place in the order of arrival. Active jobs behind the first SEEN are not in the last order.
    """
    kept = 0
    for at in range(state.counts[SORTED]):
        job = state.whole[ORDER, at]
        if state.whole[STATUS, job] != DONE:
            state.whole[ORDER, kept] = job
            kept += 1
    for at in range(state.counts[ACTIVE] - 1, state.counts[SEEN] - 1, -1):
        state.whole[ORDER, kept] = state.whole[ACTIVE_JOB, at]
        kept += 1
    state.counts[SEEN] = state.counts[ACTIVE]
    state.counts[SORTED] = kept
    for at in range(1, kept):
        job = state.whole[ORDER, at]
        level, key = state.whole[LEVEL, job], state.real[KEY, job]
        before = at - 1
        while before >= 0:
            other = state.whole[ORDER, before]
            if state.whole[LEVEL, other] != level:
                if state.whole[LEVEL, other] < level:
                    break
            elif state.real[KEY, other] < key or (state.real[KEY, other] == key and other < job):
                break
            state.whole[ORDER, before + 1] = state.whole[ORDER, before]
            before -= 1
        state.whole[ORDER, before + 1] = job
    return kept
