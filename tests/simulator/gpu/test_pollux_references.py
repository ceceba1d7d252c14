"""The jobs of Pollux's authors under Tiresias, beside the results that they published.

The results are in `../shared/references/gpu`, whose README states their settings. Workload 1 has gangs on many nodes;
there, 81 % of the jobs end at the same second.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.gpu.policies.tiresias.rounds import TiresiasRounds
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.rounds import RoundPolicy, simulate_rounds
from tests.simulator.gpu import pollux_files
from traces.arrays import Float64s


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    folder: Path = tmp_path_factory.mktemp("pollux")
    return pollux_files.profiles(folder)


def completion_times(
    policy: RoundPolicy, name: str, workload: int, known: dict[str, Profile]
) -> tuple[Float64s, Float64s]:
    """Return our completion times and the authors', (jobs,), s."""
    jobs = pollux_files.jobs(name, workload, known)
    result = simulate_rounds(jobs, pollux_files.MACHINE, policy)
    theirs = np.array([float(row["jct_s"]) for row in pollux_files.published(name, workload)])
    return result.end_s - np.array([job.submit_s for job in jobs]), theirs


def tiresias() -> TiresiasRounds:
    return TiresiasRounds(first_start=1, whole_seconds=1)


@pytest.mark.parametrize("workload", [2, 6, 7])
def test_every_job_ends_as_under_tiresias_in_pollux_simulator(workload: int, known: dict[str, Profile]) -> None:
    own, theirs = completion_times(tiresias(), "tiresias", workload, known)
    assert len(own) == 160 and np.array_equal(own, theirs)


def test_gangs_on_many_nodes_are_nearly_as_fast(known: dict[str, Profile]) -> None:
    own, theirs = completion_times(tiresias(), "tiresias", 1, known)
    assert own.mean() / theirs.mean() == pytest.approx(1.0, abs=0.001) and np.mean(own == theirs) > 0.8
