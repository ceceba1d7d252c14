"""Tiresias: two-dimensional least attained service in a few queues; it knows no run times.

Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning" (NSDI 2019), section 3.2, 2D-LAS. The authors
released a simulator (`run_sim.py`, schedules `dlas-gpu` and `dlas-gpu-8`). `released` 1 follows its rules where they
differ, and `tests/simulator/gpu/test_references.py` compares the end of every job with it.

| rule | paper | released program | here |
|---|---|---|---|
| service | GPUs times time | the same | the same, with the charges of starts |
| thresholds | free to choose | 3,250 and 7,200 GPU s | `thresholds`, as many as you give |
| demotion | at the threshold | one queue at an event; it looks again after (threshold - s) / GPUs | `released` |
| order in a queue | by first start, then by arrival | by joining the queue, running jobs first | `released` |
| promotion | waited PROMOTEKNOB times as long as ran, since the last one | the same, in whole s | `promote` |
| starts | free | free | `restart_s`, `first_start` |
| placement | few nodes if the tensors are skewed | only counted | `local` |

Queues are served in order. A job that does not fit lets others pass, and a running job that no longer fits is stopped.
A promoted job returns to the first queue with its service at 0. `promote` 0 switches promotion off; the default of 8 is
our reading. Our reading too: the wait before a job's first start, or before the first one after a promotion, does not
count. The paper's skew of tensor sizes is represented by `local`. With it, a gang whose model takes much longer for a
step when it is spread (`loses_when_spread` of `simulator/gpu/profiles/scaling.py`) starts only on the fewest nodes.
Other gangs are packed as well as possible.

The programs of Lucid and Pollux decide every 60 s and have two queues, as `tiresias-rounds`.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.passes import follow, sort
from simulator.gpu.events.queues import LOCAL, RELEASED, change_queues, renumber, wake_at_changes
from simulator.gpu.events.state import GpuState
from simulator.gpu.scheduler import EventScheduler

_THRESHOLDS = 3  # the first of them in `knobs`


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    change_queues(state, now, _THRESHOLDS)
    sorted_jobs = sort(state)
    follow(state, sorted_jobs, now, int(state.knobs[LOCAL]))
    if state.knobs[RELEASED] > 0.0:
        renumber(state, sorted_jobs)
    wake_at_changes(state, now, _THRESHOLDS)


SCHEDULER = EventScheduler(
    decide,
    {"promote": 8.0, "local": True, "released": False, "thresholds": (3250.0, 7200.0)},
    increasing=("thresholds",),
    renamed={
        "threshold_1": "thresholds, as in tiresias.thresholds=3250,7200",
        "threshold_2": "thresholds, as in tiresias.thresholds=3250,7200",
    },
)
