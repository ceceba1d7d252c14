"""The placement of a gang: on the fewest nodes that can hold it, and among those on the fullest."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from traces.arrays import Int64s

Key = TypeVar("Key", bound=Hashable)


def packed(free: Int64s, gpus: int, most_nodes: int | None = None) -> dict[int, int] | None:
    """Place `gpus` GPUs in `free` (nodes,) by best fit; return {node: GPUs}, or None if they do not fit.

    If one node can hold them, the one with the fewest free GPUs. Else all free GPUs of the nodes with the most, and for
    the rest the node that fits it best. `most_nodes` limits the number of nodes. Ties by the node's number.
    """
    left, placed, open_ = gpus, {}, free.copy()
    while left > 0:
        fits = np.flatnonzero(open_ >= left)
        if len(fits):
            node, take = int(fits[np.argmin(open_[fits])]), left
        else:
            node = int(np.argmax(open_)) if len(open_) else -1
            take = int(open_[node]) if node >= 0 else 0
        if take == 0:
            return None
        placed[node] = take
        open_[node] = 0
        left -= take
        if most_nodes is not None and len(placed) > most_nodes:
            return None
    return placed


def node_gpus(free: Int64s, need: Int64s, pod_gpus: int) -> Int64s:
    """Return how many GPUs each node holds for a job, in whole pods of `pod_gpus`, (nodes,).

    free: (nodes, resources), GPUs first. need: (resources,) per GPU of the job.
    """
    asked = need > 0
    room = (free[:, asked] // need[asked]).min(axis=1)
    return np.asarray(room - room % pod_gpus, dtype=np.int64)


def take(free: Int64s, placed: Mapping[int, int]) -> None:
    """Subtract the GPUs of `placed` from `free` (nodes,) in place."""
    for node, gpus in placed.items():
        free[node] -= gpus


def give_back(free: Int64s, placed: Mapping[int, int]) -> None:
    """Add the GPUs of `placed` to `free` (nodes,) in place."""
    for node, gpus in placed.items():
        free[node] += gpus


def has_free(free: Int64s, placed: Mapping[int, int]) -> bool:
    """Whether the GPUs of `placed` are all free in `free` (nodes,)."""
    return all(free[node] >= gpus for node, gpus in placed.items())


def summed(counts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """Return the sum of several counts by key, such as the GPUs on each node of several places."""
    total: dict[Key, int] = {}
    for one in counts:
        for key, count in one.items():
            total[key] = total.get(key, 0) + count
    return total


def fewest_nodes(gpus: int, gpus_per_node: int) -> int:
    """Return the fewest nodes that a gang of `gpus` needs."""
    return -(-gpus // gpus_per_node)


def packed_whole(gpus: int, gpus_per_node: int) -> tuple[int, ...]:
    """Return the GPUs on each node of a gang on the fewest nodes, the least first."""
    whole, rest = divmod(gpus, gpus_per_node)
    return (*[rest] * bool(rest), *[gpus_per_node] * whole)
