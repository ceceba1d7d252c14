"""Models x GPU types x placements: published measurements and our stated assumptions.

Measured values and their sources:

- Step times of four models on 1, 4, 4 x 1 and 4 x 4 T4 GPUs (nodes x GPUs a node): github.com/petuum/adaptdl,
  `simulator/traces/MODEL/placements.csv`, commit de25dcc, the simulator's data of Pollux (Qiao et al., OSDI 2021);
  rows of the batch in `batch_per_gpu`. Sia (Jayaram Subramanya et al., SOSP 2023) simulates with these models.
- Seconds of the backward pass of ResNet-50 at batch 64 on five GPU types: github.com/mengwanguc/gpemu,
  `profiled_data/time/compute/backward/TYPE/resnet50/time_by_batch_size.csv`, commit b787ef2 (GPEmu, Wang et al.,
  PVLDB).
- Restart times, s: the configuration of the simulator that Sia's authors released.

Stated values are our assumptions: `type_exponent`, how much a model gains from a faster GPU type; `noise_scale`, how
soon a larger batch stops helping; `busy_share`, the share of a GPU that one job keeps busy, which determines the loss
of two jobs on one GPU; and the speed of a T4 relative to the types that GPEmu measured.
"""

from __future__ import annotations

from typing import NamedTuple


class TrainingModel(NamedTuple):
    """The training profile of one model. Times are seconds on one T4 unless noted."""

    batch_per_gpu: int  # samples
    step_s: float  # time of a step on one GPU
    local_loss: float  # step time on 4 GPUs of one node over `step_s`, minus one
    spread_loss: float  # the same on 4 nodes with one GPU each
    wide_loss: float  # the same on 4 nodes with 4 GPUs each
    restart_s: float  # time of a checkpoint and a start from it
    type_exponent: float  # stated: the speed of a GPU type for this model is its speed for ResNet-50 to this power
    noise_scale: float  # stated: Pollux's ratio of gradient variance to squared gradient at the job's own batch
    busy_share: float  # stated: share of a GPU that one job keeps busy, in (0, 1]


MODELS: dict[str, TrainingModel] = {
    "resnet18-cifar10": TrainingModel(129, 0.10385, 0.0642, 0.4582, 0.4885, 30.0, 0.8, 1.0, 0.45),
    "bert": TrainingModel(12, 0.92152, 0.0386, 0.5958, 1.0490, 120.0, 1.2, 4.0, 0.90),
    "yolov3": TrainingModel(8, 0.32615, 0.5359, 1.4015, 2.6421, 45.0, 0.9, 2.0, 0.70),
    "resnet50-imagenet": TrainingModel(200, 0.92353, 0.0882, 0.0659, 0.1329, 250.0, 1.0, 8.0, 0.95),
}

# Backward pass of ResNet-50 at batch 64, seconds. GPEmu did not measure a T4: 0.22 is stated.
BACKWARD_S: dict[str, float] = {
    "K80": 0.84322,
    "P100": 0.21205,
    "T4": 0.22,
    "RTX6000": 0.16445,
    "V100": 0.14512,
    "A100": 0.05842,
}

# Share of each model among jobs that name none: stated, equal shares.
MIX: dict[str, float] = {name: 1.0 / len(MODELS) for name in MODELS}
