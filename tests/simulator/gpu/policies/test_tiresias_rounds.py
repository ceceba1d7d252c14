"""Tiresias in rounds, on cases small enough to know the answer."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.policies.tiresias.rounds import TiresiasRounds, emptiest_first
from simulator.gpu.registry import check
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.workloads import ALIKE, generated
from traces.errors import InputError


def nodes(*gpus: int) -> GpuMachine:
    return GpuMachine(np.array(gpus), ["T4"] * len(gpus), "T4")


def run(policy: TiresiasRounds, machine: GpuMachine, *jobs: GpuJob) -> GpuResult:
    return simulate_rounds(list(jobs), machine, policy)


def test_a_job_at_the_threshold_yields_to_new_jobs() -> None:
    # Job 0 reaches 240 GPU s after 120 s. Job 1 runs 120-240. Job 0 pays 30 s and does its last 80 s.
    jobs = [GpuJob(0, 0.0, 2, 200.0), GpuJob(1, 30.0, 2, 100.0)]
    result = run(TiresiasRounds(threshold=240.0), nodes(2), *jobs)
    assert list(result.start_s) == [0.0, 120.0] and list(result.end_s) == [350.0, 220.0]
    assert list(result.preemptions) == [1, 0]


def test_jobs_keep_their_order_of_joining_in_the_second_queue() -> None:
    # Job 1 joins it after 60 s, job 0 after 120 s, so job 1 goes first although it came later.
    jobs = [GpuJob(0, 0.0, 1, 300.0), GpuJob(1, 0.0, 2, 300.0), GpuJob(2, 100.0, 1, 60.0)]
    result = run(TiresiasRounds(threshold=120.0, pause_s=0.0), nodes(3), *jobs)
    assert list(result.start_s) == [0.0, 0.0, 120.0] and list(result.end_s) == [360.0, 300.0, 180.0]
    assert list(result.preemptions) == [1, 0, 0]


def test_a_job_that_does_not_fit_lets_others_pass() -> None:
    jobs = [GpuJob(0, 0.0, 3, 100.0), GpuJob(1, 0.0, 2, 100.0), GpuJob(2, 0.0, 1, 100.0)]
    assert list(run(TiresiasRounds(), nodes(4), *jobs).start_s) == [0.0, 120.0, 0.0]


def test_gangs_go_on_the_emptiest_nodes_or_on_the_fewest() -> None:
    assert emptiest_first(np.array([2, 4, 3]), 6) == {1: 4, 2: 2}
    jobs = [GpuJob(0, 0.0, 1, 100.0), GpuJob(1, 0.0, 1, 100.0), GpuJob(2, 0.0, 2, 100.0)]
    view = View(0.0, nodes(2, 2), jobs)
    assert TiresiasRounds().decide(view) == {0: {0: 1}, 1: {1: 1}, 2: {0: 1, 1: 1}}
    assert TiresiasRounds(spread=False).decide(view) == {0: {0: 1}, 1: {0: 1}, 2: {1: 2}}


def test_starts_are_charged() -> None:
    for settings, end_s in (
        ({}, 100.0),
        ({"first_start": True}, 130.0),
        ({"first_start": True, "pause_s": 7.0}, 107.0),
    ):
        assert run(TiresiasRounds(**settings), nodes(1), GpuJob(0, 0.0, 1, 100.0)).end_s[0] == end_s


class Restless(TiresiasRounds):
    """Tiresias that decides at every tick."""

    settled = False


def test_it_decides_no_later_than_a_decision_changes() -> None:
    settled, restless = (
        run(policy(threshold=20_000.0), ALIKE, *generated(120)) for policy in (TiresiasRounds, Restless)
    )
    assert settled.decisions < restless.decisions / 3 and settled.preemptions.any()
    for figure in ("start_s", "end_s", "gpu_s", "restarts", "preemptions"):
        np.testing.assert_allclose(getattr(settled, figure), getattr(restless, figure))


def test_bad_settings_are_refused() -> None:
    for key, value in (("spread", 2.0), ("first_start", 3.0), ("round_s", 0.0), ("threshold", -1.0)):
        with pytest.raises(InputError, match=f"tiresias-rounds.*{key}"):
            check("tiresias-rounds", {key: value})
