"""Dominant resource fairness: the next job is of whoever has the smallest dominant share. Nobody is stopped.

Ghodsi et al., "Dominant resource fairness" (NSDI 2011), with offers as Mesos makes them: the group with the least
dominant share is offered all that is free, starts its first job that fits, and the shares are counted again. A group
is a virtual cluster, a partition or a user, whichever the trace has. Resources that the trace does not hold do not
count. Gangs cannot be divided, so the guarantees of the paper do not hold; `tests/twins/gpu/divisible_drf.py`
has the rule for divisible tasks, for which they do.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.state import GpuState
from simulator.gpu.policies.offers import offer


@kernel
def decide(state: GpuState, now: float) -> None:
    """As `simulator.gpu.kernel` asks."""
    offer(state, now, False, 0.0)
