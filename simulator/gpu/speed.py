"""The speed of a job on an allocation, for the clock of rounds and its policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.gpu.algorithms.placement import fewest_nodes, packed_whole
from simulator.gpu.profiles.profile import Placement, rotated
from simulator.gpu.profiles.scaling import goodput

if TYPE_CHECKING:
    from simulator.gpu.rounds import GpuJob, GpuMachine, Placed


def speed(job: GpuJob, placed: Placed, machine: GpuMachine) -> float:
    """Return the progress per second on `placed`; 1 on the requested GPUs, packed on the reference type.

    A gang on several types runs at the speed of its slowest GPUs. A job that trains counts the steps of its batch.
    """
    gpus, nodes = sum(placed.values()), len(placed)
    if job.model is None:
        return gpus / job.gpus
    if job.training is not None:
        own = job.training.steps_per_s((machine.reference,), packed_whole(job.gpus, machine.widest))
        return job.training.steps_per_s(*shape(placed, machine)) / own
    own = goodput(job.model, machine.reference, job.gpus, fewest_nodes(job.gpus, machine.widest), job.gpus)
    return (
        min(goodput(job.model, kind, gpus, nodes, job.gpus) for kind in {machine.types[node] for node in placed}) / own
    )


def shape(placed: Placed, machine: GpuMachine) -> tuple[tuple[str, ...], Placement]:
    """Return the GPU types of `placed`, and its GPUs on each node up to rotation: what its speed follows from."""
    types = tuple(sorted({machine.types[node] for node in placed}))
    return types, rotated(tuple(placed[node] for node in sorted(placed)))
