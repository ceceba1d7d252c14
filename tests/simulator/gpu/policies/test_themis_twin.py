"""Themis equals its plain twin, decision by decision."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.policies.themis import Themis
from tests.simulator.gpu.twins import assert_equal
from tests.twins.gpu import themis


@pytest.mark.parametrize("filter_share", [0.8, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_equal_to_the_plain_twin(seed: int, filter_share: float) -> None:
    rng = np.random.default_rng(seed)
    cluster = of_nodes(rng.choice([2, 4, 8], size=rng.integers(1, 4)))
    submit = np.sort(rng.integers(0, 9000, 24)).astype(float)
    submit[18:] += 200_000.0  # the cluster is empty in between
    gpus = np.minimum(rng.choice([1, 1, 2, 3, 4, 8], 24), cluster.gpus)
    jobs = of_arrays(submit, gpus, rng.integers(60, 6000, 24).astype(float))
    found = (360.0, 1200.0, filter_share, seed)
    run = assert_equal(cluster.machine(), jobs.objects(), Themis(*found), themis.PlainThemis(cluster, *found))
    assert sum(job.preemptions for job in run.jobs) > 0
