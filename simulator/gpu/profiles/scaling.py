"""Throughput and goodput of a model on any allocation: GPU type, number, spread over nodes, and packing.

The laws are our assumptions and pass through the measured points of `table`:

- On one node, the synchronisation loss grows with the logarithm of the number of GPUs, through the measured value for
  4.
- On several nodes, it depends on the number of GPUs per node, through the measured values for 1 and 4 per node. It does
  not grow with the number of nodes: the data for 2, 3 and 4 nodes shows no trend.
- The loss is a share of the step on the reference type. A faster GPU shortens the computation but not the
  synchronisation: a step takes `1 / speed + loss` of a step on one T4.
- Two jobs on one GPU run at full speed while their busy shares add to at most one; beyond that each gets its share.

Goodput (Pollux, Qiao et al., OSDI 2021) is throughput times the statistical efficiency of the batch.
"""

from __future__ import annotations

import math
from functools import lru_cache

from simulator.gpu.profiles.table import BACKWARD_S, MODELS, TrainingModel
from traces.errors import InputError

REFERENCE = "T4"


def model_of(name: str) -> TrainingModel:
    """Return the profile of a model. Raises InputError, which lists the known models."""
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}: known are {', '.join(MODELS)}")
    return MODELS[name]


def type_speed(model: TrainingModel, gpu_type: str) -> float:
    """Return the model's speed on `gpu_type` relative to a T4. Raises InputError for an unknown type."""
    if gpu_type not in BACKWARD_S:
        raise InputError(f"unknown GPU type {gpu_type!r}: known are {', '.join(BACKWARD_S)}")
    return float((BACKWARD_S[REFERENCE] / BACKWARD_S[gpu_type]) ** model.type_exponent)


def loss(model: TrainingModel, gpus: int, nodes: int) -> float:
    """Return the synchronisation loss in steps of one T4, for `gpus` GPUs spread evenly over `nodes` nodes."""
    if gpus == 1:
        return 0.0
    if nodes == 1:
        return model.local_loss * math.log2(gpus) / 2.0
    a_node = math.log2(gpus / nodes)
    return model.spread_loss + (model.wide_loss - model.spread_loss) * a_node / 2.0


def throughput(model: TrainingModel, gpu_type: str, gpus: int, nodes: int) -> float:
    """Return the samples per second at the profiled batch per GPU. `gpus` >= 1, 1 <= `nodes` <= `gpus`."""
    step_s = model.step_s * (1.0 / type_speed(model, gpu_type) + loss(model, gpus, nodes))
    return gpus * model.batch_per_gpu / step_s


def packed_share(model: TrainingModel, others: list[TrainingModel]) -> float:
    """Return the share in (0, 1] of its speed that a job keeps when `others` share its GPUs."""
    return min(1.0, 1.0 / (model.busy_share + sum(other.busy_share for other in others)))


def efficiency(model: TrainingModel, batches: float) -> float:
    """Return the progress per sample at `batches` times the job's batch, relative to its own batch.

    It is in (0, 1] for `batches` >= 1. With noise scale phi, gain(s) = (phi + 1) / (phi / s + 1), and the efficiency is
    gain(s) / s (Pollux).
    """
    gain = (model.noise_scale + 1.0) / (model.noise_scale / batches + 1.0)
    return gain / batches


@lru_cache(maxsize=100_000)
def goodput(model: TrainingModel, gpu_type: str, gpus: int, nodes: int, own_gpus: int) -> float:
    """Return the useful samples per second of a job that requested `own_gpus` GPUs and has `gpus`.

    With fewer GPUs than requested, it accumulates gradients to its own batch; with more, its batch grows with them.
    """
    return throughput(model, gpu_type, gpus, nodes) * efficiency(model, max(1.0, gpus / own_gpus))
