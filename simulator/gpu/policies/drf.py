"""Dominant resource fairness: the group with the smallest dominant share starts the next job. No job is stopped.

Ghodsi et al., "Dominant resource fairness" (NSDI 2011), section 4.1. The group with the smallest dominant share starts
its first job that fits; then the shares are updated. A dominant share is the largest of the group's shares of GPUs,
CPUs and memory. A group is a virtual cluster, a partition or a user, whichever the trace has. Resources that the trace
does not hold for nodes and jobs do not count. Our reading: the paper stops at the first task that does not fit; here
the other jobs are tried. Gangs cannot be divided, so the guarantees of the paper do not hold.
`tests/twins/gpu/divisible_drf.py` has the rule for divisible tasks, for which they hold.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.gpu.events.state import GpuState
from simulator.gpu.policies.offers import offer
from simulator.gpu.scheduler import EventScheduler


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    offer(state, now)


SCHEDULER = EventScheduler(decide, shares="resources")
