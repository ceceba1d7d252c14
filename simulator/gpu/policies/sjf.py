"""Shortest job first: the job with the shortest run time starts first, and a job that does not fit lets others pass.

It knows every run time exactly, which no live scheduler does. No job is stopped. Ties by arrival. With `consolidate` 1,
a gang starts only on the fewest nodes. In the program of Lucid (Hu et al., "Lucid", ASPLOS 2023) no job passes one that
does not fit; this is not here.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.passes import EVERY, fill, sort
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, KEY, PENDING, STATUS, WORK, GpuState
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING:
            state.real[KEY, job] = state.real[WORK, job]
    fill(state, sort(state), now, EVERY if state.knobs[0] > 0.0 else 0)


SCHEDULER = EventScheduler(decide, {"consolidate": 0.0}, flags=("consolidate",))
