"""The allocations that Sia chooses from, and the value of each to a job.

Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling" (SOSP 2023),
and the solver that its authors released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Configuration(NamedTuple):
    """A number of GPUs of one type on a number of nodes."""

    gpu_type: str
    nodes: int
    gpus: int


class Pool(NamedTuple):
    """The nodes of one GPU type."""

    gpu_type: str
    nodes: int
    gpus_per_node: int

    @property
    def kind(self) -> str:
        """Return the GPU type without the size of the nodes that tells pools apart."""
        return self.gpu_type.split("/")[0]


def configurations(pools: Sequence[Pool]) -> list[Configuration]:
    """Return powers of two of GPUs within a node, then 1, 2, ... whole nodes, in the order of the pools."""
    found: list[Configuration] = []
    for pool in pools:
        inside = [2**power for power in range(pool.gpus_per_node.bit_length()) if 2**power < pool.gpus_per_node]
        found.extend(Configuration(pool.gpu_type, 1, gpus) for gpus in inside)
        found.extend(
            Configuration(pool.gpu_type, nodes, nodes * pool.gpus_per_node) for nodes in range(1, pool.nodes + 1)
        )
    return found


def restart_factor(age_s: float, restarts: int, restart_s: float) -> float:
    """Return the factor, in (0, 1], on a running job's goodput on any allocation other than its current one.

    The factor is (age - n S) / (age + S), with n restarts so far of S seconds each: the useful share of the job's time
    after one more restart (Sia). As in the released solver, it is 1 until the job is as old as one restart. It is never
    below 0.01, so a job that was moved too often can still be moved.
    """
    if age_s < restart_s:
        return 1.0
    return max(0.01, (age_s - restarts * restart_s) / (age_s + restart_s))


def values(goodput: Callable[[Configuration], float], allowed: Sequence[Configuration]) -> NDArray[np.float64]:
    """Return a job's row of Sia's matrix, (len(allowed),): goodputs scaled so that the least equals its GPUs.

    The smallest goodput belongs to the smallest number of GPUs that the job can run on. The scaling makes rows of jobs
    with different models comparable.
    """
    raw = np.array([goodput(configuration) for configuration in allowed])
    return np.asarray(raw / raw.min() * min(configuration.gpus for configuration in allowed), dtype=np.float64)


def moving(row: NDArray[np.float64], current: int | None, factor: float) -> NDArray[np.float64]:
    """Multiply `row` by the restart factor, except the `current` position; leave it unchanged for a job without GPUs.

    The released solver also discounts only jobs that have an allocation.
    """
    if current is None:
        return row
    moved = row * factor
    moved[current] = row[current]
    return moved
