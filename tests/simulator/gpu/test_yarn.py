"""YARN's queues on mixed GPU types: lent GPUs are taken back at once, and no job is stopped without need."""

from __future__ import annotations

from types import FunctionType

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import simulator.gpu.kernel
from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.events.placing import find
from simulator.gpu.events.recorded_machine import unlimited
from simulator.gpu.events.state import (
    BEGUN,
    GPUS,
    GROUP,
    ON_TYPE,
    PENDING,
    PREEMPTIONS,
    RUNNING,
    STATUS,
    SUBMIT,
    GpuState,
    build,
)
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.policies.yarn.capacity import SCHEDULER
from simulator.gpu.run import fits, quota, simulate
from simulator.gpu.yarn_queues import flat_queues
from tests.simulator.gpu.models import drawn_jobs
from traces.arrays import Float64s, Int64s

HOLD_S = 300.0


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("types", [("T4", "A100"), ("A100", "T4")])
def test_a_gang_gets_the_gpus_of_one_type_back_at_once(types: tuple[str, str], gpus: int) -> None:
    lent = 8 // gpus
    submit, run = np.append(np.arange(lent), 2000.0), np.append(np.full(lent, 100_000.0), 500.0)
    jobs = of_arrays(submit, np.append(np.full(lent, gpus), 4), run, np.append(np.zeros(lent), 1), ("all", "late"))
    result = simulate(of_nodes(np.array([4, 4]), types, "T4"), jobs, "yarn", quotas={"all": 4, "late": 4}).result
    assert result.start_s[-1] == 2000.0
    assert result.preemptions.tolist() == [1] * (lent // 2) + [0] * (lent // 2) + [0]  # those on the preferred type
    assert result.stranded_gpu_s == 0.0


def test_the_youngest_are_stopped_and_no_more_than_needed() -> None:
    # All hold 7 GPUs of one node and may lose 3. The claimant of 2 needs one more than is free: the youngest single.
    submit, gpus = np.array([0.0, 1.0, 2.0, 3.0, 50.0]), np.array([4, 1, 1, 1, 2])
    jobs = of_arrays(submit, gpus, np.full(5, 9000.0), np.array([0, 0, 0, 0, 1]), ("all", "late"))
    result = simulate(of_nodes(np.array([8])), jobs, "yarn", {"reclaim_at": 0.5}, {"all": 4, "late": 4}).result
    assert result.preemptions.tolist() == [0, 0, 0, 1, 0] and result.start_s[-1] == 50.0


def test_a_large_job_is_stopped_where_small_ones_free_too_little() -> None:
    # The group may lose 3 GPUs. Stopping the youngest, of 1 GPU, would leave too little for the job of 3.
    submit, gpus = np.array([0.0, 1.0, 2.0, 50.0]), np.array([4, 3, 1, 3])
    jobs = of_arrays(submit, gpus, np.full(4, 9000.0), np.array([0, 0, 0, 1]), ("all", "late"))
    result = simulate(of_nodes(np.array([8])), jobs, "yarn", quotas={"all": 5, "late": 3}).result
    assert result.preemptions.tolist() == [0, 1, 0, 0] and result.start_s[-1] == 50.0


def test_nobody_is_stopped_for_a_gang_that_finds_no_place() -> None:
    # 2 GPUs are lent, on A100 or T4, and 2 are free, on V100: no type can hold the gang, so it waits for two ends.
    submit, gpus, run = np.arange(6.0), np.array([2, 2, 2, 2, 2, 4]), np.array([900.0, 900.0, 5e3, 5e3, 5e3, 60.0])
    jobs = of_arrays(submit, gpus, run, np.array([0, 1, 0, 1, 1, 2]), ("lends", "full", "late"))
    cluster = of_nodes(np.array([4, 4, 4]), ("A100", "T4", "V100"), "T4")
    declared = {"lends": 2, "full": 6, "late": 4}
    result = simulate(cluster, jobs, "yarn", {"reclaim_at": 0.5}, declared).result
    assert not result.preemptions.any() and result.start_s[-1] == 901.0


@st.composite
def _mixed(draw: st.DrawFn) -> tuple[GpuCluster, GpuJobs, float]:
    node = st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from(["T4", "A100", "V100"]))
    nodes = draw(st.lists(node, min_size=2, max_size=6))
    cluster = of_nodes(np.array([gpus for gpus, _ in nodes]), tuple(kind for _, kind in nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(5, 40))
    jobs = of_arrays(
        np.sort(rng.integers(0, 1500, count)).astype(float),
        rng.choice([1, 1, 2, 3, 4, 8, 12], count),
        rng.integers(1, 4000, count).astype(float),
        rng.integers(0, 3, count),
        ("a", "b", "c"),
    )
    jobs = jobs.take(fits(cluster, jobs))
    return (
        cluster,
        drawn_jobs(jobs) if draw(st.booleans()) and len(jobs) else jobs,
        draw(st.sampled_from([0.0, HOLD_S])),
    )


@settings(max_examples=150, deadline=None)
@given(_mixed())
def test_no_gang_waits_for_free_gpus_and_nobody_is_stopped_in_vain(case: tuple[GpuCluster, GpuJobs, float]) -> None:
    cluster, jobs, hold_s = case
    if not len(jobs):
        return
    own = quota(cluster, jobs, {"a": cluster.gpus // 2, "b": cluster.gpus // 4})[0]
    queues = flat_queues(cluster.gpus, jobs, own)
    state = build(cluster, jobs, np.array(SCHEDULER.knobs({"hold_s": hold_s})), queues=queues)

    def decide(now_state: GpuState, now: float) -> None:
        before = now_state.whole[STATUS].copy(), now_state.whole[PREEMPTIONS].copy(), now_state.whole[ON_TYPE].copy()
        SCHEDULER.decide(now_state, now)
        _assert_fair(now_state, now, hold_s, own, *before)

    clock = FunctionType(simulator.gpu.kernel._run.__code__, {**vars(simulator.gpu.kernel), "_decide": decide})
    assert clock(state, unlimited(len(jobs)))[1] == -1
    assert (state.real[BEGUN] >= 0.0).all()


def _assert_fair(
    state: GpuState,
    now: float,
    hold_s: float,
    quotas: Float64s,
    status: Int64s,
    preemptions: Int64s,
    on_type: Int64s,
) -> None:
    """Assert that each stop let a job within its quota start, and that no job waits which could start."""
    every = range(len(state.need))
    started = [job for job in every if status[job] == PENDING and state.whole[STATUS, job] == RUNNING]
    for job in every:
        stops = state.whole[PREEMPTIONS, job] - preemptions[job]
        group = state.whole[GROUP, job]
        assert stops in (0, 1)
        if stops:
            assert status[job] == RUNNING
            assert state.used[group, 0] >= quotas[group]
            assert any(state.whole[ON_TYPE, one] == on_type[job] and _is_within(state, one, quotas) for one in started)
        if state.whole[STATUS, job] == PENDING:
            is_local = bool(now - state.real[SUBMIT, job] < hold_s)
            assert not any(find(state, job, kind, is_local) for kind in range(state.of_type.shape[1]))


def _is_within(state: GpuState, job: int, quotas: Float64s) -> bool:
    """Whether the job's group was within its quota when it started, if later ones of the group are not counted."""
    group = state.whole[GROUP, job]
    return bool(state.whole[GPUS, job] <= quotas[group])
