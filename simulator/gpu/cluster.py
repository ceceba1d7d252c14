"""The cluster of the GPU schedulers: nodes in racks, with typed GPUs, and with CPUs and memory where known."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from simulator.gpu.round_policy import GpuMachine
from traces.arrays import Int64s
from traces.errors import InputError
from traces.visible import visible

RESOURCES = ("GPUs", "thousandths of CPUs", "MiB of memory")  # of `GpuCluster.capacity`, in order
MOST_NODES = 1_000_000  # in a cluster that a user writes
PLAIN = "GPU"  # GPU type of a cluster that names none


class GpuCluster(NamedTuple):
    """The nodes of a cluster. `racks` (nodes,) holds rack numbers.

    `capacity` is (nodes, resources), in units of RESOURCES. It holds GPUs alone where the CPUs or the memory of a node
    are not known.
    """

    capacity: Int64s
    types: tuple[str, ...]  # GPU type of each node
    racks: Int64s
    reference: str  # GPU type of the recorded run times
    labels: tuple[str, ...] = ()  # GPU model of each node as the machine list names it; () where there is none

    @property
    def gpus(self) -> int:
        """Return the total number of GPUs."""
        return int(self.capacity[:, 0].sum())

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.capacity)

    def machine(self) -> GpuMachine:
        """Convert to the machine of the clock of rounds, whose policies see the GPUs; `kubernetes` sees all."""
        gpus = self.capacity[:, 0].copy()
        return GpuMachine(gpus, list(self.types), self.reference, self.capacity[:, 1:].copy(), self.labels)


def of_nodes(
    gpus: Int64s,
    types: tuple[str, ...] | None = None,
    reference: str | None = None,
    rack_nodes: int | None = None,
    others: Int64s | None = None,
    labels: tuple[str, ...] = (),
) -> GpuCluster:
    """Build a cluster of nodes with `gpus` (nodes,) GPUs each and `rack_nodes` nodes per rack (None: one rack).

    `others` (nodes, resources) is the capacity behind the GPUs, if known. `reference` defaults to the most common GPU
    type. Raises InputError for a node without GPUs, and for a reference that no node has.
    """
    counts = np.asarray(gpus, dtype=np.int64)
    if len(counts) == 0 or counts.min() < 1:
        raise InputError("a GPU cluster needs at least one node, and each node at least one GPU")
    named = types or (PLAIN,) * len(counts)
    if reference is None:
        held = {name: sum(int(n) for n, own in zip(counts, named, strict=True) if own == name) for name in named}
        reference = max(sorted(held), key=lambda name: held[name])
    if reference not in named:
        raise InputError(
            f"the cluster has no GPU of the reference type {reference!r}: choose one of {', '.join(sorted(set(named)))}"
        )
    racks = np.arange(len(counts), dtype=np.int64) // (rack_nodes or len(counts))
    capacity = counts[:, None].copy() if others is None else np.column_stack([counts, others]).astype(np.int64)
    return GpuCluster(capacity, tuple(named), racks, reference, labels)


def of_text(machine: str, plain: str) -> GpuCluster:
    """Build the cluster that a user writes: `6x4:T4,2x8:A100` is 6 nodes of 4 T4 and 2 of 8 A100.

    `plain` is the GPU type where none is written. Raises InputError for anything else.
    """
    gpus: list[int] = []
    types: list[str] = []
    for part in machine.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})x(\d{1,5})(?::([^\s,:]+))?\s*", part)
        nodes, own = (int(match[1]), int(match[2])) if match else (0, 0)
        if match is None or not nodes or not own or len(gpus) + nodes > MOST_NODES:
            raise InputError(
                f"machine {visible(part)[:80]!r} is not understood; write NODESxGPUS:TYPE, as in 6x4:T4,2x8:A100, at "
                f"most {MOST_NODES:,} nodes in all"
            )
        gpus += [own] * nodes
        types += [visible(match[3] or plain)] * nodes
    return of_nodes(np.array(gpus, dtype=np.int64), tuple(types))
