"""Each rule fails on a warehouse that breaks it, and every rule passes on one that is sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from assets import checks, rules
from assets.rules import Rule
from simulator.tables import SIMULATED_STARTS
from tests.pipelines.conftest import dump
from traces import clusters
from traces.ingest import ingest
from traces.store import derived, raw_files, warehouse
from traces.store.folder import DataFolder

RULES = {(rule.table, rule.name): rule for rule in (*rules.CANONICAL, *checks.ANALYTICS_RULES, *checks.POLICY_RULES)}
FIRST = pl.int_range(pl.len()) == 0


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    """Six jobs of two nodes, one after the other, on a cluster that declares four."""
    folder = DataFolder(tmp_path / "data")
    folder.root.mkdir()
    folder.clusters_toml.write_text("[lab]\nnodes = 4\n")
    raw = dump(tmp_path / "jobs.psv", nodes=2)
    ingest([raw], cluster=clusters.resolve(folder, cluster="lab"), data=folder)
    warehouse.build(folder)
    return folder


def broken(data: DataFolder, table: str, *changes: pl.Expr, twice: bool = False) -> None:
    """Write into the lake what a bad reader would, and build the warehouse from it."""
    (path,) = data.lake.glob(f"lab/*/{table}.parquet")
    frame = pl.read_parquet(path).with_columns(*changes)
    (pl.concat([frame, frame]) if twice else frame).write_parquet(path)
    described = raw_files.read(path.parent)
    assert described is not None
    raw_files.write(path.parent, described)
    warehouse.build(data)


def test_a_sound_warehouse_keeps_every_rule(data: DataFolder) -> None:
    for rule in rules.CANONICAL:
        assert checks.violations(data, rule).is_empty(), rule


def first(column: str, value: pl.Expr) -> pl.Expr:
    """`value` in the first row, the column as it was in the others."""
    return pl.when(FIRST).then(value).otherwise(pl.col(column)).alias(column)


@pytest.mark.parametrize(
    ("table", "name", "change"),
    [
        ("jobs", "time_order", first("start_utc", pl.col("submit_utc") - pl.duration(hours=1))),
        ("jobs", "time_order", first("eligible_utc", pl.col("start_utc") + pl.duration(minutes=1))),
        ("jobs", "time_order", first("end_utc", pl.col("start_utc") - pl.duration(seconds=1))),
        ("jobs", "known_states", first("state", pl.lit("FINISHED"))),
        ("jobs", "not_negative", first("wait_s", pl.lit(-1))),
        ("jobs", "attempts_counted", first("attempts", pl.lit(7))),
        ("attempts", "time_order", first("end_utc", pl.col("start_utc") - pl.duration(seconds=1))),
        ("attempts", "known_states", first("state", pl.lit("?"))),
        ("attempts", "capacity", first("nodes", pl.lit(5))),
        ("trace_files", "conservation", first("records", pl.lit(99))),
        ("rejects", "conservation", None),
    ],
)
def test_a_rule_catches_what_breaks_it(data: DataFolder, table: str, name: str, change: pl.Expr | None) -> None:
    if change is None:
        counts = [first("rejects", pl.lit(1)), first("records", pl.col("records") + 1)]
        broken(data, "trace_files", *counts)
    else:
        broken(data, table, change)
    assert len(checks.violations(data, RULES[table, name])) >= 1


def test_nodes_given_back_at_an_instant_may_be_taken_at_it(data: DataFolder) -> None:
    """Four of four nodes, the next job starting as the first ends, is no violation; an hour's overlap is one."""
    rule = RULES["attempts", "capacity"]
    frame = pl.read_parquet(next(data.lake.glob("lab/*/attempts.parquet")))
    begin = frame["start_utc"].min()
    for overlap_h, expected in ((0, True), (1, False)):
        times = [
            pl.lit(4).alias("nodes"),
            (pl.lit(begin) + pl.duration(hours=(2 - overlap_h) * pl.int_range(pl.len()))).alias("start_utc"),
            (pl.lit(begin) + pl.duration(hours=(2 - overlap_h) * pl.int_range(pl.len()) + 2)).alias("end_utc"),
        ]
        broken(data, "attempts", *times)
        assert checks.violations(data, rule).is_empty() is expected


def simulated(data: DataFolder, waits_s: list[int], capacity: int) -> Rule:
    jobs = warehouse.read(data, "SELECT cluster, job_key, submit_utc FROM jobs ORDER BY submit_utc")
    frame = jobs.with_columns(
        pl.lit("fifo").alias("scheduler"),
        pl.lit(capacity).alias("capacity_nodes"),
        pl.lit(2).alias("nodes"),
        pl.lit(3600).alias("recorded_wait_s"),
        pl.Series("simulated_wait_s", waits_s),
    )
    derived.write(data, SIMULATED_STARTS, "lab", frame, "test")
    warehouse.build(data)
    return RULES["simulated_starts", "capacity"]


def test_a_replay_over_capacity_and_one_within(data: DataFolder) -> None:
    assert checks.violations(data, simulated(data, [0] * 6, 2)).is_empty()
    one_day_late = [86400, 0, 0, 0, 0, 0]  # the first job then runs beside the second
    assert len(checks.violations(data, simulated(data, one_day_late, 2))) >= 1
    assert checks.violations(data, simulated(data, one_day_late, 4)).is_empty()
    simulated(data, [-5, 0, 0, 0, 0, 0], 2)
    assert len(checks.violations(data, RULES["simulated_starts", "not_before_submission"])) == 1


def test_a_derived_key_used_twice(data: DataFolder) -> None:
    simulated(data, [0] * 6, 2)
    path = data.lake / "derived" / "simulated_starts" / "lab.parquet"
    frame = pl.read_parquet(path)
    pl.concat([frame, frame.head(1)]).write_parquet(path)
    warehouse.build(data)
    assert len(checks.violations(data, RULES["simulated_starts", "unique_key"])) == 1


def test_a_table_of_an_older_shape_fails_and_says_why(data: DataFolder) -> None:
    """History: a warehouse made before a column was added stopped every run at the checks."""
    simulated(data, [0] * 6, 2)
    older = replace(SIMULATED_STARTS, columns=tuple(c for c in SIMULATED_STARTS.columns if c.name != "capacity_nodes"))
    frame = derived.read(data, "simulated_starts", "lab").drop("capacity_nodes")
    derived.write(data, older, "lab", frame, "older")
    warehouse.build(data)
    for result in checks.results(data, rules.of_derived([SIMULATED_STARTS]), checks.DERIVED_KEYS):
        assert not result.passed and result.metadata["missing columns"].value == "capacity_nodes"


def test_a_table_that_no_cluster_has_passes(data: DataFolder) -> None:
    names = (*checks.ANALYTICS_RULES, *checks.POLICY_RULES)
    results = list(checks.results(data, names, checks.DERIVED_KEYS))
    assert len(results) == len(names) and all(result.passed for result in results)


def test_a_violation_is_shown_and_a_warning_is_no_error(data: DataFolder) -> None:
    broken(data, "attempts", first("nodes", pl.lit(5)), first("state", pl.lit("<b>|odd|</b>")))
    found = {result.check_name: result for result in checks.results(data, rules.CANONICAL, checks.CANONICAL_KEYS)}
    assert not found["attempts_capacity"].passed and found["attempts_capacity"].severity.value == "WARN"
    states = found["attempts_known_states"]
    assert not states.passed and states.severity.value == "ERROR"
    assert states.metadata["violations"].value == 1
    first_rows = states.metadata["first"]
    assert isinstance(first_rows, dg.TableMetadataValue)
    assert {row.data["state"] for row in first_rows.records} == {"<b>|odd|</b>"}  # the UI sets it as text
