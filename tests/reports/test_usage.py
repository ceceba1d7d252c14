"""Sections waste, load and fails of a cluster that is about cores: every figure against SQL on the warehouse."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reports.build import section_data
from reports.parts.waiting_over_time import over_time
from reports.source import Source
from tests.reports import warehouse
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform
from traces.store.warehouse import read

CLUSTER = "cpu-lab"
HELD = """(
    SELECT a.*, j.user_name, j.account, j."partition", j.state AS ended, epoch(a.end_utc - a.start_utc) AS s
    FROM attempts a JOIN jobs j USING (job_key)
)"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """Jobs of 1 to 8 cores over three months on six nodes, of which four are declared; two of 400 held a GPU."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(400):
        cpus = int(rng.integers(1, 9))
        submit = warehouse.START + timedelta(seconds=int(number * 86_400 * 75 / 400))
        state = ("COMPLETED", "COMPLETED", "FAILED", "TIMEOUT")[number % 4]
        rows.append(
            warehouse.job(
                CLUSTER, number, submit_utc=submit, wait_s=int(rng.exponential(3000)), state=state,
                run_s=int(rng.exponential(90_000)) + 60, requested_gpus=0, allocated_gpus=int(number in (7, 8)),
                allocated_cpus=cpus, user_name=(warehouse.HOSTILE[0], "ann", "bob")[number % 3],
                account=("lab", "<b>chem</b>")[number % 2], partition=("cpu", "long")[number % 2],
            )
        )  # fmt: skip
    jobs = conform(schema.JOBS, pl.from_dicts(rows, infer_schema_length=None))
    of_jobs, memory = jobs.select("job_key", pl.col("allocated_cpus").alias("cpus")), pl.lit(2048, pl.Int64)
    attempts = warehouse.attempts_of(jobs).join(of_jobs, on="job_key").with_columns(memory.alias("mem_mib"))
    index = pl.col("line") - 1
    placements = attempts.select("cluster", "job_key", "attempt", "gpus", "trace_sha256",
                                 pl.concat_str(pl.lit("n"), index % 6).alias("node"))  # fmt: skip
    steps = attempts.filter(index % 2 == 0).select(
        "cluster", "job_key", pl.lit("batch").alias("step_id"), "state", "start_utc", "end_utc", "run_s", "cpus",
        (index % 5 / 5 * pl.col("run_s") * pl.col("cpus")).alias("cpu_time_s"), "trace_sha256", "line",
        pl.lit(512 * 1024, pl.Int64).alias("max_rss_kib"),
    )  # fmt: skip
    tables = {
        "jobs": jobs, "attempts": attempts, "placements": placements, "steps": steps,
        "trace_files": pl.DataFrame([warehouse.trace_file(CLUSTER, len(rows))]),
    }  # fmt: skip
    settings = ClusterSettings(CLUSTER, nodes=4, cpus_per_node=32, gpus_per_node=0, memory_gib_per_node=64)
    return warehouse.with_features(tmp_path_factory.mktemp("cores"), tables, settings)


@pytest.fixture(scope="module")
def waste(data: DataFolder) -> dict[str, Any]:
    return section_data(data, CLUSTER, "waste")


def sql(data: DataFolder, statement: str) -> list[tuple[Any, ...]]:
    return read(data, statement).rows()


def said(section: dict[str, Any], begin: str) -> bool:
    return any(text.startswith(begin) for text in section["sentences"])


def test_the_section_is_about_cores_and_says_how_their_number_is_known(data: DataFolder, waste: dict[str, Any]) -> None:
    ((held, span),) = sql(data, f"SELECT sum(s * cpus) / 3600, epoch(max(end_utc) - min(start_utc)) / 3600 FROM {HELD}")
    assert waste["title"] == "Where cores are wasted"
    first, why, contradiction, *_ = waste["sentences"]
    cores = 6 * 32  # six nodes ran jobs at once, four are declared: the larger number counts
    share = f"{100 * held / (cores * span):.1f} %"
    assert first.startswith(f"{share} of the {cores} cores on 6 nodes (declared) were in use")
    assert f": {held:,.0f} core h, with running jobs counted" in first
    assert why.startswith("Shares are counted in cores: jobs that hold GPUs take ")
    assert contradiction.startswith("The log contradicts the known size of the cluster, so the larger number counts: ")
    assert "4 nodes are declared, but jobs ran on 6 at once" in contradiction
    assert "on 2 nodes, jobs held more GPUs at once than declared (most: n1, 1)" in contradiction
    assert not [text for text in waste["sentences"] + waste["missing"] if "GPUs were free" in text or "samples" in text]
    assert not {"spread", "empty_nodes", "utilization_by"} & set(waste["tables"])


def test_partitions_users_and_accounts_are_those_of_sql(data: DataFolder, waste: dict[str, Any]) -> None:
    ((span,),) = sql(data, "SELECT epoch(max(end_utc) - min(start_utc)) / 3600 FROM attempts")
    for table, name, key in (
        ("partitions", '"partition"', "partition"), ("accounts", "account", "value"),
        ("allocated_by_user", "user_name", "user_name"),
    ):  # fmt: skip
        expected = dict(sql(data, f"SELECT {name}, sum(s * cpus) / 3600 FROM {HELD} GROUP BY ALL"))
        hours = {row[key]: row.get("hours") or row["held_hours"] for row in waste["tables"][table]}
        assert hours == {name: pytest.approx(float(value)) for name, value in expected.items()}, table
    for row in waste["tables"]["partitions"]:
        cores = int(row["capacity"].removesuffix(" cores"))
        nodes = sql(data, f"SELECT count(DISTINCT node) FROM placements JOIN jobs USING (job_key) "
                          f"WHERE \"partition\" = '{row['partition']}'")  # fmt: skip
        assert cores == 32 * nodes[0][0] and row["share"] == pytest.approx(row["held_hours"] / (cores * span), rel=1e-3)
    failed = dict(sql(data, f"SELECT account, sum(s * cpus * (ended = 'FAILED')::INT) / sum(s * cpus) "
                            f"FROM {HELD} GROUP BY ALL"))  # fmt: skip
    assert {row["value"]: row["failed_share"] for row in waste["tables"]["accounts"]} == pytest.approx(failed)


def test_efficiency_is_that_of_the_runs_whose_steps_record_it(data: DataFolder, waste: dict[str, Any]) -> None:
    expected = sql(data, f"SELECT user_name, count(*), sum(cpu_time_s) / sum(s * a.cpus), "
                         f"sum(s * a.cpus - cpu_time_s) / 3600 AS unused FROM {HELD} a JOIN steps USING (job_key) "
                         "GROUP BY ALL ORDER BY unused DESC")  # fmt: skip
    rows = waste["tables"]["efficiency"]
    assert [(row["value"], row["cpu_measured"]) for row in rows] == [row[:2] for row in expected]
    for row, (_, _, used, unused) in zip(rows, expected, strict=True):
        assert (row["cpu_used_share"], row["unused_hours"]) == (pytest.approx(used), pytest.approx(unused))
        assert row["memory_used_share"] == pytest.approx(0.25)
    ((whole,),) = sql(data, f"SELECT sum(cpu_time_s) / sum(s * a.cpus) FROM {HELD} a JOIN steps USING (job_key)")
    share = f"{100 * whole:.1f} %"
    assert said(waste, f"Jobs used {share} of their CPU time (200 runs) and 25.0 % of their memory")


def test_nodes_by_use(waste: dict[str, Any]) -> None:
    rows = waste["tables"]["nodes"]
    shares = [row["core_share"] for row in rows]
    assert len(rows) == 6 and shares == sorted(shares, reverse=True)
    least = f"{100 * sorted(shares, reverse=True)[2]:.1f} %"
    assert said(waste, f"On half of the 6 nodes, jobs held at least {least} of the cores")


def test_months_change_on_the_month_before(data: DataFolder) -> None:
    section = section_data(data, CLUSTER, "load")
    rows = section["tables"]["months"]
    expected = sql(
        data,
        "WITH months AS (SELECT unnest(range(TIMESTAMP '2024-01-01', TIMESTAMP '2024-05-01', INTERVAL 1 MONTH)) AS m), "
        "edges AS (SELECT min(start_utc) AS first, max(end_utc) AS last FROM attempts) "
        "SELECT strftime(m, '%Y-%m') AS value, sum(cpus * epoch(least(end_utc, m + INTERVAL 1 MONTH) - "
        "greatest(start_utc, m))) / 3600 AS hours, any_value(epoch(least(m + INTERVAL 1 MONTH, last) - "
        "greatest(m, first)) / 86400) AS days FROM attempts, edges JOIN months ON start_utc < m + INTERVAL 1 MONTH "
        "AND end_utc > m GROUP BY ALL ORDER BY value",
    )  # fmt: skip
    assert [row["value"] for row in rows] == [row[0] for row in expected]
    before = None
    for row, (_, hours, days) in zip(rows, expected, strict=True):
        assert row["hours"] == pytest.approx(hours)
        a_day = hours / days if days >= 7 else None
        assert row["a_day"] == (None if a_day is None else pytest.approx(a_day))
        change = a_day / before - 1 if a_day and before else None
        assert row["change"] == (None if change is None else pytest.approx(change))
        assert row["capacity_share"] == pytest.approx(hours / (days * 24 * 192), rel=0.02)
        before = a_day
    assert sum(row["jobs"] for row in rows) == 400
    last = section["tables"]["accounts_last_month"]
    assert {row["value"] for row in last} == {"lab", "<b>chem</b>"} and sum(
        row["share"] for row in last
    ) == pytest.approx(1)


def test_ends_are_weighted_by_core_time(data: DataFolder) -> None:
    section = section_data(data, CLUSTER, "fails")
    expected = dict(sql(data, f"SELECT ended, sum(s * cpus) / 3600 FROM {HELD} GROUP BY ALL"))
    rows = {row["value"]: row for row in section["tables"]["states"]}
    assert {name: row["hours"] for name, row in rows.items()} == pytest.approx(expected)
    share = expected["COMPLETED"] / sum(expected.values())
    assert (
        section["sentences"][0] == f"50.0 % of the jobs that ran completed, with {100 * share:.1f} % of the core time."
    )


def test_waits_while_the_job_would_have_fitted(data: DataFolder, waste: dict[str, Any]) -> None:
    ((share,),) = sql(data, "SELECT sum(behind_s + reservation_s) / sum(wait_s) FROM queueing_delay")
    assert any(
        text.startswith(f"{100 * share:.1f} % of the waiting passed although enough") for text in waste["sentences"]
    )


def test_users_and_accounts_are_hidden_in_every_new_table(data: DataFolder) -> None:
    names = {warehouse.HOSTILE[0], "ann", "bob", "lab", "<b>chem</b>"}
    for section in ("waste", "load", "fails"):
        made = section_data(data, CLUSTER, section, anonymise=True)
        shown = {value for rows in made["tables"].values() for row in rows for value in row.values()}
        assert not names & {value for value in shown if isinstance(value, str)}
        assert not [text for text in made["sentences"] if any(f" {name} " in text for name in names)]
    open_ = {row["value"] for row in section_data(data, CLUSTER, "waste")["tables"]["accounts"]}
    assert open_ == {"lab", "<b>chem</b>"}


def test_the_share_in_use_is_drawn_of_the_binding_resource(data: DataFolder) -> None:
    source = Source(data, CLUSTER)
    source.tables = source.tables - {"queueing_delay"}
    figure = over_time(source)
    ((hours,),) = sql(data, "SELECT count(*) FROM utilization_allocated WHERE scope = 'cluster' AND unit = 'core'")
    assert figure is not None and figure.title == "core hours in use" and f"n = {hours:,} hours" in figure.caption


def test_a_log_without_steps_says_so(tmp_path: Path) -> None:
    jobs = conform(schema.JOBS, pl.DataFrame([warehouse.job("tiny", 1, allocated_cpus=4)]))
    attempts = warehouse.attempts_of(jobs).with_columns(pl.lit(4, pl.Int64).alias("cpus"))
    tables = {"jobs": jobs, "attempts": attempts, "trace_files": pl.DataFrame([warehouse.trace_file("tiny", 1)])}
    made = section_data(warehouse.with_features(tmp_path, tables, ClusterSettings("tiny")), "tiny", "waste")
    assert any("no step of the log records TotalCPU or MaxRSS" in text for text in made["missing"])
    assert "efficiency" not in made["tables"]
