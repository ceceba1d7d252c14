"""YARN's capacity queues as used by Philly: a quota per virtual cluster, lent idle GPUs, locality relaxed over time.

Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads" (ATC 2019), section 2. The
virtual cluster furthest below its quota is served first, in order of arrival, and may use idle GPUs beyond its quota. A
gang first insists on the fewest nodes, and accepts any nodes after `hold_s` (Philly relaxes after a number of tries;
ten minutes are our reading). A younger job passes a job that finds no place. Once `reclaim_at` of the GPUs are in use,
a waiting job within its virtual cluster's quota can stop jobs of virtual clusters over their quota, youngest first, if
that frees enough GPUs. Quotas that nobody declares follow the GPU time in the trace.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.placing import find_any, free_gpus, start, stop
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    GPUS,
    GROUP,
    NEVER,
    PENDING,
    QUOTA,
    RUNNING,
    STATUS,
    SUBMIT,
    WAKE,
    GpuState,
)
from simulator.gpu.policies.offers import offer
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    hold_s, reclaim_at = state.knobs[0], state.knobs[1]
    offer(state, now, True, hold_s)
    in_use = state.total[0] - free_gpus(state)
    if in_use >= reclaim_at * state.total[0]:
        for at in range(state.counts[ACTIVE]):
            job = state.whole[ACTIVE_JOB, at]
            group = state.whole[GROUP, job]
            if (
                state.whole[STATUS, job] == PENDING
                and state.used[group, 0] + state.whole[GPUS, job] <= state.of_group[QUOTA, group]
            ):
                _reclaim(state, job, now)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        relaxed = state.real[SUBMIT, job] + hold_s
        state.real[WAKE, job] = relaxed if state.whole[STATUS, job] == PENDING and relaxed > now else NEVER


@kernel
def _reclaim(state: GpuState, job: int, now: float) -> None:
    """Stop jobs of groups over their quota until the job can start, if their excess GPUs are enough."""
    lent = float(free_gpus(state))
    for group in range(len(state.asked)):
        lent += max(0.0, state.used[group, 0] - state.of_group[QUOTA, group])
    if lent < state.whole[GPUS, job]:
        return
    while True:
        kind = find_any(state, job, False)
        if kind >= 0:
            start(state, job, kind, now)
            return
        youngest = -1
        for at in range(state.counts[ACTIVE]):
            other = state.whole[ACTIVE_JOB, at]
            group = state.whole[GROUP, other]
            if (
                state.whole[STATUS, other] == RUNNING
                and state.used[group, 0] - state.whole[GPUS, other] >= state.of_group[QUOTA, group]
            ):
                youngest = other  # the last of them to arrive
        if youngest < 0:
            return
        stop(state, youngest, now)


SCHEDULER = EventScheduler(decide, {"hold_s": 600.0, "reclaim_at": 0.9}, most={"reclaim_at": 1.0}, shares="quota")
