"""Themis equals its plain twin, job by job."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.run import simulate
from simulator.gpu.twin import themis


@pytest.mark.parametrize("filter_share", [0.8, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_equal_to_the_plain_twin(seed: int, filter_share: float) -> None:
    rng = np.random.default_rng(seed)
    cluster = of_nodes(rng.choice([2, 4, 8], size=rng.integers(1, 4)))
    submit = np.sort(rng.integers(0, 9000, 24)).astype(float)
    submit[18:] += 200_000.0  # the cluster is empty in between
    gpus = np.minimum(rng.choice([1, 1, 2, 3, 4, 8], 24), cluster.gpus)
    jobs = of_arrays(submit, gpus, rng.integers(60, 6000, 24).astype(float))
    told = {"round_s": 360.0, "lease_s": 1200.0, "filter_share": filter_share, "seed": seed}
    result = simulate(cluster, jobs, "themis", told).result
    plain = themis.simulate(cluster, jobs, round_s=360.0, lease_s=1200.0, filter_share=filter_share, seed=seed)
    assert sum(row[2] for row in plain) > 0
    np.testing.assert_allclose(result.start_s, [row[0] for row in plain], atol=1e-6)
    np.testing.assert_allclose(result.end_s, [row[1] for row in plain], atol=1e-6)
    assert result.preemptions.tolist() == [row[2] for row in plain]
