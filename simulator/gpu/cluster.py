"""The machine that GPU schedulers are compared on: nodes with typed GPUs, CPUs and memory where known, in racks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.profiles.scaling import REFERENCE
from simulator.gpu.profiles.table import BACKWARD_S
from simulator.gpu.rounds import GpuMachine
from traces.errors import InputError

Int64s = NDArray[np.int64]

RESOURCES = ("GPUs", "CPUs", "memory")
PLAIN = REFERENCE  # the type of a cluster that names none: the one that the profiles were measured on


class GpuCluster(NamedTuple):
    """Nodes. `capacity` is (nodes, resources) with GPUs first; `racks` (nodes,) numbers of the rack of each."""

    capacity: Int64s
    types: tuple[str, ...]  # GPU type of each node
    racks: Int64s
    reference: str  # type that recorded run times were on

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return int(self.capacity[:, 0].sum())

    @property
    def nodes(self) -> int:
        """Nodes in all."""
        return len(self.capacity)

    def machine(self) -> GpuMachine:
        """As the clock of rounds has it: GPUs alone."""
        return GpuMachine(self.capacity[:, 0].copy(), list(self.types), self.reference)


def of_nodes(
    gpus: Int64s, types: tuple[str, ...] | None = None, reference: str | None = None, rack_nodes: int | None = None
) -> GpuCluster:
    """A cluster of nodes with `gpus` (nodes,) GPUs each, `rack_nodes` of them in a rack (None: all in one).

    `reference` is by default the type of most GPUs. InputError for a node without GPUs, or an unknown GPU type.
    """
    counts = np.asarray(gpus, dtype=np.int64)
    if len(counts) == 0 or counts.min() < 1:
        raise InputError("a GPU cluster needs at least one node, and each node at least one GPU")
    named = types or (PLAIN,) * len(counts)
    for name in sorted(set(named)):
        if name not in BACKWARD_S:
            raise InputError(f"unknown GPU type {name!r}: known are {', '.join(BACKWARD_S)}")
    if reference is None:
        held = {name: sum(int(n) for n, own in zip(counts, named, strict=True) if own == name) for name in named}
        reference = max(sorted(held), key=lambda name: held[name])
    if reference not in named:
        raise InputError(f"reference GPU type {reference!r}: the cluster has {', '.join(sorted(set(named)))}")
    racks = np.arange(len(counts), dtype=np.int64) // (rack_nodes or len(counts))
    return GpuCluster(counts[:, None].copy(), tuple(named), racks, reference)
