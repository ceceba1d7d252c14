"""Placements in parts: each node stays whole, and no table depends on the number of parts."""

from __future__ import annotations

import polars as pl
import pytest

from features import fragmentation, locality, queueing
from features.resources import accounting, on_nodes, utilization
from features.resources.on_nodes import by_node
from features.resources.usage import runs
from tests.features.toy import CLUSTER, job, trace
from tests.features.waits import on
from traces.clusters import ClusterSettings

SETTINGS = ClusterSettings(CLUSTER)
JOBS = [
    job(f"j{i}", 60 * i, 60 * i + i % 7 * 30, 60 * i + 400, i % 3, nodes=1 + i % 2, partition=f"p{i % 2}")
    | {"allocated_cpus": 3 + i % 4, "cpus": 3 + i % 4, "user_name": f"u{i % 5}"}
    for i in range(120)
]
PLACEMENTS = [
    row
    for i in range(120)
    for row in on(f"j{i}", *(f"n{(i + k) % 9}" for k in range(1 + i % 2)), gpus=None if i % 11 == 0 else i % 3)
]


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_nodes, "ROWS", 20)


@pytest.mark.usefixtures("few_rows")
def test_a_part_holds_whole_nodes_and_few_rows() -> None:
    of = trace(JOBS, placements=PLACEMENTS)
    parts = list(by_node(of, runs(of, SETTINGS)).parts("job_key", "node", "gpus", "cpus"))
    assert len(parts) > 3
    nodes = [node for part in parts for node in part["node"].unique()]
    assert len(nodes) == len(set(nodes)) == 9
    largest = pl.DataFrame(PLACEMENTS).group_by("node").len()["len"].max()
    assert isinstance(largest, int) and max(part.height for part in parts) < 20 + largest
    found = {(row["job_key"], row["node"]): (row["gpus"], row["cpus"]) for row in pl.concat(parts).to_dicts()}
    asked = {row["job_key"]: row for row in JOBS}
    assert len(found) == len(PLACEMENTS)
    for row in PLACEMENTS:
        of_job = asked[row["job_key"]]
        gpus = 0 if of_job["gpus"] == 0 else row["gpus"]
        assert found[row["job_key"], row["node"]] == (gpus, -(-of_job["cpus"] // of_job["nodes"]))


@pytest.mark.parametrize("analysis", [queueing, fragmentation, locality, utilization, accounting])
def test_the_tables_do_not_depend_on_the_number_of_parts(analysis: object, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = analysis.from_trace(trace(JOBS, placements=PLACEMENTS), SETTINGS)  # type: ignore[attr-defined]
    monkeypatch.setattr(on_nodes, "ROWS", 20)
    parts = analysis.from_trace(trace(JOBS, placements=PLACEMENTS), SETTINGS)  # type: ignore[attr-defined]
    assert {name: table.to_dicts() for name, table in parts.items()} == {
        name: table.to_dicts() for name, table in whole.items()
    }
    assert any(table.height for table in whole.values())
