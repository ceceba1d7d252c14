"""Generated jobs for tests of schedulers: few, mostly small, at a stated load."""

from __future__ import annotations

import numpy as np

from simulator.gpu.profiles import draw
from simulator.gpu.round_policy import GpuJob, GpuMachine
from tests.simulator.gpu.models import MIX, MODELS

ALIKE = GpuMachine(np.full(6, 8), ["T4"] * 6, "T4")
MIXED = GpuMachine(np.array([8, 8, 8, 4, 4, 2, 2]), ["T4"] * 3 + ["A100"] * 2 + ["V100"] * 2, "T4")


def generated(n: int, seed: int = 0, load: float = 1.1, gpus: int = 48, elastic: float = 0.3) -> list[GpuJob]:
    """`n` jobs in order of arrival, of which `load` times what `gpus` GPUs can do come in their time."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4, 8, 16], p=[0.5, 0.15, 0.15, 0.12, 0.08], size=n)
    run_s = np.maximum(60.0, rng.lognormal(7.5, 1.2, n)).round()
    submit_s = np.sort(rng.uniform(0.0, (sizes * run_s).sum() / gpus / load, n)).round()
    names = draw.models(np.arange(n), seed, MIX)
    grows = draw.elastic(np.arange(n), sizes, elastic, seed)
    return [
        GpuJob(i, float(submit_s[i]), int(sizes[i]), float(run_s[i]), f"vc{i % 3}", MODELS[names[i]], bool(grows[i]))
        for i in range(n)
    ]
