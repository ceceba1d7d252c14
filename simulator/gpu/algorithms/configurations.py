"""The allocations that Sia chooses among, and how a job values them.

Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling" (SOSP 2023),
and the solver that its authors released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Configuration(NamedTuple):
    """So many GPUs of one type on so many nodes."""

    gpu_type: str
    nodes: int
    gpus: int


class Pool(NamedTuple):
    """The nodes of one GPU type."""

    gpu_type: str
    nodes: int
    gpus_per_node: int


def configurations(pools: Sequence[Pool]) -> list[Configuration]:
    """Powers of two of GPUs inside a node, then whole nodes, as many as there are; in the order of the pools."""
    found: list[Configuration] = []
    for pool in pools:
        inside = [2**power for power in range(pool.gpus_per_node.bit_length()) if 2**power < pool.gpus_per_node]
        found.extend(Configuration(pool.gpu_type, 1, gpus) for gpus in inside)
        found.extend(
            Configuration(pool.gpu_type, nodes, nodes * pool.gpus_per_node) for nodes in range(1, pool.nodes + 1)
        )
    return found


def restart_factor(age_s: float, restarts: int, restart_s: float) -> float:
    """By what a running job's goodput elsewhere is multiplied before it is compared with staying, in (0, 1].

    (age - n S) / (age + S), with n restarts so far of S seconds: what is left of the time so far after one restart more
    (Sia). 1 until the job is as old as one restart, as the released solver has it; never under 0.01, so that
    a job that was moved too often can still be moved.
    """
    if age_s < restart_s:
        return 1.0
    return max(0.01, (age_s - restarts * restart_s) / (age_s + restart_s))


def values(goodput: Callable[[Configuration], float], allowed: Sequence[Configuration]) -> NDArray[np.float64]:
    """A job's row of Sia's matrix, (len(allowed),): goodputs scaled so that the least equals its number of GPUs.

    The least goodput stands for the smallest number of GPUs that the job can run on: so rows of jobs of unlike models
    can be compared.
    """
    raw = np.array([goodput(configuration) for configuration in allowed])
    return np.asarray(raw / raw.min() * min(configuration.gpus for configuration in allowed), dtype=np.float64)


def moving(row: NDArray[np.float64], current: int | None, factor: float) -> NDArray[np.float64]:
    """`row` with all but the `current` position multiplied by the restart factor; as it is for a job that has nothing.

    The released solver too discounts only jobs that have an allocation.
    """
    if current is None:
        return row
    moved = row * factor
    moved[current] = row[current]
    return moved
