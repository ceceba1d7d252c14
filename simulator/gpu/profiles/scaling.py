"""Throughput and goodput of a model on any allocation: GPU type, number, spread over nodes, and packing.

Throughput follows from the measured steps of a profile (`StepTimes.at`). Goodput (Pollux, Qiao et al., OSDI 2021) is
throughput times the statistical efficiency of the batch.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simulator.gpu.profiles.performance import gain
from simulator.gpu.profiles.profile import Profile

SKEWED = 0.2  # loss of speed on one GPU a node, against one node, from which a gang insists on few nodes


def throughput(profile: Profile, gpu_type: str, gpus: int, nodes: int) -> float:
    """Return the samples per second at the profile's batch per GPU. `gpus` >= 1, 1 <= `nodes` <= `gpus`.

    A type on which the model was not measured counts as its first measured type.
    """
    step_s, _ = profile.steps[profile.nearest_type(gpu_type)].at(nodes, gpus, profile.local_batch)
    return gpus * profile.local_batch / step_s


def loses_when_spread(profile: Profile, gpu_type: str) -> bool:
    """Whether 4 GPUs on 4 nodes need over SKEWED more time for a step than on one node (Tiresias' skew, measured)."""
    return throughput(profile, gpu_type, 4, 1) > (1.0 + SKEWED) * throughput(profile, gpu_type, 4, 4)


def packed_share(profile: Profile, other: Profile, gpu_type: str, gpus: int) -> float:
    """Return the share, in [0, 1], of its speed that a job keeps when one of the model `other` shares its GPUs.

    0 for a pair without a measurement on that type and number of GPUs: such jobs are not packed.
    """
    packed_s = profile.packed.get((gpu_type, other.model, gpus))
    if packed_s is None or gpu_type not in profile.steps:
        return 0.0
    alone_s, _ = profile.steps[gpu_type].at(1, gpus, profile.local_batch)
    return min(1.0, alone_s / packed_s)


def efficiency(profile: Profile, batches: float) -> float:
    """Return the progress per sample at `batches` times the job's batch, relative to its own batch.

    It is in (0, 1] for `batches` >= 1. It is gain(s) / s at s times the batch; the noise scale is the variance over the
    square of the gradient (Pollux, section 2.2). Without a noise scale a larger batch brings nothing: 1 / `batches`.
    """
    if profile.noise_scale is None:
        return 1.0 / batches
    return float(gain((1.0, profile.noise_scale), np.array(batches))) / batches


@lru_cache(maxsize=100_000)
def goodput(profile: Profile, gpu_type: str, gpus: int, nodes: int, own_gpus: int) -> float:
    """Return the useful samples per second of a job that requested `own_gpus` GPUs and has `gpus`.

    With fewer GPUs than requested, it accumulates gradients to its own batch; with more, its batch grows with them.
    """
    return throughput(profile, gpu_type, gpus, nodes) * efficiency(profile, max(1.0, gpus / own_gpus))
