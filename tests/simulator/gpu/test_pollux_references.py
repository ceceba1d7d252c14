"""The jobs of Pollux's authors under Pollux and Tiresias, beside the results that they published.

The results are in `../shared/references/gpu`, whose README states their settings. Tiresias has no randomness. Workload
1 has gangs on many nodes; there, 81 % of the jobs end at the same second. Pollux searches at random. Here it runs the
first jobs of a workload. Those that ended before the next job came are compared, because later jobs cannot change them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.gpu.policies.pollux import Pollux
from simulator.gpu.policies.tiresias.rounds import TiresiasRounds
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.round_policy import RoundPolicy
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu import pollux_files
from traces.arrays import Float64s


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    folder: Path = tmp_path_factory.mktemp("pollux")
    return pollux_files.profiles(folder)


def completion_times(
    policy: RoundPolicy, name: str, workload: int, known: dict[str, Profile], first: int = 160
) -> tuple[Float64s, Float64s]:
    """Return our completion times and the authors', (jobs,), s.

    With fewer than all jobs, they are those of the `first` jobs that the authors' program ended before the next came.
    """
    every = pollux_files.jobs(name, workload, known)
    theirs = np.array([float(row["jct_s"]) for row in pollux_files.published(name, workload)])[:first]
    jobs = every[:first]
    submit_s = np.array([job.submit_s for job in jobs])
    own = simulate_rounds(jobs, pollux_files.MACHINE, policy).end_s - submit_s
    is_alone = submit_s + theirs < (every[first].submit_s if first < len(every) else np.inf)
    return own[is_alone], theirs[is_alone]


def pollux() -> Pollux:
    return Pollux(objectives=2, first_start=True, whole_seconds=True)


def tiresias() -> TiresiasRounds:
    return TiresiasRounds(first_start=True, whole_seconds=True)


@pytest.mark.parametrize("workload", [2, 6, 7])
def test_every_job_ends_as_under_tiresias_in_pollux_simulator(workload: int, known: dict[str, Profile]) -> None:
    own, theirs = completion_times(tiresias(), "tiresias", workload, known)
    assert len(own) == 160 and np.array_equal(own, theirs)


def test_gangs_on_many_nodes_are_nearly_as_fast(known: dict[str, Profile]) -> None:
    own, theirs = completion_times(tiresias(), "tiresias", 1, known)
    assert own.mean() / theirs.mean() == pytest.approx(1.0, abs=0.001) and np.mean(own == theirs) > 0.8


def test_mean_completion_is_that_of_pollux_authors(known: dict[str, Profile]) -> None:
    own, theirs = completion_times(pollux(), "pollux", 6, known, first=30)
    assert len(own) == 26
    assert own.mean() / theirs.mean() == pytest.approx(1.0, abs=0.05)
    assert np.mean(np.abs(own / theirs - 1.0) < 0.1) > 0.75
