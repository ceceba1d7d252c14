"""The resource that a cluster is about, by hand: each rule, and both sides of its threshold."""

from __future__ import annotations

from typing import Any

import pytest

from features import queueing
from features.resources.capacity import capacity
from features.resources.on_nodes import by_node
from features.resources.resource import Binding, binding, of_partitions
from tests.features.toy import CLUSTER, job, trace
from tests.features.waits import on
from traces.clusters import ClusterSettings

Row = dict[str, Any]


def ran(key: str, run_s: int = 1000, gpus: int | None = 0, nodes: int | None = 1, **more: Any) -> Row:
    return job(key, 0, 0, run_s, gpus, nodes=nodes, **more)


def about(
    jobs: list[Row], placed: list[Row] | None = None, listed: list[Row] | None = None, **declared: Any
) -> Binding:
    """What the whole cluster is about."""
    of, settings = trace(jobs, placements=placed or [], nodes=listed or []), ClusterSettings(CLUSTER, **declared)
    held = queueing.grouped_runs(of, settings)
    return binding(held, by_node(of, held), capacity(of, settings, held), settings)


def machine(nodes: int, with_gpus: int, cpus: int = 10, mem_mib: int = 1000) -> list[Row]:
    return [
        {"node": f"n{i}", "gpus": 4 if i < with_gpus else 0, "cpus": cpus, "memory_mib": mem_mib} for i in range(nodes)
    ]


@pytest.mark.parametrize(("with_gpus", "resource"), [(5, "GPU"), (4, "core")])
def test_half_of_the_nodes_with_gpus_make_a_gpu_cluster(with_gpus: int, resource: str) -> None:
    found = about([ran("a", allocated_cpus=1)], on("a", "n0", gpus=0), machine(10, with_gpus))
    assert found.resource == resource and not found.is_declared
    assert resource == "core" or found.why == "50 % of the nodes have GPUs"


@pytest.mark.parametrize(("cpus", "resource"), [(10, "GPU"), (9, "core")])
def test_jobs_with_gpus_that_take_half_of_the_core_time_make_a_gpu_cluster(cpus: int, resource: str) -> None:
    jobs = [ran("gpu", gpus=1, allocated_cpus=cpus), ran("cpu", allocated_cpus=10)]
    found = about(jobs, listed=machine(10, 0, cpus=99))
    assert found.resource == resource
    assert resource == "core" or found.why == "jobs that hold GPUs take 50 % of the core time held"


def test_a_log_without_cpus_is_weighed_by_node_time_else_run_time() -> None:
    found = about([ran("gpu", gpus=4, nodes=3), ran("cpu", nodes=1)])
    assert found == Binding("GPU", "jobs that hold GPUs take 75 % of the node time held")
    found = about([ran("gpu", gpus=4, nodes=None), ran("cpu", nodes=None)])
    assert found == Binding("GPU", "jobs that hold GPUs take 50 % of the run time")
    assert about([ran("cpu"), ran("gpu", 10, gpus=1)]).why == "the log does not record the CPUs of its jobs"


def test_two_of_4285_jobs_with_a_gpu_on_46_nodes_leave_a_cpu_cluster() -> None:
    jobs, placed = [], []
    for i in range(4285):
        jobs.append(ran(str(i), gpus=1 if i < 2 else 0, allocated_cpus=1 + i % 16))
        placed += on(str(i), f"n{i % 46}", gpus=1 if i < 2 else 0)
    found = about(jobs, placed)
    assert found == Binding("core", "jobs that hold GPUs take 0.0 % of the core time held, and jobs share nodes")


@pytest.mark.parametrize(("whole_s", "resource"), [(950, "node"), (949, "core")])
def test_jobs_that_hold_every_cpu_of_their_nodes_make_a_cluster_of_whole_nodes(whole_s: int, resource: str) -> None:
    jobs = [ran("whole", whole_s, nodes=2, allocated_cpus=20), ran("part", 500, allocated_cpus=2)]
    placed = [*on("whole", "n0", "n1", gpus=0), *on("part", "n2", gpus=0)]
    found = about(jobs, placed, machine(10, 0))  # 950 x 20 of 20,000 core seconds
    assert found.resource == resource
    assert resource == "core" or found.why == "jobs that hold every CPU of their nodes take 95 % of the core time"


def test_nodes_of_several_sizes_are_each_whole() -> None:
    listed = [{**row, "cpus": 10 if i else 40} for i, row in enumerate(machine(4, 0))]
    jobs = [ran("a", allocated_cpus=40), ran("b", nodes=2, allocated_cpus=20)]
    small = on("b", "n1", "n2", gpus=0)
    assert about(jobs, [*on("a", "n0", gpus=0), *small], listed).resource == "node"
    quarter = [ran("a", allocated_cpus=10), jobs[1]]  # as much as a small node has, of the large one
    assert about(quarter, [*on("a", "n0", gpus=0), *small], listed).resource == "core"
    assert about(jobs, listed=listed).resource == "core"  # the log does not name the nodes of its jobs


def test_one_cpu_a_node_is_a_log_that_counts_nodes() -> None:
    jobs = [ran("wide", nodes=8, allocated_cpus=8), ran("one", allocated_cpus=1)]
    assert about(jobs) == Binding("node", "every job has one CPU per node, so the log counts nodes")
    assert about([jobs[1]]).resource == "core"  # one CPU of a node says nothing of it


@pytest.mark.parametrize(("mem_mib", "resource"), [(251, "memory"), (250, "core")])
def test_a_quarter_more_of_the_memory_than_of_the_cores_makes_memory_scarce(mem_mib: int, resource: str) -> None:
    jobs = [ran("a", allocated_cpus=2, mem_mib=mem_mib)]
    found = about(jobs, listed=machine(1, 0))  # 20 % of the cores
    assert found.resource == resource
    assert resource == "core" or found.why == "jobs hold 25 % of the memory and 20 % of the cores"
    assert about(jobs).resource == "core"  # what the machine has is not stated


@pytest.mark.parametrize(("said", "resource"), [(95, "core"), (94, "node")])
def test_cpus_that_95_percent_of_the_jobs_say_are_known(said: int, resource: str) -> None:
    jobs = [ran(str(i), allocated_cpus=1 if i < said else None) for i in range(100)]
    assert about(jobs, listed=machine(1, 0, cpus=200)).resource == resource


def test_what_is_declared_wins() -> None:
    jobs = [ran("gpu", gpus=4, allocated_cpus=4)]
    assert about(jobs, resource="memory") == Binding("memory", "declared in clusters.toml", True)
    assert about(jobs, resources={"p": "core"}).resource == "GPU"  # of one partition


def test_each_partition_is_about_what_its_own_jobs_hold() -> None:
    jobs, placed = [], []
    for i in range(60):
        partition = ("gpu", "cpu", "declared")[i % 3]
        asked: Row = {"gpus": 2 if partition == "gpu" else 0, "allocated_cpus": 1 + i % 5, "partition": partition}
        jobs.append(ran(str(i), **asked))
        placed += on(str(i), f"{partition}{i % 2}", gpus=asked["gpus"])
    jobs.append(ran("lost", gpus=0, allocated_cpus=3, partition="unseen"))
    of, settings = trace(jobs, placements=placed), ClusterSettings(CLUSTER, resources={"declared": "memory"})
    held = queueing.grouped_runs(of, settings)
    size = capacity(of, settings, held)
    parts = of_partitions(of, held, size, settings)
    found = {name: (part.binding.resource, part.size.nodes) for name, part in parts.items()}
    assert found == {"gpu": ("GPU", 2), "cpu": ("core", 2), "declared": ("memory", 2), "unseen": ("core", 6)}
    assert parts["unseen"].size is size and parts["gpu"].size.sizes["node"].to_list() == ["gpu0", "gpu1"]


@pytest.mark.parametrize("jobs", [[], [job("never", 0, None, 9, 4)]])
def test_a_log_in_which_nothing_ran_says_so(jobs: list[Row]) -> None:
    assert about(jobs) == Binding("node", "the log does not record the CPUs of its jobs")
