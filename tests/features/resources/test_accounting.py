"""Totals, efficiency and use of nodes against SQL over attempts, steps and placements."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from features import queueing
from features.resources import accounting, utilization
from features.trace import Trace
from tests.features.toy import CLUSTER, EPOCH, at, job, table, trace
from traces import schema
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import query

STATES = ("COMPLETED", "COMPLETED", "FAILED", "OUT_OF_MEMORY", "CANCELLED", "TIMEOUT", "RUNNING")
# Totals by {value}, a column of jobs, or of `pieces` for months: every attempt, cut at the months where {months} says.
USAGE_SQL = """
WITH horizon AS (SELECT greatest(max(submit_utc), max(start_utc), max(end_utc)) AS until FROM jobs),
held AS (
    SELECT a.job_key, a.attempt, j.state, j.user_name, j.account, j."partition", j.qos, a.cpus, a.gpus, a.nodes,
        a.mem_mib, a.end_utc IS NOT NULL AS ended, a.start_utc AS since, coalesce(a.end_utc, until) AS until,
        lead(a.start_utc) OVER (PARTITION BY a.job_key ORDER BY a.attempt) AS next_utc
    FROM attempts a JOIN jobs j USING (job_key), horizon WHERE a.start_utc IS NOT NULL
),
used AS (
    SELECT h.job_key, h.attempt, sum(s.cpu_time_s) AS cpu_s, max(s.max_rss_kib) AS rss,
        CASE WHEN any_value(h.gpus) > 0 THEN sum(s.gpu_percent * s.run_s) / 100 END AS gpu_s
    FROM held h JOIN steps s ON s.job_key = h.job_key AND s.start_utc >= h.since
        AND (h.next_utc IS NULL OR s.start_utc < h.next_utc)
    WHERE h.ended GROUP BY ALL
),
months AS (SELECT unnest(range(TIMESTAMP '2023-01-01', TIMESTAMP '2024-01-01', INTERVAL 1 MONTH)) AS month_utc),
pieces AS (
    SELECT h.*, month_utc, cpu_s, rss, gpu_s, epoch(until - since) AS whole_s,
        epoch(least(until, month_utc + INTERVAL 1 MONTH) - greatest(since, month_utc)) AS s
    FROM held h LEFT JOIN used USING (job_key, attempt)
        JOIN months ON since < month_utc + INTERVAL 1 MONTH AND until > month_utc
)
SELECT {value} AS value, sum(s * gpus)::BIGINT AS gpu_time_s, sum(s * cpus)::BIGINT AS core_time_s,
    floor(sum(s * mem_mib) / 1024)::BIGINT AS memory_time_gib_s, sum(s * nodes)::BIGINT AS node_time_s,
    coalesce(sum(s * cpus) FILTER (WHERE state = 'COMPLETED'), 0) / sum(s * cpus) AS completed_share,
    coalesce(sum(s * cpus) FILTER (WHERE state IN ('FAILED', 'OUT_OF_MEMORY')), 0) / sum(s * cpus) AS failed_share,
    coalesce(sum(s * cpus) FILTER (WHERE state = 'TIMEOUT'), 0) / sum(s * cpus) AS timeout_share,
    sum(s * cpus) / sum(sum(s * cpus)) OVER () AS share,
    sum(cpu_s * s / whole_s) / sum(s * cpus) FILTER (WHERE cpu_s IS NOT NULL) AS cpu_used_share,
    coalesce(sum(s * cpus) FILTER (WHERE cpu_s IS NOT NULL), 0)::BIGINT AS cpu_measured_s,
    sum(rss * s) / sum(1024 * mem_mib * s) FILTER (WHERE rss IS NOT NULL) AS memory_used_share,
    sum(gpu_s * s / whole_s) / sum(s * gpus) FILTER (WHERE gpu_s IS NOT NULL) AS gpu_used_share,
    coalesce(sum(s * gpus) FILTER (WHERE gpu_s IS NOT NULL), 0)::BIGINT AS gpu_measured_s
FROM pieces GROUP BY ALL ORDER BY value
"""
COUNTS_SQL = """
SELECT {value} AS value, count(*) AS jobs, count(start_utc) AS ran, coalesce(sum(wait_s), 0)::BIGINT AS wait_total_s
FROM jobs GROUP BY ALL ORDER BY value
"""
NODES_SQL = """
WITH held AS (
    SELECT p.node, a.job_key, p.gpus, ceil(a.cpus / a.nodes) AS cpus, ceil(a.mem_mib / a.nodes) AS mem_mib, a.start_utc,
        coalesce(a.end_utc, (SELECT greatest(max(submit_utc), max(start_utc), max(end_utc)) FROM jobs)) AS end_utc
    FROM placements p JOIN attempts a USING (job_key, attempt)
),
instants AS (
    SELECT node, time, lead(time) OVER (PARTITION BY node ORDER BY time) AS until
    FROM (SELECT node, start_utc AS time FROM held UNION SELECT node, end_utc FROM held)
)
SELECT i.node, min(i.time) AS first_utc, max(i.until) AS last_utc,
    sum(busy_s)::BIGINT AS busy_s, sum(gpus_s)::BIGINT AS gpus_s, sum(cpus_s)::BIGINT AS cpus_s,
    sum(mem_s)::BIGINT AS mem_s
FROM (
    SELECT i.node, i.time, i.until, CASE WHEN count(h.node) > 0 THEN epoch(i.until - i.time) ELSE 0 END AS busy_s,
        coalesce(sum(h.gpus), 0) * epoch(i.until - i.time) AS gpus_s,
        coalesce(sum(h.cpus), 0) * epoch(i.until - i.time) AS cpus_s,
        coalesce(sum(h.mem_mib), 0) * epoch(i.until - i.time) AS mem_s
    FROM instants i LEFT JOIN held h ON h.node = i.node AND h.start_utc <= i.time AND h.end_utc > i.time
    WHERE i.until IS NOT NULL GROUP BY i.node, i.time, i.until
) i GROUP BY ALL ORDER BY i.node
"""


def generated(seed: int = 3, count: int = 300) -> tuple[Trace, pl.DataFrame]:
    """Jobs of several months, some requeued, some still running, most with steps; on five nodes that they share."""
    rng = np.random.default_rng(seed)
    jobs, attempts, placements, steps = [], [], [], []
    for i in range(count):
        submit = int(rng.integers(0, 150 * 86_400))
        start = submit + int(rng.integers(0, 90_000)) if i % 11 else None
        length = int(rng.lognormal(10, 2)) + 1
        state = STATES[i % len(STATES)] if start is not None else "CANCELLED"
        end = None if state == "RUNNING" or start is None else start + length
        nodes, cpus = 1 + i % 2, int(rng.integers(1, 17))
        more = {
            "user_name": f"u{i % 13}", "account": (None, "a", "b")[i % 3], "partition": "pq"[i % 2],
            "qos": "xyz"[i % 3],
            "nodes": nodes, "cpus": cpus, "allocated_cpus": cpus, "mem_mib": (None, 1500, 4096)[i % 3], "state": state,
        }  # fmt: skip
        row = job(f"j{i}", submit, start, end, int(i % 4 == 0), **more)
        jobs.append({**row, "attempts": 0 if start is None else 1})
        if start is None:
            continue
        runs = [(start, end)]
        if i % 5 == 0 and end is not None and length > 10:  # requeued halfway
            runs = [(start, start + length // 2), (start + length // 2 + 1, end)]
        for number, (begin, until) in enumerate(runs):
            attempts.append({**row, "attempt": number, "start_utc": at(begin), "end_utc": at(until)})
            placements += [
                {"job_key": f"j{i}", "attempt": number, "node": f"n{(i + k) % 5}", "gpus": int(i % 4 == 0)}
                for k in range(nodes)
            ]
            for name in ("batch", "0")[: i % 3]:
                steps.append(
                    {
                        "job_key": f"j{i}", "step_id": name, "start_utc": at(begin), "end_utc": at(until),
                        "cpu_time_s": None if i % 7 == 0 else float(rng.integers(0, 9_000)),
                        "max_rss_kib": None if i % 4 == 0 else int(rng.integers(0, 900_000)),
                        "gpu_percent": None if i % 3 == 1 else float(i % 101),
                        "run_s": None if until is None else until - begin,
                    }
                )  # fmt: skip
    machines = [{"node": f"n{n}", "gpus": 2, "cpus": 64, "memory_mib": 64_000, "state": "IDLE"} for n in range(3)]
    machines.append({"node": "spare", "gpus": 2, "cpus": 64, "memory_mib": 64_000, "state": "DOWN"})
    return trace(jobs, attempts, placements, machines), table(schema.STEPS, steps)


def made(of: Trace, steps: pl.DataFrame, **known: Any) -> dict[str, pl.DataFrame]:
    frames = {"attempts": of.attempts, "steps": steps}
    known = {"resource": "core", **known}
    return accounting.from_trace(of, ClusterSettings(CLUSTER, **known), lambda sql, given: [query(sql, frames, given)])


@pytest.mark.parametrize("dimension", ["all", "user_name", "account", "partition", "qos", "month"])
def test_totals_are_those_of_sql(dimension: str) -> None:
    of, steps = generated()
    frames = {"jobs": of.jobs, "attempts": of.attempts, "steps": steps}
    value = {"all": "'all'", "month": "strftime(month_utc, '%Y-%m')"}.get(dimension, f'"{dimension}"')
    got = made(of, steps)["usage_by"].filter(pl.col("dimension") == dimension).sort("value")
    expected = query(USAGE_SQL.format(value=value), frames).sort("value")
    held = got.drop_nulls("core_time_s")
    assert_frame_equal(held.select(expected.columns), expected, check_dtypes=False, abs_tol=1e-9)
    counted = query(COUNTS_SQL.format(value=value.replace("month_utc", "submit_utc")), frames).sort("value")
    assert_frame_equal(got.filter(pl.col("jobs") > 0).select(counted.columns), counted, check_dtypes=False)
    assert got["unit"].unique().to_list() == ["core"]


def test_months_of_accounts_add_up_to_months() -> None:
    found = made(*generated())["usage_by"]
    months = found.filter(pl.col("dimension") == "month").sort("month_utc")
    accounts = found.filter(pl.col("dimension") == "account month").group_by("month_utc").agg(
        pl.col("core_time_s", "jobs", "share").sum()
    ).sort("month_utc")  # fmt: skip
    assert months.height >= 5 and accounts["core_time_s"].to_list() == months["core_time_s"].to_list()
    assert accounts["jobs"].to_list() == months["jobs"].to_list()
    assert accounts["share"].to_list() == pytest.approx([1.0] * months.height)


def test_totals_agree_with_the_tables_beside() -> None:
    of, steps = generated()
    settings = ClusterSettings(CLUSTER, resource="core")
    users = made(of, steps)["usage_by"].filter(pl.col("dimension") == "user_name")
    held = utilization.from_trace(of, settings)["allocated_by_user"]
    assert held["unit"].unique().to_list() == ["core"]
    weeks = dict(held.group_by("user_name").agg(pl.col("allocated_s").sum()).iter_rows())
    assert dict(users.select("value", "core_time_s").iter_rows()) == weeks
    waits = queueing.from_trace(of, settings)["queueing_by"].filter(pl.col("dimension") == "user_name")
    assert dict(users.select("value", "wait_total_s").iter_rows()) == dict(
        waits.select("value", "wait_total_s").iter_rows()
    )


def test_efficiency_leaves_out_what_runs_and_what_records_nothing() -> None:
    more: dict[str, Any] = {"cpus": 2, "allocated_cpus": 2, "mem_mib": 1024, "nodes": 1}
    jobs = [job("a", 0, 0, 100, 0, **more), job("b", 0, 0, None, 0, state="RUNNING", **more)]
    jobs.append(job("c", 0, 0, 900, 0, **more))
    steps = table(
        schema.STEPS,
        [
            {"job_key": "a", "step_id": "batch", "start_utc": at(0), "cpu_time_s": 30.0, "max_rss_kib": 512 * 1024},
            {"job_key": "a", "step_id": "0", "start_utc": at(50), "cpu_time_s": 70.0, "max_rss_kib": 256 * 1024},
            {"job_key": "b", "step_id": "batch", "start_utc": at(0), "cpu_time_s": 0.0, "max_rss_kib": 0},
        ],
    )
    row = made(trace(jobs), steps)["usage_by"].row(by_predicate=pl.col("dimension") == "all", named=True)
    assert (row["cpu_used_share"], row["cpu_measured"]) == (0.5, 1)
    assert (row["memory_used_share"], row["memory_measured"]) == (0.5, 1)
    assert (row["gpu_used_share"], row["gpu_measured"], row["gpu_measured_s"]) == (None, 0, 0)
    assert row["core_time_s"] == 2 * (100 + 900 + 900)  # the running one until the log's end


def test_gpu_time_used_is_the_last_reading_of_each_step_over_its_run_time() -> None:
    """A step of 60 s at 150 % of two GPUs, then one at 50 % for 40 s; a job without a reading does not count."""
    jobs = [job("a", 0, 0, 100, 2), job("b", 0, 0, 100, 8)]
    rows = (("a", "0", 0, 60, 150.0), ("a", "1", 60, 40, 50.0), ("a", "extern", 0, 100, None), ("b", "0", 0, 100, None))
    names = ("job_key", "step_id", "start_utc", "run_s", "gpu_percent")
    steps = [dict(zip(names, (key, step, at(start), run, gpu), strict=True)) for key, step, start, run, gpu in rows]
    row = made(trace(jobs), table(schema.STEPS, steps), resource="GPU")["usage_by"].row(
        by_predicate=pl.col("dimension") == "all", named=True
    )
    assert (row["gpu_measured"], row["gpu_measured_s"]) == (1, 200)
    assert row["gpu_used_share"] == pytest.approx((1.5 * 60 + 0.5 * 40) / 200)


@pytest.mark.parametrize(
    ("resource", "unit", "share"), [("GPU", "GPU", 1.0), ("node", "node", 0.2), ("core", "core", 0.5)]
)
def test_shares_are_of_the_binding_resource(resource: str, unit: str, share: float) -> None:
    jobs = [
        job("a", 0, 0, 100, 4, nodes=1, cpus=8, allocated_cpus=8, user_name="ann", state="FAILED"),
        job("b", 0, 0, 100, 0, nodes=4, cpus=8, allocated_cpus=8, user_name="bob"),
    ]
    found = made(trace(jobs), table(schema.STEPS, []), resource=resource)["usage_by"]
    ann = found.row(by_predicate=(pl.col("dimension") == "user_name") & (pl.col("value") == "ann"), named=True)
    whole = found.row(by_predicate=pl.col("dimension") == "all", named=True)
    assert (ann["unit"], ann["share"], whole["failed_share"]) == (resource, share, share)


def test_nodes_are_those_of_sql() -> None:
    of, steps = generated()
    found = made(of, steps)["node_utilization"]
    expected = query(NODES_SQL, {"jobs": of.jobs, "attempts": of.attempts, "placements": of.placements})
    used = found.filter(pl.col("jobs") > 0)
    columns = ["node", "first_utc", "last_utc", "busy_s"]
    assert_frame_equal(used.select(columns), expected.select(columns), check_dtypes=False)
    for share, size, held in (("gpu_share", "gpus", "gpus_s"), ("core_share", "cpus", "cpus_s")):
        got = (used[share] * used[size] * used["shown_s"]).to_list()
        assert got == pytest.approx(expected[held].to_list()), share
    assert used["memory_share"].null_count() == used.height  # a third of the jobs do not say their memory
    jobs = query("SELECT count(DISTINCT job_key) AS n FROM placements WHERE node = 'n3'", {"placements": of.placements})
    assert found.filter(pl.col("node") == "n3")["jobs"].item() == jobs.item()


def test_a_listed_node_counts_over_the_whole_log_another_one_while_it_is_seen() -> None:
    more: dict[str, Any] = {"nodes": 1, "cpus": 2, "allocated_cpus": 2}
    jobs = [job("a", 0, 0, 1000, 0, **more), job("b", 0, 200, 300, 0, **more), job("c", 0, 250, 400, 0, **more)]
    placements = [{"job_key": key, "node": node, "gpus": 0} for key, node in (("a", "n0"), ("b", "n1"), ("c", "n1"))]
    listed = [{"node": "n0", "cpus": 4, "state": "MIXED"}, {"node": "n2", "cpus": 4, "state": "DOWN*"}]
    found = made(trace(jobs, placements=placements, nodes=listed), table(schema.STEPS, []))["node_utilization"]
    rows = {row["node"]: row for row in found.to_dicts()}
    assert (rows["n0"]["busy_share"], rows["n0"]["core_share"], rows["n0"]["state"]) == (1.0, 0.5, "MIXED")
    n1 = rows["n1"]
    assert (n1["shown_s"], n1["busy_s"], n1["jobs"], n1["state"]) == (200, 200, 2, None)
    assert n1["core_share"] == pytest.approx((2 * 100 + 2 * 150) / (4 * 200))
    assert (rows["n2"]["jobs"], rows["n2"]["busy_share"], rows["n2"]["core_share"], rows["n2"]["state"]) == (
        0, 0.0, 0.0, "DOWN*",
    )  # fmt: skip
    assert rows["n2"]["first_utc"] is None and rows["n2"]["shown_s"] == 1000


def test_a_log_that_does_not_name_the_nodes_of_its_jobs_has_no_use_of_nodes() -> None:
    of = trace([job("a", 0, 0, 100, 1)], nodes=[{"node": "n0", "gpus": 4}])
    assert made(of, table(schema.STEPS, []))["node_utilization"].is_empty()


def test_steps_come_from_the_warehouse(tmp_path: Path) -> None:
    """From the raw text of a dump with steps: CPU and memory efficiency by hand."""
    head = "JobID|User|Account|Partition|QOS|Submit|Start|End|State|AllocNodes|AllocTRES|TotalCPU|MaxRSS|ExitCode"
    day = EPOCH.strftime("%Y-%m-%dT")

    def line(id: str, state: str, tres: str, cpu: str, rss: str) -> str:
        user, rest = ("", "||") if "." in id else ("ann", "lab|cpu|normal")
        return f"{id}|{user}|{rest}|{day}00:00:00|{day}00:00:00|{day}01:00:00|{state}|1|{tres}|{cpu}|{rss}|0:0"

    rows = [
        line("1", "COMPLETED", "cpu=4,mem=8G,node=1", "02:00:00", ""),
        line("1.batch", "COMPLETED", "cpu=4,mem=8G,node=1", "00:30:00", "1G"),
        line("1.0", "COMPLETED", "cpu=4,mem=8G,node=1", "01:30:00", "2G"),
        line("2", "FAILED", "cpu=4,mem=8G,node=1", "", ""),
    ]
    raw = tmp_path / "sacct.txt"
    raw.write_text("\n".join([head, *rows]) + "\n")
    data, settings = DataFolder(tmp_path / "data"), ClusterSettings("lab")
    ingest([raw], cluster=settings, data=data)
    warehouse.build(data)
    row = accounting.compute(data, settings)["usage_by"].row(by_predicate=pl.col("dimension") == "qos", named=True)
    assert (row["value"], row["jobs"], row["ran"], row["core_time_s"]) == ("normal", 2, 2, 8 * 3600)
    assert (row["cpu_used_share"], row["cpu_measured"]) == (0.5, 1)
    assert (row["memory_used_share"], row["memory_measured"]) == (0.25, 1)
    assert row["memory_time_gib_s"] == 16 * 3600 and row["failed_share"] == 0.5


def test_what_is_held_over_a_change_of_months_is_cut_there() -> None:
    start = int((datetime(2023, 3, 1) - EPOCH).total_seconds()) - 100
    jobs = [job("a", start - 10, start, start + 300, 0, nodes=2, cpus=3, allocated_cpus=3)]
    steps = table(schema.STEPS, [{"job_key": "a", "step_id": "0", "start_utc": at(start), "cpu_time_s": 450.0}])
    found = made(trace(jobs), steps)["usage_by"].filter(pl.col("dimension") == "month").to_dicts()
    assert [(r["value"], r["jobs"], r["core_time_s"], r["cpu_used_share"]) for r in found] == [
        ("2023-02", 1, 300, 0.5),
        ("2023-03", 0, 600, 0.5),
    ]
    assert found[1]["month_utc"] - found[0]["month_utc"] == timedelta(days=28)
