"""YARN's Fair scheduler: the GPUs are divided between the queues that have jobs, by weight, with least shares.

The rules are those of the Fair scheduler of Apache Hadoop with its policy `fair`. Queues are declared as for `yarn`.
Without declared queues, each group of the trace is a queue below the root, and all weigh the same; quotas do not count.

| rule | Fair scheduler | here |
|---|---|---|
| weight of a queue | `weight` | `capacity` |
| queue served first | those below their least share (or demand), by use over that; then by use over weight | the same |
| within a queue | by the use of each job, ties by arrival | by arrival: a waiting gang uses nothing |
| fair share of a queue with jobs | weight times one factor, from `minResources` to `maxResources` | the same |
| least and most | absolute or of the cluster | `least` and `most`, percentages of those of the parent |
| user limits | none on resources | none |
| preemption | off by default; after timeouts, up to half of the fair share | at once, up to the fair share |
| preemption starts | at 0.8 of the cluster in use | `reclaim_at` |

The rest is as in `yarn`: locality, and how lent GPUs are taken back. Fair shares replace guaranteed capacities. Our
reading: a gang takes GPUs back only if its queue holds no more than its fair share with the whole gang.

Not here: the policies `fifo` and `drf` of a queue, limits on the number of jobs, weights of single jobs, and timeouts.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.state import GpuState
from simulator.gpu.policies.yarn.sharing import decide_by_queues
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    decide_by_queues(state, now, True)


SCHEDULER = EventScheduler(decide, {"hold_s": 600.0, "reclaim_at": 0.8}, most={"reclaim_at": 1.0}, shares="weights")
