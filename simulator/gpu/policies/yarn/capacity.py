"""YARN's Capacity scheduler, as used by Philly: a tree of queues with guaranteed capacities, idle GPUs lent.

The rules are those of the Capacity scheduler of Apache Hadoop, from its documentation. Its newest releases compute the
user limit from what the active users hold. Locality, gangs and the use of GPUs beyond a quota follow Jeon et al.,
"Analysis of large-scale multi-tenant GPU clusters for DNN training workloads" (ATC 2019), section 2. They released
their trace and no program. Without declared queues, each virtual cluster is a queue below the root, without limits. Its
guaranteed capacity is its quota, and quotas that are not declared follow the GPU time in the trace.

| rule | Capacity scheduler | here |
|---|---|---|
| queue served first | at each level, the one with the smallest part of its guaranteed capacity in use | the same |
| ties | larger capacity | the same; without declared queues the order of names |
| within a queue | in order of arrival | the same; a younger job passes a job that finds no place |
| most capacity | percentage of the parent's most capacity, never exceeded | the same |
| user limit | C / users with waiting jobs, at least `user_limit` % of C | the same |
| C | guaranteed capacity, or the use with the new container if that is more | the same, with the gang |
| a user's most | `user_limit_factor` times the guaranteed capacity | the same |
| test of a user | what the user holds; the last container may exceed the limit | a user's first gang may exceed it |
| preemption | off by default; every few seconds, a part at a time | at once, from `reclaim_at` of the GPUs in use |

A gang first insists on the fewest nodes, and accepts any nodes after `hold_s`. Philly relaxes after a number of tries;
ten minutes are our reading.

Once `reclaim_at` of the GPUs are in use, a waiting job takes lent GPUs back if its queue stays within its guaranteed
capacity. It takes them from the siblings of its queue. It takes them from the siblings of the parent only if the parent
stays within its guaranteed capacity as well, and so on. It takes them from one GPU type, the fastest for the job on
which this works. A running job may be stopped if its queue, and each queue above it up to the common parent, keeps its
guaranteed capacity without it. Jobs are stopped only if the waiting job then starts at once, and no more of them than
it needs. Jobs that would start on lent GPUs at the same instant are stopped first, then the youngest. If they free too
little, because small jobs use up what their queue has lent, it tries jobs of at least 2, 4, 8, ... GPUs. What is freed
and not used is offered at once. Our reading: the gang insists on the fewest nodes here too, for its first `hold_s`.

Not here: priorities of queues and jobs, preemption within a queue, capacities in absolute numbers, labels of nodes,
reservations, weights of users, and limits on the number of jobs. Nor is the rest beyond the guaranteed capacities
divided between queues when GPUs are taken back.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.state import GpuState
from simulator.gpu.policies.yarn.sharing import decide_by_queues
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    decide_by_queues(state, now, False)


SCHEDULER = EventScheduler(decide, {"hold_s": 600.0, "reclaim_at": 0.9}, most={"reclaim_at": 1.0}, shares="quotas")
