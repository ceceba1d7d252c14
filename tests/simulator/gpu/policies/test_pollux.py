"""Pollux's rules, on clusters small enough to know the answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simulator.gpu.policies.pollux import Pollux
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.registry import check
from simulator.gpu.round_policy import NOBODY, GpuJob, GpuMachine, Placed, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.models import MODELS
from tests.simulator.gpu.test_training import read
from traces.errors import InputError

QUICK = partial(Pollux, generations=30)


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return read(tmp_path)


def nodes(*gpus: int) -> GpuMachine:
    return GpuMachine(np.array(gpus), ["T4"] * len(gpus), "T4")


class Noted:
    """A policy whose decisions are kept."""

    guests: Mapping[int, int] = NOBODY
    pause_s: float | None = None

    def __init__(self, policy: Pollux) -> None:
        self.policy, self.round_s, self.decisions = policy, policy.round_s, list[dict[int, Placed]]()

    def decide(self, view: View) -> dict[int, Placed]:
        self.decisions.append(self.policy.decide(view))
        return self.decisions[-1]


def decisions(policy: Pollux, machine: GpuMachine, *jobs: GpuJob) -> list[dict[int, Placed]]:
    noted = Noted(policy)
    simulate_rounds(list(jobs), machine, noted)
    return noted.decisions


def learning(number: int, profile: Profile, submit_s: float = 0.0, work: float = 2000.0) -> GpuJob:
    return GpuJob(number, submit_s, 1, 3600.0, model=profile, elastic=True, work=work)


def test_a_new_job_has_one_gpu_and_at_most_twice_the_most_that_it_ran_on(profile: Profile) -> None:
    sizes = [sum(one[0].values()) for one in decisions(QUICK(), nodes(2, 2), learning(0, profile)) if 0 in one]
    most = 1
    assert sizes[0] == 1 and max(sizes) > 1
    for before, after in pairwise(sizes):
        assert after <= 2 * max(most, before)
        most = max(most, after)


def test_a_job_keeps_its_bounds(profile: Profile) -> None:
    job = learning(0, profile)
    job.least, job.most = 2, 3
    sizes = {sum(placed.values()) for one in decisions(QUICK(), nodes(4), job) for placed in one.values()}
    assert sizes <= {2, 3} and sizes


@pytest.mark.parametrize("objectives", [1, 2])
def test_jobs_share_the_cluster_and_all_run(profile: Profile, objectives: int) -> None:
    jobs = [learning(number, profile, work=400.0) for number in range(4)]
    first = decisions(QUICK(objectives=objectives), nodes(2, 2), *jobs)[1]
    assert {number: sum(placed.values()) for number, placed in first.items()} == dict.fromkeys(range(4), 1)


def test_no_two_jobs_on_several_nodes_share_a_node() -> None:
    jobs = [GpuJob(number, 0.0, 3, 600.0, elastic=True, least=3, most=3) for number in range(2)]
    together = Pollux(avoid=False).decide(View(0.0, nodes(2, 2, 2), jobs))
    assert [sum(together[number].values()) for number in range(2)] == [3, 3]
    assert len(Pollux().decide(View(0.0, nodes(2, 2, 2), jobs))) == 1


def test_a_job_that_was_moved_often_stays() -> None:
    def moved(restarts: int) -> bool:
        job = GpuJob(0, 0.0, 1, 9000.0, model=MODELS["bert"], elastic=True, placed={0: 1}, restarts=restarts)
        policy = Pollux()
        policy._most_given = {0: 4}
        return policy.decide(View(3600.0, nodes(4), [job])) != {0: {0: 1}}

    assert moved(0) and not moved(3600 // int(MODELS["bert"].restart_s))


def test_rigid_jobs_run_in_order_of_arrival_and_elastic_ones_share_the_rest(profile: Profile) -> None:
    jobs = [
        learning(0, profile, work=2_000.0),
        GpuJob(1, 0.0, 3, 300.0),
        GpuJob(2, 30.0, 4, 100.0),
        GpuJob(3, 30.0, 1, 100.0),
    ]
    noted = Noted(QUICK())
    result = simulate_rounds(jobs, nodes(2, 2), noted)
    assert list(result.start_s) == [0.0, 0.0, 300.0, 60.0] and not result.preemptions[1:].any()
    assert sum(noted.decisions[0][0].values()) == 1 and 0 not in noted.decisions[1]
    assert not result.restarts[1:].any() and result.preemptions[0] == 2


def test_a_known_job_grows_where_its_model_gains() -> None:
    job = GpuJob(0, 0.0, 2, 50_000.0, model=MODELS["resnet18-cifar10"], elastic=True)
    sizes = [sum(one[0].values()) for one in decisions(QUICK(round_s=1800.0), nodes(4, 4), job)]
    assert sizes[:3] == [1, 2, 4] and min(sizes[3:]) >= 4


def test_without_elastic_jobs_it_decides_only_at_events() -> None:
    assert len(decisions(Pollux(), nodes(1), GpuJob(0, 0.0, 1, 6000.0))) == 100
    assert simulate_rounds([GpuJob(0, 0.0, 1, 6000.0)], nodes(1), Pollux()).decisions == 1


def test_bad_settings_are_refused() -> None:
    bad = {"round_s": 0.0, "objectives": 3.0, "avoid": 2.0, "generations": 0.0, "first_start": 2.0}
    for key, value in bad.items():
        with pytest.raises(InputError, match=f"pollux(: |.){key} of {value:g}: it must be"):
            check("pollux", {key: value})
