"""Shortest job first: who has the shortest run time starts first, and who does not fit lets others pass.

Knows every run time exactly, which no live scheduler does. Nobody is stopped. Ties by arrival.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.passes import fill, sort
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, KEY, PENDING, STATUS, WORK, GpuState


@kernel
def decide(state: GpuState, now: float) -> None:
    """As `simulator.gpu.kernel` asks."""
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING:
            state.real[KEY, job] = state.real[WORK, job]
    fill(state, sort(state), now, False)
