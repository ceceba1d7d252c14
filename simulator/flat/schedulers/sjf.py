"""Shortest job first: the pending job that is planned to run for the shortest time is next; nobody passes it.

The textbook's non-preemptive rule for one server (Conway, Maxwell and Miller, Theory of Scheduling, 1967, chapter 8),
for jobs of several units. It shows how far down the mean wait can go by order alone, and who pays for that: long jobs,
which may wait for as long as shorter ones come.

**A pass.** While the first in the queue fits into the idle units, it starts. The first that does not fit blocks all
behind it, as with [fifo](fifo.md): the queue has another order, and that is the only difference.

| knob | |
|---|---|
| queue order | (estimate, submit, job id) |
| estimate | `--estimate`: `limit` (default), or `exact` for the rule with true run times |
| reservations | none |
| pass | `event` or `instant`: with `event` the first of two jobs of one second is started before the second is seen |
| what ends a job | its run time; with `--kill-at-limit` its limit, if that is earlier |

**What holds.** With one unit and exact estimates it is the M/G/1 queue with a priority for each run time, in which no
rule that knows the run times but not the future has a shorter mean wait without preempting; the tests hold its waits
against Cobham's formula. For jobs of several units nothing of the kind is promised.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.flat.scheduler import Scheduler
from simulator.flat.schedulers.fifo import in_order
from simulator.flat.state import Jobs, Knobs


@kernel_part
def by_estimate(jobs: Jobs, knobs: Knobs, job: int, submit_s: int, estimate_s: int) -> int:
    """The run time planned with, s."""
    return estimate_s


SCHEDULER = Scheduler(schedule=in_order, rank=by_estimate)
