"""YARN's schedulers in a tree of queues: equal to the plain twin, within every limit, and capacity when claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import FunctionType
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import simulator.gpu.kernel
from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.events.placing import find
from simulator.gpu.events.queue_tree import (
    DEMAND,
    END_CHILDREN,
    ENTITLED,
    FIRST_CHILD,
    GUARANTEED,
    HELD,
    LEAST,
    MOST,
    NEAR,
    PARENT,
    USER_MOST,
    count_queues,
    is_below_most,
    is_within_user_limit,
)
from simulator.gpu.events.recorded_machine import unlimited
from simulator.gpu.events.state import BEGUN, GPUS, PENDING, QUEUE, RUNNING, STATUS, SUBMIT, USER, GpuState, build
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.registry import parameters, scheduler
from simulator.gpu.run import fits, simulate
from simulator.gpu.scheduler import EventScheduler
from simulator.gpu.yarn_queues import above_most, tree_queues
from tests.twins.gpu import clock as twin
from traces.errors import InputError
from traces.files.queue_tree import DeclaredQueue, queues_of

HOLD_S = 300.0
GROUPS = ("vision", "text", "web", "batch")
Shares = Mapping[str, Mapping[str, float]]
TREE: Shares = {
    "lab": {"capacity": 60, "most": 75, "least": 40},
    "lab.vision": {"capacity": 50, "user_limit": 25, "user_limit_factor": 2, "least": 30},
    "lab.text": {"capacity": 50, "user_limit_factor": -1},
    "shop": {"capacity": 40},
    "shop.web": {"capacity": 75, "most": 90, "user_limit": 50},
    "shop.default": {"capacity": 25, "user_limit_factor": 3},
}


def tree(shares: Shares = TREE) -> tuple[DeclaredQueue, ...]:
    """The declared queues."""
    return queues_of(shares, "here")


def _jobs(
    rows: list[tuple[float, int, float, str]], users: list[str] | None = None, groups: tuple[str, ...] = GROUPS
) -> GpuJobs:
    """Jobs of (submission, GPUs, run time, group), ordered by submission, and their users."""
    submit, gpus, run, group = zip(*rows, strict=True)
    jobs = of_arrays(
        np.array(submit), np.array(gpus), np.array(run), np.array([groups.index(one) for one in group]), groups
    )
    if users is None:
        return jobs
    names = tuple(sorted(set(users)))
    return replace(jobs, users=names, user=np.array([names.index(one) for one in users], dtype=np.int64))


def _starts(jobs: GpuJobs, name: str = "yarn", shares: Shares = TREE, **more: float) -> list[float]:
    given_knobs: Any = {"hold_s": 0.0, **more}
    result = simulate(of_nodes(np.array([8, 8])), jobs, name, given_knobs, queues=tree(shares)).result
    return [float(start) for start in result.start_s]


@st.composite
def _crowds(draw: st.DrawFn, types: bool = True) -> tuple[GpuCluster, GpuJobs, float, tuple[DeclaredQueue, ...]]:
    """A small cluster, jobs of several users that crowd it, `hold_s`, and a tree."""
    kinds = st.sampled_from(["T4", "A100", "V100"] if types else ["T4"])
    nodes = draw(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), kinds), min_size=2, max_size=5))
    cluster = of_nodes(np.array([gpus for gpus, _ in nodes]), tuple(kind for _, kind in nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(5, 30))
    jobs = replace(
        of_arrays(
            np.sort(rng.integers(0, 1500, count)).astype(float),
            rng.choice([1, 1, 2, 3, 4, 8], count),
            rng.integers(1, 4000, count).astype(float),
            rng.integers(0, 4, count),
            GROUPS,
        ),
        users=("ann", "bob", "eve"),
        user=rng.integers(0, 3, count),
    )
    share, most = draw(st.sampled_from([(20, 60), (20, 100), (50, 50), (50, 80), (70, 100)]))
    shares: Shares = {
        "lab": {"capacity": share, "most": most, "least": draw(st.integers(0, most))},
        "lab.vision": {
            "capacity": 50,
            "user_limit": draw(st.sampled_from([10, 50, 100])),
            "user_limit_factor": draw(st.sampled_from([-1, 0.5, 1, 2])),
            "least": draw(st.integers(0, 100)),
        },
        "lab.text": {"capacity": 50, "user_limit": draw(st.sampled_from([10, 100]))},
        "batch": {"capacity": 30, "user_limit_factor": -1} if draw(st.booleans()) else {"capacity": 30},
        "shop": {"capacity": 70 - share},
        "shop.web": {"capacity": 75, "most": draw(st.integers(75, 100)), "user_limit_factor": 2},
        "shop.default": {"capacity": 25, "user_limit_factor": -1, "user_limit": 30},
    }
    declared = tree(shares)
    jobs = jobs.take(fits(cluster, jobs))
    jobs = jobs.take(~above_most(cluster, jobs, declared)) if len(jobs) else jobs
    return cluster, jobs, draw(st.sampled_from([0.0, HOLD_S])), declared


@pytest.mark.parametrize("name", ["yarn", "yarn-fair"])
@settings(max_examples=40, deadline=None)
@given(case=_crowds(types=False), reclaim_at=st.sampled_from([0.0, 0.9]))
def test_a_tree_equals_the_plain_twin(
    name: str, case: tuple[GpuCluster, GpuJobs, float, tuple[DeclaredQueue, ...]], reclaim_at: float
) -> None:
    cluster, jobs, hold_s, declared = case
    if not len(jobs):
        return
    message: Any = {"hold_s": hold_s, "reclaim_at": reclaim_at}
    result = simulate(cluster, jobs, name, message, queues=declared).result
    plain = twin.simulate(cluster, jobs, name, parameters(name) | message, tree=declared)
    np.testing.assert_allclose(result.start_s, [row[0] for row in plain], atol=1e-3)
    np.testing.assert_allclose(result.end_s, [row[1] for row in plain], atol=1e-3)
    assert result.preemptions.tolist() == [row[2] for row in plain]


def _watched(
    name: str, case: tuple[GpuCluster, GpuJobs, float, tuple[DeclaredQueue, ...]], watch: Any, **knobs: float
) -> None:
    """Run the jobs; call `watch` with the state after each decision, its queues counted anew, and the state before."""
    cluster, jobs, hold_s, declared = case
    found = scheduler(name)
    assert isinstance(found, EventScheduler)
    queues = tree_queues(cluster.gpus, jobs, declared, with_users=name == "yarn")
    state = build(cluster, jobs, np.array(found.knobs({"hold_s": hold_s, **knobs})), queues=queues)

    def decide(now_state: GpuState, now: float) -> None:
        status = now_state.whole[STATUS].copy()
        found.decide(now_state, now)
        count_queues(now_state)
        watch(now_state, now, status)

    clock = FunctionType(simulator.gpu.kernel._run.__code__, {**vars(simulator.gpu.kernel), "_decide": decide})
    assert clock(state, unlimited(len(jobs)))[1] == -1
    assert (state.real[BEGUN] >= 0.0).all()


@pytest.mark.parametrize("name", ["yarn", "yarn-fair"])
@settings(max_examples=60, deadline=None)
@given(case=_crowds())
def test_no_gang_waits_for_free_gpus_and_no_limit_is_passed(
    name: str, case: tuple[GpuCluster, GpuJobs, float, tuple[DeclaredQueue, ...]]
) -> None:
    if len(case[1]):
        _watched(name, case, lambda state, now, status: _assert_within(state, now, case[2], status))


def _assert_within(state: GpuState, now: float, hold_s: float, status: Any) -> None:
    """Assert that queues add up and keep their most, that users keep theirs, and that no job waits that could start."""
    jobs, table = range(len(state.need)), state.table
    for queue in range(table.shape[1]):
        children = range(int(table[FIRST_CHILD, queue]), int(table[END_CHILDREN, queue]))
        own = [job for job in jobs if state.whole[QUEUE, job] == queue and state.whole[STATUS, job] == RUNNING]
        of_jobs = sum(int(state.whole[GPUS, job]) for job in own)
        assert table[HELD, queue] == sum(table[HELD, child] for child in children) + of_jobs
        assert table[HELD, queue] <= table[MOST, queue] + NEAR or table[PARENT, queue] < 0 < queue
        if len(children):
            assert sum(table[GUARANTEED, child] for child in children) == pytest.approx(table[GUARANTEED, queue])
        for user in {int(state.whole[USER, job]) for job in own} - {-1}:
            held = [int(state.whole[GPUS, job]) for job in own if state.whole[USER, job] == user]
            assert len(held) == 1 or sum(held) <= table[USER_MOST, queue] + NEAR
    assert sum(table[HELD, 0:1]) == state.used[:, 0].sum()
    for job in jobs:
        if state.whole[STATUS, job] == PENDING and is_below_most(state, job) and is_within_user_limit(state, job):
            is_local = bool(now - state.real[SUBMIT, job] < hold_s)
            assert not any(find(state, job, kind, is_local) for kind in range(state.of_type.shape[1]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(["yarn", "yarn-fair"]))
def test_what_a_queue_is_entitled_to_is_reached_at_once(seed: int, name: str) -> None:
    """Jobs of one GPU on one type: no queue waits that is entitled to more, with all those above it."""
    rng = np.random.default_rng(seed)
    rows = [
        (float(at), 1, float(run), GROUPS[group])
        for at, run, group in zip(
            np.sort(rng.integers(0, 900, 60)), rng.integers(1, 4000, 60), rng.integers(0, 4, 60), strict=True
        )
    ]
    shares = {
        "lab": {"capacity": 50},
        "lab.vision": {"capacity": 50, "user_limit_factor": -1},
        "lab.text": {"capacity": 50, "user_limit_factor": -1},
        "shop": {"capacity": 50},
        "shop.web": {"capacity": 75, "user_limit_factor": -1},
        "shop.default": {"capacity": 25, "user_limit_factor": -1},
    }
    case = of_nodes(np.array([8, 8])), _jobs(rows), 0.0, tree(shares)

    def watch(state: GpuState, now: float, status: Any) -> None:
        table = state.table
        for job in range(len(state.need)):
            queue = int(state.whole[QUEUE, job])
            if state.whole[STATUS, job] != PENDING:
                continue
            path = []
            while queue > 0:
                path.append(queue)
                queue = int(table[PARENT, queue])
            assert any(table[HELD, one] + 1 > table[ENTITLED, one] + NEAR for one in path)
        if name == "yarn-fair" and table[HELD, 0] == 16:
            for queue in range(table.shape[1]):
                children = range(int(table[FIRST_CHILD, queue]), int(table[END_CHILDREN, queue]))
                busy = [child for child in children if table[DEMAND, child] > 0]
                if busy:
                    total = sum(table[ENTITLED, child] for child in busy)
                    assert total == pytest.approx(table[ENTITLED, queue], abs=1e-5)
                assert all(table[ENTITLED, child] >= table[LEAST, child] - NEAR for child in busy)

    _watched(name, case, watch, reclaim_at=0.0)


def test_the_queue_with_the_smallest_part_of_its_capacity_is_served_first() -> None:
    # 16 GPUs are in use until 100 s: text 2 of 4.8, web 7 of 4.8, vision 7 of 4.8. Then 7 are free.
    rows = [(0.0, 2, 900.0, "text"), (0.0, 7, 100.0, "web"), (0.0, 7, 900.0, "vision")]
    rows += [(1.0, 4, 50.0, "vision"), (2.0, 4, 50.0, "text"), (3.0, 3, 50.0, "web")]
    shares = {
        "lab": {"capacity": 60},
        "lab.vision": {"capacity": 50, "user_limit_factor": -1},
        "lab.text": {"capacity": 50, "user_limit_factor": -1},
        "web": {"capacity": 40, "user_limit_factor": -1},
    }
    # At 100 s web holds nothing: its 3 GPUs start; then lab holds 9 of 9.6 and text the smaller part of its half.
    assert _starts(_jobs(rows), shares=shares, reclaim_at=1.0)[3:] == [150.0, 100.0, 100.0]


def test_a_queue_takes_back_from_its_sibling_before_its_parent_is_entitled() -> None:
    # lab holds 12 of 9.6, all of it vision's; shop 4 of 6.4. text takes from vision, not from shop.
    rows = [(0.0, 4, 9e3, "web"), (1.0, 4, 9e3, "vision"), (2.0, 4, 9e3, "vision"), (3.0, 4, 9e3, "vision")]
    jobs = _jobs([*rows, (50.0, 4, 10.0, "text")])
    shares = {**TREE, "lab": {"capacity": 60}, "lab.vision": {"capacity": 50, "user_limit_factor": -1}}
    result = simulate(of_nodes(np.array([8, 8])), jobs, "yarn", queues=tree(shares)).result
    assert result.start_s[-1] == 50.0 and result.preemptions.tolist() == [0, 0, 0, 1, 0]


def test_a_parent_keeps_its_capacity_although_a_child_of_it_is_above_its_own() -> None:
    # vision holds 8 of 4.8, but lab only 8 of 9.6. web may not take 8 GPUs: they are lab's. batch holds 8 of 1.6.
    rows = [(0.0, 8, 9e3, "vision"), (1.0, 4, 9e3, "batch"), (2.0, 4, 9e3, "batch"), (50.0, 4, 10.0, "web")]
    shares = {**TREE, "lab.vision": {"capacity": 50, "user_limit_factor": -1}}
    result = simulate(of_nodes(np.array([8, 8])), _jobs(rows), "yarn", queues=tree(shares)).result
    assert result.start_s[-1] == 50.0 and result.preemptions.tolist() == [0, 0, 1, 0]


def test_a_parent_above_its_capacity_takes_nothing_from_another() -> None:
    # Nobody uses shop's 6.4 GPUs: lab holds 8 of 4.8 and batch 8 of 4.8. text is entitled to 2.4, but lab to no more.
    rows = [(0.0, 8, 9e3, "vision"), (1.0, 6, 9e3, "batch"), (2.0, 2, 9e3, "batch"), (50.0, 2, 10.0, "text")]
    free = {"user_limit_factor": -1}
    shares = {
        "lab": {"capacity": 30},
        "lab.vision": {"capacity": 50, **free},
        "lab.text": {"capacity": 50, **free},
        "batch": {"capacity": 30, **free},
        "shop": {"capacity": 40},
    }
    result = simulate(of_nodes(np.array([8, 8])), _jobs(rows), "yarn", queues=tree(shares)).result
    assert not result.preemptions.any() and result.start_s[-1] == 9000.0


def test_a_least_share_counts_before_weights() -> None:
    # By weight text gets 1.6 of 16 GPUs; its least share is 4: web and vision give back what is above theirs.
    rows = [(0.0, 8, 9e3, "web"), (1.0, 4, 9e3, "vision"), (2.0, 4, 9e3, "vision"), (50.0, 4, 10.0, "text")]
    shares = {"text": {"capacity": 10, "least": 25}, "web": {"capacity": 60}, "vision": {"capacity": 30}}
    cluster = of_nodes(np.array([8, 8]))
    result = simulate(cluster, _jobs(rows), "yarn-fair", {"hold_s": 0.0}, queues=tree(shares)).result
    assert result.start_s[-1] == 50.0 and result.preemptions.tolist() == [0, 0, 1, 0]


def test_most_capacity_holds_while_gpus_are_free() -> None:
    rows = [(0.0, 8, 100.0, "vision"), (1.0, 4, 100.0, "text"), (2.0, 1, 100.0, "text")]
    assert _starts(_jobs(rows)) == [0.0, 1.0, 100.0]  # lab may hold 12 of 16
    assert _starts(_jobs(rows), "yarn-fair") == [0.0, 1.0, 100.0]


def test_users_share_a_queue_while_others_wait() -> None:
    # vision is guaranteed 4.8 GPUs. With two users waiting each may hold half of it, or of what is in use if more.
    rows = [(0.0, 10, 60.0, "web"), *[(0.0, 2, 100.0, "vision")] * 3]
    starts = _starts(_jobs(rows, ["cat", "ann", "ann", "bob"]), shares={**TREE, "lab": {"capacity": 60}})
    assert starts == [0.0, 0.0, 0.0, 0.0]  # ann's second: bob is served by then, and has no job waiting
    factor = {**TREE, "lab.vision": {"capacity": 50, "user_limit_factor": 0.5}}
    assert _starts(_jobs(rows, ["cat", "ann", "ann", "bob"]), shares=factor) == [0.0, 0.0, 100.0, 0.0]
    none = _jobs(rows)
    assert _starts(none, shares=factor) == [0.0, 0.0, 0.0, 0.0]
    said = simulate(of_nodes(np.array([8, 8])), none, "yarn", queues=tree(factor)).said
    assert said == ["yarn: limits of users do not count: the trace names no users"]


def test_fair_shares_go_to_queues_with_jobs() -> None:
    # Without declared queues two of four groups have jobs: 8 GPUs each. The third makes it a third each.
    rows = [(0.0, 8, 9e3, "vision"), (1.0, 4, 9e3, "vision"), (2.0, 4, 9e3, "vision"), (50.0, 8, 100.0, "text")]
    cluster = of_nodes(np.array([8, 8]))
    result = simulate(cluster, _jobs(rows), "yarn-fair", {"hold_s": 0.0}).result
    assert result.start_s[-1] == 50.0 and result.preemptions.tolist() == [0, 1, 1, 0]
    rows.append((60.0, 6, 100.0, "web"))  # more than a third: waits
    assert simulate(cluster, _jobs(rows), "yarn-fair", {"hold_s": 0.0}).result.start_s[-1] == 150.0


def test_jobs_that_a_queue_never_starts_and_groups_without_queue_are_refused() -> None:
    cluster = of_nodes(np.array([8, 8]))
    wide = _jobs([(0.0, 13, 9.0, "text")])
    with pytest.raises(InputError, match="1 job asks for more than the most capacity of a queue; the first is numb"):
        simulate(cluster, wide, "yarn", queues=tree())
    alone = {"text": {"capacity": 100}}
    with pytest.raises(InputError, match="group 'web' has no leaf queue: declare one, or one named default"):
        simulate(cluster, _jobs([(0.0, 1, 9.0, "text"), (0.0, 1, 9.0, "web")]), "yarn", queues=tree(alone))
