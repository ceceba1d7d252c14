"""How large a machine is: declared, listed, seen in use, or the most in use at once; and what a log contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features import queueing
from features.resources.capacity import KNOWN_BY, Capacity, capacity
from features.trace import read_trace
from tests.features.toy import CLUSTER, at, job, trace
from tests.features.waits import on
from traces import instants
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

Row = dict[str, Any]


def size_of(
    jobs: list[Row], placed: list[Row] | None = None, listed: list[Row] | None = None, **declared: Any
) -> Capacity:
    of, settings = trace(jobs, placements=placed or [], nodes=listed or []), ClusterSettings(CLUSTER, **declared)
    return capacity(of, settings, queueing.grouped_runs(of, settings))


def ran(key: str, start: int, end: int, gpus: int | None = 1, nodes: int = 1, **more: Any) -> Row:
    return job(key, start, start, end, gpus, nodes=nodes, **more)


def on_nodes(size: Capacity) -> dict[str | None, tuple[int | None, ...]]:
    return {row[0]: row[1:] for row in size.sizes.select("node", "gpus", "cpus", "mem_mib").iter_rows()}


TWO = [ran("a", 0, 8000, 2, allocated_cpus=6, mem_mib=100), ran("b", 4000, 9000, 1, allocated_cpus=2, mem_mib=50)]


def test_without_anything_the_most_in_use_at_once_counts() -> None:
    size = size_of(TWO)
    assert (size.gpus, size.cpus, size.mem_mib, size.nodes, size.source) == (3, 8, 150, 2, "peak in use")
    assert KNOWN_BY[size.source] == "in use at the peak" and size.sizes.is_empty() and size.gpus_per_node is None
    brief = [ran(f"x{i}", 4000, 4001, 9) for i in range(3)]
    assert size_of([ran("a", 0, 10**7, 3), *brief]).gpus == 3  # records that overlap for a second are no machine


def test_nodes_seen_in_use_give_out_what_they_gave_out_at_once() -> None:
    size = size_of([*TWO, ran("c", 0, 100, 4)], [*on("a", "n1", gpus=2), *on("b", "n1"), *on("c", "n2", gpus=4)])
    assert size.source == "nodes in use" and on_nodes(size) == {"n1": (3, 8, 150), "n2": (4, None, None)}
    assert (size.nodes, size.gpus, size.gpus_per_node) == (2, 7, 4) and not size.contradictions


def test_cpus_of_a_node_are_those_of_the_largest_with_as_many_gpus() -> None:
    jobs = [ran("a", 0, 99, 2, allocated_cpus=32), ran("b", 0, 99, 2, allocated_cpus=4)]
    placed = [*on("a", "n1", gpus=2), *on("b", "n2", gpus=2)]
    assert {row[1] for row in on_nodes(size_of(jobs, placed)).values()} == {32}
    cpu_only = [{**row, "gpus": 0, "allocated_gpus": 0, "requested_gpus": 0} for row in jobs]
    without = on_nodes(size_of(cpu_only, [*on("a", "n1", gpus=0), *on("b", "n2", gpus=0)]))
    assert {name: row[1] for name, row in without.items()} == {"n1": 32, "n2": 4}  # no GPUs say that they are alike


LIST = [
    {"node": "n1", "gpus": 8, "cpus": 64, "memory_mib": 1000}, {"node": "n2", "gpus": 0, "cpus": 32, "memory_mib": 500},
]  # fmt: skip


def test_a_machine_list_is_counted_node_by_node() -> None:
    size = size_of(TWO, [*on("a", "n1", gpus=2), *on("b", "n1")], LIST)
    assert size.source == "machine list" and on_nodes(size) == {"n1": (8, 64, 1000), "n2": (0, 32, 500)}
    assert (size.gpus, size.cpus, size.mem_mib, size.nodes, size.gpus_per_node) == (8, 96, 1500, 2, 8)  # not 2 x 8


def test_what_the_log_shows_beyond_a_machine_list_is_named_and_counts() -> None:
    jobs = [ran("a", 0, 9000, 2), ran("b", 0, 9000, 10), ran("c", 0, 9000, 1), ran("d", 0, 9000, 1)]
    placed = [*on("a", "n2", gpus=2), *on("b", "n1", gpus=10), *on("c", "new1"), *on("d", "new2")]
    size = size_of(jobs, placed, LIST)
    assert size.contradictions == (
        "on 2 nodes, jobs held more GPUs at once than the machine list says (most: n1, 10)",
        "the machine list has 2 nodes, but jobs ran on 2 others",
    )
    assert (size.gpus, size.nodes) == (14, 4)


ON_ONE = [*on("a", "n1", gpus=2), *on("b", "n1")]


def test_declared_nodes_that_the_log_never_names_are_there() -> None:
    size = size_of(TWO, ON_ONE, nodes=4, gpus_per_node=8, cpus_per_node=16, memory_gib_per_node=1)
    assert size.source == "settings" and (size.nodes, size.gpus, size.cpus, size.mem_mib) == (4, 32, 64, 4096)
    assert size.sizes["node"].null_count() == 3 and not size.contradictions and size.gpus_per_node == 8
    like_seen = size_of(TWO, ON_ONE, nodes=4)  # their size is not declared: as most of the others
    assert (like_seen.nodes, like_seen.gpus, like_seen.cpus) == (4, 12, 32)
    counts = size_of(TWO, nodes=4, gpus_per_node=8)
    assert (counts.nodes, counts.gpus, counts.cpus, counts.gpus_per_node) == (4, 32, 8, 8)


def test_more_than_declared_is_named_with_the_count_and_the_larger_counts() -> None:
    jobs = [ran(f"j{i}", 0, 9000, 4) for i in range(3)]
    placed = [row for i in range(3) for row in on(f"j{i}", f"n{i}", gpus=4)]
    size = size_of(jobs, placed, nodes=2, gpus_per_node=2)
    assert size.contradictions == (
        "on 3 nodes, jobs held more GPUs at once than declared (most: n0, 4)",
        "2 nodes are declared, but jobs ran on 3 at once",
    )
    assert (size.nodes, size.gpus) == (3, 12)
    size = size_of(jobs, nodes=2, gpus_per_node=2)  # a log without the nodes of its jobs
    assert size.contradictions == ("4 GPUs are declared, but jobs held 12 at once",) and size.gpus == 12
    size = size_of([ran("j", 0, 9000, None, nodes=3)], nodes=2)
    assert size.contradictions == ("2 nodes are declared, but jobs held 3 at once",) and size.nodes == 3


def test_one_node_that_gives_out_too_much_is_one_node() -> None:
    said = size_of([ran("a", 0, 9000, 4)], on("a", "n0", gpus=4), gpus_per_node=2).contradictions
    assert said == ("on 1 node, jobs held more GPUs at once than declared (most: n0, 4)",)


def test_nodes_by_date_change_every_amount_in_step() -> None:
    later = at(5000)
    size = size_of(TWO, nodes=2, gpus_per_node=8, nodes_by_date=((later, 4),))
    epoch_s = instants.epoch_s(later)  # type: ignore[arg-type]
    asked = np.array([epoch_s - 1, epoch_s])
    assert size.source == "settings" and (size.nodes, size.gpus) == (4, 32)
    assert size.at("GPU", asked).tolist() == [16, 32] and size.at("node", asked).tolist() == [2, 4]
    assert size_of(TWO, nodes=2, gpus_per_node=8).at("GPU", asked).tolist() == [16, 16]
    assert size_of([ran("a", 0, 10, None)]).at("memory", asked).tolist() == [0, 0]


def test_a_job_of_no_gpu_holds_none_on_its_nodes_and_an_unknown_share_is_unknown() -> None:
    jobs = [ran("none", 0, 100, 0), ran("unknown", 0, 100, None)]
    size = size_of(jobs, [*on("none", "n1", gpus=None), *on("unknown", "n2", gpus=None)])
    assert {name: row[0] for name, row in on_nodes(size).items()} == {"n1": 0, "n2": None}
    assert size.gpus is None


@pytest.mark.parametrize("jobs", [[], [job("never", 0, None, 50, 4)], [ran("a", 0, 0, 4)]])
def test_where_nothing_ran_nothing_is_known_but_what_is_declared(jobs: list[Row]) -> None:
    assert size_of(jobs).gpus is None and size_of(jobs).nodes is None
    assert size_of(jobs, nodes=3, gpus_per_node=2).gpus == 6


def test_the_node_list_of_openb_has_6212_gpus_on_1213_nodes(shared_traces: Path, tmp_path: Path) -> None:
    """By awk over its node list: nodes of 1 to 8 GPUs; not 9,704, which is the number of nodes times the largest."""
    settings, data = ClusterSettings("openb"), DataFolder(tmp_path)
    ingest([shared_traces / "openb"], cluster=settings, data=data)
    warehouse.build(data)
    of = read_trace(data, "openb", jobs=queueing.WAITED, by_node=True)
    size = capacity(of, settings, queueing.grouped_runs(of, settings))
    assert (size.nodes, size.gpus, size.gpus_per_node, size.source) == (1213, 6212, 8, "machine list")
    assert size.sizes["cpus"].null_count() == size.sizes["mem_mib"].null_count() == 0
