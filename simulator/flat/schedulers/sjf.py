"""Shortest job first: the pending job with the shortest planned run time is next; no job passes it.

This is the textbook's non-preemptive rule for one server (Conway, Maxwell and Miller, Theory of Scheduling, 1967,
chapter 8), applied to jobs of several units. It shows how much queue order alone can reduce the mean wait. Long jobs
pay for it: they may wait for as long as shorter jobs keep arriving.

**A pass.** While the first job in the queue fits into the idle units, it starts. A job that does not fit blocks all
jobs behind it, as with [fifo](fifo.md). The order of the queue is the only difference.

| knob | |
|---|---|
| queue order | (estimate, submit, job id) |
| estimate | `--estimate`: `limit` (default), or `exact` for the rule with true run times |
| reservations | none |
| pass | `event` or `instant`; with `event` the first of two jobs of one second starts before the second one is seen |
| end of a job | its run time; with `--kill-at-limit` its limit, if that is earlier |

**Guarantees.** With one unit and exact estimates this is the M/G/1 queue with a priority for each run time. There, no
non-preemptive rule that knows the run times but not the future has a shorter mean wait. The tests compare its waits
with Cobham's formula. For jobs of several units there is no such guarantee.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.flat.scheduler import Scheduler
from simulator.flat.schedulers.fifo import in_order
from simulator.flat.state import FlatJobs, FlatKnobs


@kernel_part
def by_estimate(jobs: FlatJobs, knobs: FlatKnobs, job: int, submit_s: int, estimate_s: int) -> int:
    """Rank by the planned run time, s."""
    return estimate_s


SCHEDULER = Scheduler(schedule=in_order, rank=by_estimate)
