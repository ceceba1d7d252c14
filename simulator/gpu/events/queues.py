"""Queues by attained service, as Tiresias has them: when a job changes its queue, and when to look again.

Both policies of Tiresias share these steps. Their first knobs are PROMOTE, LOCAL and RELEASED; the thresholds between
the queues are the last knobs, from `first` on.
"""

from __future__ import annotations

from math import ceil, floor

from simulator.compiled import kernel
from simulator.gpu.events.placing import settle
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    BEGUN,
    GPUS,
    KEY,
    LEVEL,
    NEVER,
    ORDER,
    PENDED,
    RUNNING,
    SEEN,
    SERVICE,
    SORTED,
    STATUS,
    WAITED,
    WAKE,
    GpuState,
)

PROMOTE, LOCAL, RELEASED = range(3)  # in `knobs`
_NEAR = 1e-6  # tolerance for reaching a limit, GPU s or s


@kernel
def change_queues(state: GpuState, now: float, first: int) -> None:
    """Settle the running jobs, demote those that reached a threshold, and promote waiting jobs that starve.

    KEY is a job's first start, never for a job that has not started. With RELEASED, a job moves down one queue at most,
    and KEY of a job that joins a queue is behind all others'.
    """
    is_released, promote = state.knobs[RELEASED] > 0.0, state.knobs[PROMOTE]
    joined = state.counts[SORTED]
    if is_released:
        for at in range(state.counts[SEEN], state.counts[ACTIVE]):
            state.real[KEY, state.whole[ACTIVE_JOB, at]] = joined
            joined += 1
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        level = state.whole[LEVEL, job]
        if state.whole[STATUS, job] == RUNNING:
            settle(state, job, now)
            while level < len(state.knobs) - first and state.real[SERVICE, job] >= state.knobs[first + level] - _NEAR:
                level += 1
                if is_released:
                    break
        elif level > 0 and promote > 0.0 and now - state.real[PENDED, job] >= _patience(state, job) - _NEAR:
            level = 0
            state.real[SERVICE, job], state.real[WAITED, job], state.real[PENDED, job] = 0.0, 0.0, now
        if level != state.whole[LEVEL, job]:
            state.whole[LEVEL, job] = level
            if is_released:
                state.real[KEY, job] = joined
                joined += 1
        if not is_released:
            state.real[KEY, job] = state.real[BEGUN, job] if state.real[BEGUN, job] >= 0.0 else NEVER


@kernel
def _patience(state: GpuState, job: int) -> float:
    """Return the seconds from PENDED on after which a waiting job is promoted."""
    limit_s = state.knobs[PROMOTE] * state.real[SERVICE, job] / state.whole[GPUS, job]
    if state.knobs[RELEASED] > 0.0:
        limit_s = floor(limit_s)
    return float(limit_s - state.real[WAITED, job])


@kernel
def renumber(state: GpuState, sorted_jobs: int) -> None:
    """Put the running jobs of each queue before its waiting jobs, otherwise in their order, by KEY."""
    found = 0
    for is_waiting in range(2):
        for at in range(sorted_jobs):
            job = state.whole[ORDER, at]
            if (state.whole[STATUS, job] != RUNNING) == (is_waiting == 1):
                state.real[KEY, job] = found
                found += 1


@kernel
def wake_at_changes(state: GpuState, now: float, first: int) -> None:
    """Ask for a decision when a job reaches its next threshold, or has waited long enough to be promoted.

    With RELEASED, the next look at a job is as late as in the authors' program, at a whole second. That program
    subtracts seconds from GPU seconds.
    """
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        state.real[WAKE, job] = NEVER
        level, gpus = state.whole[LEVEL, job], state.whole[GPUS, job]
        if state.whole[STATUS, job] != RUNNING:
            if level > 0 and state.knobs[PROMOTE] > 0.0:
                state.real[WAKE, job] = state.real[PENDED, job] + _patience(state, job)
        elif level < len(state.knobs) - first:
            threshold, service = state.knobs[first + level], state.real[SERVICE, job]
            if state.knobs[RELEASED] > 0.0:
                state.real[WAKE, job] = now + ceil((threshold - service / gpus) / gpus)
            else:
                state.real[WAKE, job] = now + max(0.0, threshold - service) / gpus
