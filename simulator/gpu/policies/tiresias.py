"""Tiresias: two-dimensional least attained service in a few queues; it knows no run times.

Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning" (NSDI 2019). A job's service is GPUs times
time. A job enters the first queue and moves down one queue when its service reaches a threshold. The simulator that the
authors released has three queues and the thresholds 3,250 and 7,200 GPU seconds, which are the defaults here. A job
that has waited `promote` times as long as it ever ran returns to the first queue with its service at 0 (PROMOTEKNOB; 8
is our reading of the paper, 0 switches it off). Queues are served in order, and a job that does not fit lets others
pass.

Ties: within a queue, running jobs come before waiting jobs, each in order of arrival, so no job is stopped for a job of
the same queue. Placement: with `local`, a gang whose model loses over `spread_loss` of a step when spread starts only
on the fewest nodes, which represents the paper's skew of tensor sizes. Other gangs are packed as well as possible.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.passes import follow
from simulator.gpu.events.placing import settle
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    GPUS,
    LEVEL,
    NEVER,
    ORDER,
    PENDED,
    RAN,
    RUNNING,
    SERVICE,
    STATUS,
    WAKE,
    GpuState,
)
from simulator.gpu.scheduler import EventScheduler

_NEAR = 1e-6  # tolerance for reaching a threshold, GPU s


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    promote, is_local = state.knobs[0], state.knobs[1] > 0.0
    queues = len(state.knobs) - 1  # knobs from 2 on are the thresholds between them
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == RUNNING:
            settle(state, job, now)
            while (
                state.whole[LEVEL, job] < queues - 1
                and state.real[SERVICE, job] >= state.knobs[2 + state.whole[LEVEL, job]] - _NEAR
            ):
                state.whole[LEVEL, job] += 1
        elif (
            state.whole[LEVEL, job] > 0
            and promote > 0.0
            and now - state.real[PENDED, job] >= promote * state.real[RAN, job] - _NEAR
        ):
            state.whole[LEVEL, job], state.real[SERVICE, job] = 0, 0.0
    found = 0
    for level in range(queues):
        for is_waiting in range(2):
            for at in range(state.counts[ACTIVE]):
                job = state.whole[ACTIVE_JOB, at]
                if state.whole[LEVEL, job] == level and (state.whole[STATUS, job] != RUNNING) == (is_waiting == 1):
                    state.whole[ORDER, found] = job
                    found += 1
    follow(state, found, now, is_local)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        state.real[WAKE, job] = NEVER
        level = state.whole[LEVEL, job]
        if state.whole[STATUS, job] == RUNNING:
            if level < queues - 1:
                state.real[WAKE, job] = (
                    now + max(0.0, state.knobs[2 + level] - state.real[SERVICE, job]) / state.whole[GPUS, job]
                )
        elif level > 0 and promote > 0.0:
            state.real[WAKE, job] = state.real[PENDED, job] + promote * state.real[RAN, job]


SCHEDULER = EventScheduler(
    decide,
    {"promote": 8.0, "local": 1.0, "threshold_1": 3250.0, "threshold_2": 7200.0},
    most={"local": 1.0},
)
