"""First in, first out: the oldest waiting job starts as soon as it fits, and no job passes it. No job is stopped.

The baseline of every paper. A gang starts on the fastest GPU type that it fits on, packed as well as possible. With
`consolidate` 1, a gang starts only on the fewest nodes, as in the program of Lucid (Hu et al., "Lucid", ASPLOS 2023).
The program of Tiresias only counts GPUs.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.placing import find_any, start
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, PENDING, STATUS, GpuState
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING:
            kind = find_any(state, job, state.knobs[0] > 0.0)
            if kind < 0:
                return
            start(state, job, kind, now)


SCHEDULER = EventScheduler(decide, {"consolidate": False})
