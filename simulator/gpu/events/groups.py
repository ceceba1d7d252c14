"""Groups of jobs: the dominant share of a group, and the queue of its waiting jobs."""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, GROUP, ORDER, PENDING, STATUS, GpuState


@kernel
def share_of(state: GpuState, group: int) -> float:
    """Return the dominant share of a group: its largest share of any resource."""
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
