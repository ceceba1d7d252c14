"""Dominant resource fairness: the group with the smallest dominant share starts the next job. No job is stopped.

Ghodsi et al., "Dominant resource fairness" (NSDI 2011), section 4.1. The group with the smallest dominant share starts
its first job that fits; then the shares are updated. A dominant share is the largest of the group's shares of GPUs,
CPUs and memory. A group is a virtual cluster, a partition or a user, whichever the trace has. Resources that the trace
does not hold for nodes and jobs do not count. Our reading: the paper stops at the first task that does not fit; here
the other jobs are tried. Gangs cannot be divided, so the guarantees of the paper do not hold.
`tests/twins/gpu/divisible_drf.py` has the rule for divisible tasks, for which they hold.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.groups import queue_up, share_of
from simulator.gpu.events.placing import find_any, free_gpus, start
from simulator.gpu.events.state import ORDER, SHARE, GpuState
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision. Ties by the group's number."""
    groups = len(state.asked)
    queue_up(state)
    for group in range(groups):
        state.of_group[SHARE, group] = share_of(state, group)
    while free_gpus(state) > 0:
        least = -1
        for group in range(groups):
            if state.asked[group] >= 0 and (least < 0 or state.of_group[SHARE, group] < state.of_group[SHARE, least]):
                least = group
        if least < 0:
            return
        job = state.asked[least]
        state.asked[least] = state.whole[ORDER, job]
        kind = find_any(state, job, False)
        if kind >= 0:
            start(state, job, kind, now)
            state.of_group[SHARE, least] = share_of(state, least)


SCHEDULER = EventScheduler(decide, shares="resources")
