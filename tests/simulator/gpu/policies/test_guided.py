"""The guidelines against failures, and the instants at which `guided` decides."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.policies.guided import Guided
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.workloads import ALIKE, generated
from traces.errors import InputError


def nodes(*gpus: int) -> GpuMachine:
    return GpuMachine(np.array(gpus), ["T4"] * len(gpus), "T4")


def run(policy: Guided, machine: GpuMachine, *jobs: GpuJob) -> GpuResult:
    return simulate_rounds(list(jobs), machine, policy)


class EachRound(Guided):
    """The same scheduler, asked at every round."""

    settled = False


ALL = {"hold_s": 600.0, "small_share": 0.2, "defragment": True, "prerun_s": 300.0, "isolate": True, "pool_nodes": 1}


@pytest.mark.parametrize("settings", [{}, *({name: value} for name, value in ALL.items()), ALL], ids=str)
def test_deciding_at_events_alone_changes_nothing(settings: dict[str, float]) -> None:
    def jobs() -> list[GpuJob]:
        return generated(150, seed=3, elastic=0.0)

    often = simulate_rounds(jobs(), ALIKE, EachRound(interference=0.25, **settings))  # type: ignore[arg-type]
    seldom = simulate_rounds(jobs(), ALIKE, Guided(interference=0.25, **settings))  # type: ignore[arg-type]
    assert seldom.decisions < 0.8 * often.decisions
    for name in ("start_s", "restarts", "preemptions"):
        assert np.array_equal(getattr(seldom, name), getattr(often, name)), name
    for name in ("end_s", "ran_s", "gpu_s", "lost_gpu_s", "stranded_gpu_s"):
        np.testing.assert_allclose(getattr(seldom, name), getattr(often, name), err_msg=name)


def test_a_hopeless_failure_ends_a_job_only_under_its_rule() -> None:
    def jobs() -> list[GpuJob]:
        retried = GpuJob(0, 0.0, 4, 900.0, hopeless_s=300.0)
        return [retried, GpuJob(1, 0.0, 2, 600.0, hopeless_s=600.0), GpuJob(2, 0.0, 4, 60.0)]

    kept = run(Guided(), nodes(4), *jobs())
    assert kept.gpu_s.tolist() == [3600.0, 1200.0, 240.0] and kept.end_s.tolist() == [900.0, 1500.0, 1560.0]
    policy, given = Guided(no_retry=True), jobs()
    stopped = run(policy, nodes(4), *given)
    assert stopped.gpu_s.tolist() == [1200.0, 1200.0, 240.0] and stopped.end_s.tolist() == [300.0, 900.0, 960.0]
    assert policy.said() == ["guided: 1 job ended at a failure that no retry cures"]
    assert given[0].run_s == 900.0, "the trace is left alone"


def test_a_failing_gang_fails_on_one_gpu() -> None:
    def gang(run_s: float, fails_s: float | None) -> GpuResult:
        return run(Guided(prerun_s=300.0), nodes(4), GpuJob(0, 0.0, 4, run_s, fails_s=fails_s), GpuJob(1, 0.0, 1, 60.0,
                   fails_s=60.0))  # fmt: skip

    assert gang(200.0, 200.0).gpu_s[0] == 200.0  # it is not retried
    late = gang(2000.0, 600.0)  # the pre-run is too short: 75 of its seconds are done in it
    assert late.gpu_s[0] == pytest.approx(300.0 + 4 * (30.0 + 2000.0 - 75.0))
    retried = gang(1000.0, 180.0)  # 180 s on one GPU, which do 45 of the other 820 s
    assert retried.gpu_s[0] == pytest.approx(180.0 + 4 * (30.0 + 820.0 - 45.0)) and retried.restarts[0] == 1
    assert gang(200.0, None).gpu_s[0] > 4 * 100.0  # it does not fail, whatever its run time


def test_pre_runs_have_a_pool_of_their_own() -> None:
    machine = nodes(4, 4, 2)
    gangs = [GpuJob(n, 0.0, 4, 3600.0) for n in range(3)]
    policy = Guided(prerun_s=300.0, pool_nodes=1)
    small = GpuJob(3, 0.0, 1, 60.0)
    assert policy.decide(View(0.0, machine, [*gangs, small])) == {0: {2: 1}, 1: {2: 1}, 3: {0: 1}}
    assert policy.wake_s == 300.0
    filling = [GpuJob(n, 0.0, 1, 60.0) for n in range(4, 14)]
    taken = Guided(prerun_s=300.0, pool_nodes=1).decide(View(0.0, machine, filling))
    assert {node for given in taken.values() for node in given} == {0, 1} and len(taken) == 8
    without = Guided(prerun_s=300.0).decide(View(0.0, machine, [*gangs, small]))
    assert len(without) == 4
    assert Guided(pool_nodes=1).decide(View(0.0, machine, filling)).keys() == set(range(4, 14)), "no pre-run, no pool"


def test_a_gang_that_no_other_nodes_hold_uses_the_pool_and_the_nodes_for_small_jobs() -> None:
    for settings in ({"prerun_s": 120.0, "pool_nodes": 1}, {"small_share": 0.5}):
        wide = GpuJob(0, 0.0, 8, 600.0)
        assert run(Guided(**settings), nodes(4, 4), wide).end_s[0] > 0.0  # type: ignore[arg-type]


def test_a_job_in_its_pre_run_is_not_moved_as_if_it_held_all_its_gpus() -> None:
    def decided(held: Placed) -> dict[int, Placed]:
        policy = Guided(defragment=True, prerun_s=300.0)
        small = [GpuJob(n, 0.0, 2, 6000.0, placed=dict(held) if n == 0 else {1: 1}) for n in range(2)]
        policy.decide(View(0.0, nodes(4, 4), [GpuJob(n, 0.0, gpus, 60.0) for n, gpus in ((0, 2), (1, 2), (2, 4))]))
        return policy.decide(View(120.0, nodes(4, 4), [*small, GpuJob(2, 0.0, 4, 600.0)]))

    assert decided({0: 1}) == {0: {0: 1}, 1: {1: 1}, 2: {0: 3, 1: 1}}


@pytest.mark.parametrize("pool_nodes", [2, 3])
def test_a_pool_of_all_nodes_is_refused(pool_nodes: int) -> None:
    with pytest.raises(InputError, match=f"guided: pool_nodes of {pool_nodes} leaves no other node of 2 nodes"):
        run(Guided(prerun_s=60.0, pool_nodes=pool_nodes), nodes(4, 4), GpuJob(0, 0.0, 2, 60.0))
    with pytest.raises(InputError, match="guided: pool_nodes of -1: it must be at least 0"):
        Guided(pool_nodes=-1)
