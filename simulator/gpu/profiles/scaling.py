"""Throughput of a model on any allocation: GPU type, number, spread over nodes, packing; and its goodput.

The laws are stated, and go through the measured points of `table`:

- On one node the loss of synchronising grows with the logarithm of the number of GPUs, through the measured 4.
- On several nodes it depends on how many GPUs each contributes, through the measured 1 and 4 a node. It does not grow
  with the number of nodes: the data holds 2, 3 and 4 nodes and shows no trend.
- The loss is a share of the step on the reference type. A faster GPU makes the calculation shorter and the
  synchronisation no shorter: a step is `1 / speed + loss` of a step on one T4.
- Two jobs on one GPU run unhindered as long as their busy shares add to at most one; beyond it each has its share.

Goodput (Pollux, Qiao et al., OSDI 2021) is throughput times the statistical efficiency of the batch.
"""

from __future__ import annotations

import math
from functools import lru_cache

from simulator.gpu.profiles.table import BACKWARD_S, MODELS, TrainingModel
from traces.errors import InputError

REFERENCE = "T4"


def model_of(name: str) -> TrainingModel:
    """Raises InputError for a model that has no profile, and lists those that have one."""
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}: known are {', '.join(MODELS)}")
    return MODELS[name]


def type_speed(model: TrainingModel, gpu_type: str) -> float:
    """How many times faster than on a T4 the model's calculation is on `gpu_type`. InputError for an unknown type."""
    if gpu_type not in BACKWARD_S:
        raise InputError(f"unknown GPU type {gpu_type!r}: known are {', '.join(BACKWARD_S)}")
    return float((BACKWARD_S[REFERENCE] / BACKWARD_S[gpu_type]) ** model.type_exponent)


def loss(model: TrainingModel, gpus: int, nodes: int) -> float:
    """What synchronising adds to a step, in steps of one T4; `gpus` in all, as even as can be on `nodes` nodes."""
    if gpus == 1:
        return 0.0
    if nodes == 1:
        return model.local_loss * math.log2(gpus) / 2.0
    a_node = math.log2(gpus / nodes)
    return model.spread_loss + (model.wide_loss - model.spread_loss) * a_node / 2.0


def throughput(model: TrainingModel, gpu_type: str, gpus: int, nodes: int) -> float:
    """Samples a second at the profiled batch a GPU. `gpus` >= 1, 1 <= `nodes` <= `gpus`."""
    step_s = model.step_s * (1.0 / type_speed(model, gpu_type) + loss(model, gpus, nodes))
    return gpus * model.batch_per_gpu / step_s


def packed_share(model: TrainingModel, others: list[TrainingModel]) -> float:
    """Share in (0, 1] of its own speed that a job keeps beside `others` on the same GPUs."""
    return min(1.0, 1.0 / (model.busy_share + sum(other.busy_share for other in others)))


def efficiency(model: TrainingModel, batches: float) -> float:
    """Progress a sample at `batches` times the job's own batch, over that at its own: in (0, 1] for `batches` >= 1.

    With noise scale phi, gain(s) = (phi + 1) / (phi / s + 1) and the efficiency is gain(s) / s: Pollux.
    """
    gain = (model.noise_scale + 1.0) / (model.noise_scale / batches + 1.0)
    return gain / batches


@lru_cache(maxsize=100_000)
def goodput(model: TrainingModel, gpu_type: str, gpus: int, nodes: int, own_gpus: int) -> float:
    """Useful samples a second of a job that was submitted for `own_gpus` GPUs and has `gpus`.

    With fewer GPUs than its own it accumulates gradients to its own batch; with more its batch grows with them.
    """
    return throughput(model, gpu_type, gpus, nodes) * efficiency(model, max(1.0, gpus / own_gpus))
