"""Themis equals its plain twin, decision by decision, also where jobs value the place and share an app."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.policies.themis import Themis
from simulator.gpu.round_policy import GpuJob, GpuMachine
from tests.simulator.gpu.twins import assert_equal, instance
from tests.twins.gpu import themis


@pytest.mark.parametrize("filter_share", [0.8, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_equal_to_the_plain_twin_without_profiles(seed: int, filter_share: float) -> None:
    rng = np.random.default_rng(seed)
    gpus = rng.choice([2, 4, 8], size=rng.integers(1, 4))
    machine = GpuMachine(gpus, ["T4"] * len(gpus), "T4")
    submit = np.sort(rng.integers(0, 9000, 24)).astype(float)
    submit[18:] += 200_000.0  # the cluster is empty in between
    sizes, run_s = np.minimum(rng.choice([1, 1, 2, 3, 4, 8], 24), machine.total), rng.integers(60, 6000, 24)
    jobs = [GpuJob(n, float(submit[n]), int(sizes[n]), float(run_s[n])) for n in range(24)]
    found = (360.0, 1200.0, filter_share, seed)
    run = assert_equal(machine, jobs, Themis(*found), themis.PlainThemis(machine, *found))
    assert sum(job.preemptions for job in run.jobs) > 0


@pytest.mark.parametrize("has_apps", [False, True], ids=["jobs", "apps"])
def test_equal_to_the_plain_twin_with_profiles(has_apps: bool) -> None:
    moved = slowed = 0
    for seed in range(16):
        machine, jobs = instance(seed, 20, ("T4",) if seed % 2 else ("T4", "A100"), elastic=0.0)
        for job in jobs:
            job.app = job.number // 3 if has_apps and job.number % 4 else None
        found = (360.0, 1200.0, 0.6, seed)
        run = assert_equal(machine, jobs, Themis(*found), themis.PlainThemis(machine, *found))
        moved += sum(job.restarts for job in run.jobs)
        slowed += sum(len(placed) > 1 for one in run.decisions for placed in one.placed.values())
    assert moved > 50 and slowed > 50
