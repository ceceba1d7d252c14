"""Shortest remaining time first: whoever has the least left to run has the GPUs; others are stopped for it.

Knows every run time exactly, so it is a mark to hold others against: Tiresias was held against it. What is left counts
on the job's own allocation. Who does not fit lets others pass. Ties by arrival.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.passes import follow, sort
from simulator.gpu.events.placing import settle
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, KEY, LEFT, RUNNING, STATUS, GpuState


@kernel
def decide(state: GpuState, now: float) -> None:
    """As `simulator.gpu.kernel` asks."""
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == RUNNING:
            settle(state, job, now)
        state.real[KEY, job] = state.real[LEFT, job]
    follow(state, sort(state), now, False)
