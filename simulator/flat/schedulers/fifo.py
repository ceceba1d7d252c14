"""First come, first served; the first that does not fit blocks all behind it, however small they are.

**A pass.** While the first in the queue fits into the idle units, it starts.

| knob | |
|---|---|
| queue order | (submit, job id) |
| estimate | not used: there is no reservation and no candidate |
| pass | `event` or `instant`; the starts are the same |
| what ends a job | its run time; with `--kill-at-limit` its limit, if that is earlier |

Slurm's `sched/builtin` is this for one partition without priorities. With one unit a job it is the M/G/c queue, and the
tests hold its mean wait against Erlang's and Pollaczek and Khinchine's formulas.
"""

from __future__ import annotations

from simulator.compiled import kernel_inline
from simulator.flat.scheduler import Scheduler
from simulator.flat.state import FREE, QUEUE_HEAD, QUEUE_SIZE, QUEUE_TAIL, Int64s, Jobs, Knobs, State, start_pending


@kernel_inline
def in_order(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """Start from the head of the queue until the first job that does not fit."""
    scalars, queue = state.scalars, state.queue
    while scalars[QUEUE_HEAD] < scalars[QUEUE_TAIL] and queue[scalars[QUEUE_HEAD], QUEUE_SIZE] <= scalars[FREE]:
        start_pending(jobs, knobs, state, starts, scalars[QUEUE_HEAD])


SCHEDULER = Scheduler(schedule=in_order)
