"""A pass by groups: repeatedly offer the free GPUs to the group with the smallest part of its share."""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.placing import find_any, free_gpus, start
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, GROUP, ORDER, PENDING, SHARE, STATUS, GpuState


@kernel
def share_of(state: GpuState, group: int) -> float:
    """Return the group's dominant share: the largest used over total of any resource."""
    most = 0.0
    for resource in range(len(state.total)):
        most = max(most, state.used[group, resource] / state.total[resource])
    return most


@kernel
def queue_up(state: GpuState) -> None:
    """Queue the waiting jobs of each group by arrival: `asked` has the first, ORDER the next of each; -1 for none."""
    state.asked[:] = -1
    for at in range(state.counts[ACTIVE] - 1, -1, -1):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING:
            state.whole[ORDER, job] = state.asked[state.whole[GROUP, job]]
            state.asked[state.whole[GROUP, job]] = job


@kernel
def offer(state: GpuState, now: float) -> None:
    """Start jobs of the group with the smallest share, in order of arrival; skip jobs that do not fit.

    Ties by the group's number.
    """
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
