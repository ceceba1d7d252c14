"""Half a day of the real Philly trace on a tenth of its nodes: jobs without limits run to their ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.bench_gpu_rounds import machine, philly
from simulator.gpu.policies.gandiva import Gandiva
from simulator.gpu.policies.guided import Guided
from simulator.gpu.policies.lyra import Lyra
from simulator.gpu.policies.sia import Sia
from simulator.gpu.policies.themis import Themis
from simulator.gpu.round_policy import RoundPolicy
from simulator.gpu.rounds import simulate_rounds


@pytest.mark.parametrize(
    "policy",
    [Sia(), Themis(), Lyra(), Gandiva(round_s=600.0), Guided(round_s=300.0, defragment=True)],
    ids=["sia", "themis", "lyra", "gandiva", "guided"],
)
def test_half_a_day_of_philly(shared_traces: Path, policy: RoundPolicy) -> None:
    cluster = machine(0.1)
    jobs = [job for job in philly(shared_traces / "philly" / "philly.csv", 1) if job.submit_s < 43_200.0]
    jobs = [job for job in jobs if job.gpus <= 64 and job.run_s < 86_400.0]
    assert len(jobs) > 500 and len({job.group for job in jobs}) > 5
    result = simulate_rounds(jobs, cluster, policy)
    submit_s = np.array([job.submit_s for job in jobs])
    assert (result.end_s > submit_s).all() and not np.array([job.left_s for job in jobs]).any()
    asked = np.array([job.gpus * job.run_s for job in jobs]).sum()
    assert 0.3 < (result.gpu_s.sum() - result.lost_gpu_s.sum()) / asked < 3.0
