"""Shortest job first: the job with the shortest run time starts first, and a job that does not fit lets others pass.

It knows every run time exactly, which no live scheduler does. No job is stopped. Ties by arrival. With `consolidate` 1,
a gang starts only on the fewest nodes. With `pass` 0, no job passes a shorter one that does not fit. The program of
Lucid (Hu et al., "Lucid", ASPLOS 2023) is `consolidate` 1 and `pass` 0.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.passes import EVERY, fill, sort, start_in_order
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, KEY, PENDING, STATUS, WORK, GpuState
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING:
            state.real[KEY, job] = state.real[WORK, job]
    sorted_jobs = sort(state)
    if state.knobs[1] > 0.0:
        fill(state, sorted_jobs, now, EVERY if state.knobs[0] > 0.0 else 0)
    else:
        start_in_order(state, sorted_jobs, now, state.knobs[0] > 0.0)


SCHEDULER = EventScheduler(decide, {"consolidate": False, "pass": True})
