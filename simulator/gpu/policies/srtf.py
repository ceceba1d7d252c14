"""Shortest remaining time first: the jobs with the least time left get the GPUs; others are stopped for them.

It knows every run time exactly, so it is a benchmark for other schedulers, as in the Tiresias paper. The remaining time
is that on the job's own allocation. A job that does not fit lets others pass. Ties by arrival. With `consolidate` 1, a
gang starts only on the fewest nodes.

The program of Tiresias (`run_sim.py`, schedule `shortest`) counts GPUs and has free starts: `restart_s=0`. The program
of Lucid (Hu et al., "Lucid", ASPLOS 2023) has other rules, which are not here. It decides every second by the number of
GPUs. It stops jobs even if those that replace them find no place, and lets no other job use that place. It adds 40 s
(60 s above 8 GPUs) to the remaining time of a stopped job.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.passes import EVERY, follow, sort
from simulator.gpu.events.placing import settle
from simulator.gpu.events.state import ACTIVE, ACTIVE_JOB, KEY, LEFT, RUNNING, STATUS, GpuState
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == RUNNING:
            settle(state, job, now)
        state.real[KEY, job] = state.real[LEFT, job]
    follow(state, sort(state), now, EVERY if state.knobs[0] > 0.0 else 0)


SCHEDULER = EventScheduler(decide, {"consolidate": False})
