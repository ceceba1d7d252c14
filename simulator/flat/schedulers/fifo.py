"""First come, first served: a job that does not fit blocks all jobs behind it, however small they are.

**A pass.** While the first job in the queue fits into the idle units, it starts.

| knob | |
|---|---|
| queue order | (submit, job id) |
| estimate | not used: there is no reservation and no candidate |
| pass | `event` or `instant`; the starts are the same |
| end of a job | its run time; with `--kill-at-limit` its limit, if that is earlier |

Slurm's `sched/builtin` behaves like this for one partition without priorities. If every job takes one unit, this is the
M/G/c queue, and the tests compare its mean wait with the formulas of Erlang and of Pollaczek and Khinchine.
"""

from __future__ import annotations

from simulator.compiled import kernel_inline
from simulator.flat.scheduler import Scheduler
from simulator.flat.state import FREE, QUEUE_HEAD, QUEUE_SIZE, QUEUE_TAIL, FlatJobs, FlatKnobs, FlatState, start_pending
from traces.arrays import Int64s


@kernel_inline
def in_order(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s) -> None:
    """Start from the head of the queue until the first job that does not fit."""
    scalars, queue = state.scalars, state.queue
    while scalars[QUEUE_HEAD] < scalars[QUEUE_TAIL] and queue[scalars[QUEUE_HEAD], QUEUE_SIZE] <= scalars[FREE]:
        start_pending(jobs, knobs, state, starts, scalars[QUEUE_HEAD])


SCHEDULER = Scheduler(schedule=in_order)
