"""Four published models for tests, with packed pairs of ours: two jobs share what they keep busy of a GPU."""

from __future__ import annotations

from dataclasses import replace

from simulator.gpu.jobs import GpuJobs
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.table import published

BUSY = {"resnet18-cifar10": 0.45, "bert": 0.90, "yolov3": 0.70, "resnet50-imagenet": 0.95}  # share of a GPU
MIX = dict.fromkeys(BUSY, 0.25)


def _with_pairs(profile: Profile) -> Profile:
    packed = {}
    for kind, steps in profile.steps.items():
        for gpus in range(1, 17):
            alone_s, _ = steps.at(1, gpus, profile.local_batch)
            for other, busy in BUSY.items():
                packed[kind, other, gpus] = alone_s * max(1.0, BUSY[profile.model] + busy)
    return replace(profile, packed=packed)


MODELS = {name: _with_pairs(published()[name]) for name in BUSY}


def drawn_jobs(jobs: GpuJobs, seed: int = 0, mix: dict[str, float] | None = None, elastic: float = 0.2) -> GpuJobs:
    return replace(jobs, profiles=tuple(MODELS.values())).drawn(seed, mix or MIX, elastic)
