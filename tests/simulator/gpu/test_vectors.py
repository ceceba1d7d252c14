"""Schedulers on vectors of GPUs, CPUs and memory: equal to their twins, and right on cases worked by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.registry import parameters
from simulator.gpu.run import fits, simulate
from tests.twins.gpu import clock as twin
from tests.twins.gpu.divisible_drf import progressive_filling

Rows = list[tuple[int, int]]


def cluster_of(*nodes: tuple[int, ...]) -> GpuCluster:
    """Nodes of (GPUs, CPUs, memory)."""
    rows = np.array(nodes)
    return of_nodes(rows[:, 0], others=rows[:, 1:])


def jobs_of(*rows: tuple[float, int, int, int, float, int]) -> GpuJobs:
    """Jobs of (submission, GPUs, CPUs a GPU, memory a GPU, run time, group)."""
    submit, gpus, cpus, mib, run, group = (np.array(column) for column in zip(*rows, strict=True))
    need = np.column_stack([np.ones(len(rows), dtype=np.int64), cpus, mib])
    return of_arrays(submit, gpus, run.astype(float), group, need=need)


def instance(seed: int, count: int = 40) -> tuple[GpuCluster, GpuJobs]:
    """A small crowded cluster whose CPUs or memory are often full before its GPUs."""
    rng = np.random.default_rng(seed)
    nodes = [(int(g), int(g * rng.integers(2, 9)), int(g * rng.integers(4, 17))) for g in rng.choice([2, 4, 8], 4)]
    cluster = cluster_of(*nodes)
    rows = [
        (float(at), int(gpus), int(rng.integers(0, 7)), int(rng.integers(0, 13)), float(rng.integers(1, 6000)), group)
        for at, gpus, group in zip(
            np.sort(rng.integers(0, 4000, count)), rng.choice([1, 1, 2, 3, 4], count), rng.integers(0, 3, count),
            strict=True,
        )
    ]  # fmt: skip
    jobs = jobs_of(*rows)
    pods = np.where((jobs.gpus % 2 == 0) & (rng.random(count) < 0.5), 2, 1)
    jobs = replace(jobs, pod_gpus=pods)
    return cluster, jobs.take(fits(cluster, jobs))


@pytest.mark.parametrize("name", ["fifo", "sjf", "drf", "mesos", "tetris", "single"])
def test_equal_to_the_plain_twin(name: str) -> None:
    limited = 0
    for seed in range(12):
        cluster, jobs = instance(seed)
        result = simulate(cluster, jobs, name).result
        plain = twin.simulate(cluster, jobs, name, parameters(name))
        np.testing.assert_allclose(result.start_s, [row[0] for row in plain], atol=1e-3)
        by_gpus = simulate(cluster._replace(capacity=cluster.capacity[:, :1]), jobs, name).result
        limited += int((by_gpus.start_s != result.start_s).sum())
    assert limited > 100  # CPUs and memory decide


@pytest.mark.parametrize("name", ["fifo", "sjf", "srtf", "yarn", "drf", "mesos", "tetris", "single", "tiresias"])
def test_no_node_holds_more_than_it_has(name: str) -> None:
    """On one node, where the record of starts and ends shows who held what; preempted jobs are left out of the sum."""
    for seed in range(8):
        _cluster, jobs = instance(seed)
        cluster = cluster_of((8, 24, 48))
        jobs = jobs.take(fits(cluster, jobs))
        result = simulate(cluster, jobs, name).result
        whole = result.preemptions == 0
        held = (jobs.need * jobs.gpus[:, None])[whole]
        moments = np.concatenate([result.start_s[whole], result.end_s[whole]])
        order = np.lexsort((np.repeat([1, 0], whole.sum()), moments))
        peak = np.cumsum(np.concatenate([held, -held])[order], axis=0).max(axis=0)
        assert (peak <= cluster.capacity[0]).all()


DEMANDS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(DEMANDS, st.tuples(st.integers(1, 12), st.integers(4, 40), st.integers(9, 60)), st.integers(0, 10**6))
def test_drf_equals_progressive_filling_by_brute_force(
    demands: Rows, capacity: tuple[int, int, int], seed: int
) -> None:
    """Every group has tasks of one GPU and its own demand; all are there at once, in any order of arrival."""
    tasks = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(demands)), 12))
    jobs = jobs_of(*((0.0, 1, *demands[group], 100.0, int(group)) for group in tasks))
    started = simulate(cluster_of(capacity), jobs, "drf").result.start_s == 0.0
    of_groups = np.bincount(jobs.group[started], minlength=len(demands)).tolist()
    assert of_groups == _brute_force(demands, capacity, 12)


def _brute_force(demands: Rows, capacity: tuple[int, ...], most: int) -> list[int]:
    """Give a task to the user with the smallest dominant share whose task fits, in exact arithmetic."""
    given_to = [0] * len(demands)
    needs = [(1, *demand) for demand in demands]
    while True:
        used = [sum(n * need[r] for n, need in zip(given_to, needs, strict=True)) for r in range(len(capacity))]
        able = [
            (max(Fraction(given_to[user] * need[r], capacity[r]) for r in range(len(capacity))), user)
            for user, need in enumerate(needs)
            if given_to[user] < most and all(used[r] + need[r] <= capacity[r] for r in range(len(capacity)))
        ]
        if not able:
            return given_to
        given_to[min(able)[1]] += 1


def test_drf_on_the_example_of_the_paper() -> None:
    """Ghodsi et al., section 4.1: 9 CPUs and 18 GB; user A's tasks take (1, 4), user B's (3, 1): A gets 3, B 2."""
    jobs = jobs_of(*([(0.0, 1, 1, 4, 100.0, 0)] * 9 + [(0.0, 1, 3, 1, 100.0, 1)] * 9))
    started = simulate(cluster_of((100, 9, 18)), jobs, "drf").result.start_s == 0.0
    assert np.bincount(jobs.group[started]).tolist() == [3, 2]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=3))
def test_drf_comes_near_the_rule_for_divisible_tasks(demands: Rows) -> None:
    """400 CPUs, 300 GB: shares of small tasks are those of divisible tasks, within a few tasks."""
    jobs = jobs_of(*((0.0, 1, *demand, 100.0, group) for group, demand in enumerate(demands) for _ in range(400)))
    started = simulate(cluster_of((5000, 400, 300)), jobs, "drf").result.start_s == 0.0
    found = np.bincount(jobs.group[started], minlength=len(demands))
    exact = progressive_filling(np.array([(1, *demand) for demand in demands], float), np.array([5000.0, 400, 300]))
    assert np.abs(found - exact).max() <= 5.0


def test_tetris_places_a_job_where_its_demand_aligns_best() -> None:
    """Two nodes of (4, 16, 16). Job 0 leaves (3, 4, 16) on the first.

    Job 1 of (1, 0, 8) scores 3/16 + 8/16 there and 4/16 + 8/16 on the second, so it leaves the first one's memory to
    job 2, and the second one's CPUs to job 3. Best fit would put it on the first, and job 3 would wait.
    """
    jobs = jobs_of(
        (0.0, 1, 12, 0, 999.0, 0), (1.0, 1, 0, 8, 999.0, 0), (2.0, 1, 4, 16, 999.0, 0), (3.0, 1, 12, 4, 99.0, 0)
    )
    cluster = cluster_of((4, 16, 16), (4, 16, 16))
    assert simulate(cluster, jobs, "tetris").result.start_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert simulate(cluster, jobs, "fifo").result.start_s[3] > 3.0


@pytest.mark.parametrize(("weight", "first"), [(0.0, 0), (10.0, 1)])
def test_tetris_weighs_alignment_against_work(weight: float, first: int) -> None:
    """One node of (4, 16, 16). Job 0 takes all for 1,000 s: alignment 3, the most. Job 1 takes (1, 4, 4) for 10 s.

    Alignment alone starts job 0 first; the weight of work (1,000 x 3 against 10 x 0.75) starts job 1.
    """
    jobs = jobs_of((0.0, 4, 4, 4, 1000.0, 0), (0.0, 1, 4, 4, 10.0, 0))
    start = simulate(cluster_of((4, 16, 16)), jobs, "tetris", {"work_weight": weight}).result.start_s
    assert int(np.argmin(start)) == first


@pytest.mark.parametrize(("fairness", "third"), [(0.0, 0), (0.9, 1)])
def test_tetris_serves_the_groups_furthest_below_their_share(fairness: float, third: int) -> None:
    """Group 0 holds half of the CPUs. The next job that fits is group 0's, which aligns better, or group 1's."""
    jobs = jobs_of((0.0, 1, 8, 1, 1000.0, 0), (1.0, 1, 7, 8, 100.0, 0), (1.0, 1, 6, 1, 100.0, 1))
    start = simulate(cluster_of((4, 16, 16)), jobs, "tetris", {"work_weight": 0.0, "fairness": fairness}).result.start_s
    assert start[1 + third] == 1.0 and start[2 - third] == 101.0


def test_mesos_does_not_offer_to_who_declined_until_the_filter_ends() -> None:
    """4 GPUs. Job 0 takes 3 until 2 s. Job 1 of 2 declines the last GPU at 0 s, and is asked again at 5 s."""
    rows = [(0.0, 3, 1, 1, 2.0, 0), (0.0, 2, 1, 1, 10.0, 1)]
    cluster = cluster_of((4, 16, 16))
    assert simulate(cluster, jobs_of(*rows), "mesos").result.start_s.tolist() == [0.0, 5.0]
    assert simulate(cluster, jobs_of(*rows), "mesos", {"decline_s": 0.0}).result.start_s.tolist() == [0.0, 2.0]
    late = (3.0, 1, 1, 1, 10.0, 1)  # lifts its framework's filter
    assert simulate(cluster, jobs_of(*rows, late), "mesos").result.start_s.tolist() == [0.0, 3.0, 3.0]


def test_mesos_asks_at_each_end_of_a_filter() -> None:
    """Job 1 declines at 0, 5, 10 and 15 s; GPUs become free at 12 s, so it starts at 15 s."""
    jobs = jobs_of((0.0, 3, 1, 1, 12.0, 0), (0.0, 2, 1, 1, 10.0, 1))
    assert simulate(cluster_of((4, 16, 16)), jobs, "mesos").result.start_s.tolist() == [0.0, 15.0]


def test_mesos_forgets_a_filter_where_nothing_was_free_to_decline() -> None:
    """Job 2 takes the GPU that job 1 declined; the filter ends at 5 s without an offer, so 12 s brings one at once."""
    jobs = jobs_of((0.0, 3, 1, 1, 12.0, 0), (0.0, 2, 1, 1, 10.0, 1), (1.0, 1, 1, 1, 100.0, 2))
    assert simulate(cluster_of((4, 16, 16)), jobs, "mesos").result.start_s.tolist() == [0.0, 12.0, 1.0]


def test_mesos_gives_one_framework_all_that_it_accepts() -> None:
    """Of 4 GPUs framework 0 accepts all; dominant resource fairness gives each framework two."""
    jobs = jobs_of(*([(0.0, 1, 1, 1, 10.0, 0)] * 4 + [(0.0, 1, 1, 1, 10.0, 1)] * 4))
    cluster = cluster_of((4, 16, 16))
    assert (simulate(cluster, jobs, "mesos").result.start_s == 0.0).tolist() == [True] * 4 + [False] * 4
    assert np.bincount(jobs.group[simulate(cluster, jobs, "drf").result.start_s == 0.0]).tolist() == [2, 2]


def test_a_pod_stays_on_one_node() -> None:
    """Two nodes of 4 GPUs, of which CPUs leave two each: a pod of 4 does not fit, and two of 2 do."""
    rows = [(0.0, 2, 4, 0, 9.0, 0), (0.0, 2, 4, 0, 9.0, 0), (1.0, 4, 0, 0, 9.0, 0)]
    jobs, cluster = jobs_of(*rows), cluster_of((4, 9, 9), (4, 9, 9))
    for pod, start in ((1, 1.0), (2, 1.0), (4, 9.0)):
        found = simulate(cluster, replace(jobs, pod_gpus=np.array([1, 1, pod])), "fifo").result.start_s
        assert found.tolist() == [0.0, 0.0, start]


def test_a_local_gang_whose_cpus_need_more_nodes_than_its_gpus_starts() -> None:
    """4 GPUs with 6 CPUs each need two nodes of (4, 16): waiting for one node would never end."""
    start = simulate(cluster_of((4, 16, 16), (4, 16, 16)), jobs_of((0.0, 4, 6, 1, 10.0, 0)), "yarn").result.start_s
    assert start.tolist() == [0.0]
