"""Allocated share over time and by user, against SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal

from features.load import load
from features.resources import accounting, utilization
from features.trace import Trace
from tests.features.toy import CLUSTER, at, job, random_jobs, table, trace
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.frames import query

ALLOCATED_SQL = """
WITH runs AS (
    SELECT a.start_utc, a.end_utc, j."partition", a.gpus FROM attempts AS a JOIN jobs AS j USING (job_key)
    WHERE a.start_utc IS NOT NULL
),
hours AS (
    SELECT unnest(range(date_trunc('hour', min(start_utc)), max(end_utc), INTERVAL 1 HOUR)) AS hour_utc FROM runs
)
SELECT hour_utc, coalesce(sum(gpus * greatest(
        epoch(least(end_utc, hour_utc + INTERVAL 1 HOUR)) - epoch(greatest(start_utc, hour_utc)), 0)
    ), 0)::BIGINT AS allocated_s
FROM hours LEFT JOIN runs ON start_utc < hour_utc + INTERVAL 1 HOUR AND end_utc > hour_utc
GROUP BY hour_utc ORDER BY hour_utc
"""


@settings(max_examples=40, deadline=None)
@given(random_jobs(fewest=1))
def test_allocated_is_that_of_sql(rows: list[dict[str, Any]]) -> None:
    of = trace(rows)
    if not any(r["run_s"] and r["gpus"] for r in rows):
        return
    got = utilization.from_trace(of, ClusterSettings(CLUSTER))["utilization_allocated"].filter(pl.col("unit") == "GPU")
    whole = got.filter(pl.col("scope") == "cluster").select("hour_utc", "allocated_s")
    expected = query(ALLOCATED_SQL, {"jobs": of.jobs, "attempts": of.attempts})
    assert_frame_equal(whole, expected, check_dtypes=False)
    parts = got.filter(pl.col("scope") == "partition").group_by("hour_utc").agg(pl.col("allocated_s").sum())
    assert parts["allocated_s"].sum() == whole["allocated_s"].sum() == sum(
        r["run_s"] * (r["gpus"] or 0) for r in rows if r["run_s"]
    )  # fmt: skip


def test_capacity_is_given_listed_or_the_peak_and_says_which() -> None:
    of = trace([job("a", 0, 0, 3600, 2, nodes=1), job("b", 0, 0, 1800, 4, nodes=1)])
    listed = Trace(of.jobs, of.attempts, of.placements, table(schema.NODES, [{"node": "n0", "gpus": 10}]))

    def first(of: Trace, **known: Any) -> tuple[Any, ...]:
        row = utilization.from_trace(of, ClusterSettings(CLUSTER, **known))["utilization_allocated"].to_dicts()[0]
        return row["allocated_s"], row["capacity_s"], row["capacity_source"]

    held = 2 * 3600 + 4 * 1800
    assert first(of, nodes=5, gpus_per_node=4) == (held, 20 * 3600, "settings")
    assert first(listed) == (held, 10 * 3600, "machine list")
    short = Trace(of.jobs, of.attempts, of.placements, table(schema.NODES, [{"node": "n0", "gpus": 3}]))
    assert first(short) == (held, 6 * 3600, "machine list")
    whole = utilization.from_trace(short, ClusterSettings(CLUSTER))["resources"].row(0, named=True)
    assert (whole["known_by"], whole["gpus"]) == ("in the machine list", 6)
    assert whole["contradictions"] == "3 GPUs are in the machine list, but jobs held 6 at once"
    assert first(of) == (held, 6 * 3600, "peak in use")
    by_date = first(of, nodes=5, gpus_per_node=4, nodes_by_date=((at(1800), 10),))
    assert by_date == (held, 20 * 1800 + 40 * 1800, "settings")


def test_jobs_that_share_a_gpu_hold_their_parts_of_it() -> None:
    rows = [job("a", 0, 0, 3600, 1, nodes=1), job("b", 0, 0, 1800, 1, nodes=1), job("c", 0, 0, 3600, 2, nodes=1)]
    of = trace(rows, [{**rows[0], "gpu_part": 0.25}, {**rows[1], "gpu_part": 0.5}, rows[2]])
    (hour,) = _of_cluster(of, "GPU")
    assert (hour["allocated_s"], hour["capacity_s"]) == (900 + 900 + 7200, 4 * 3600)
    usage = accounting.from_trace(of, ClusterSettings(CLUSTER))["usage_by"].filter(pl.col("dimension") == "all")
    assert usage["gpu_time_s"].to_list() == [9000]
    day = load.from_trace(of, ClusterSettings(CLUSTER))["load"].row(0, named=True)
    assert day["gpus_held_mean"] == pytest.approx(9000 / 86_400)


def _of_cluster(of: Trace, unit: str) -> list[dict[str, Any]]:
    hours = utilization.from_trace(of, ClusterSettings(CLUSTER))["utilization_allocated"]
    return hours.filter((pl.col("unit") == unit) & (pl.col("scope") == "cluster")).to_dicts()


def test_nodes_stand_in_where_no_gpu_is_known() -> None:
    got = utilization.from_trace(trace([job("a", 0, 0, 3600, None, nodes=3)]), ClusterSettings(CLUSTER, nodes=4))
    row = got["utilization_allocated"].to_dicts()[0]
    assert (row["unit"], row["allocated_share"]) == ("node", 0.75)


def test_every_resource_that_the_log_knows_has_its_hours_and_one_is_binding() -> None:
    more: dict[str, Any] = {"cpus": 6, "allocated_cpus": 6, "mem_mib": 3 * 1024, "nodes": 2, "partition": "p"}
    of = trace([job("a", 0, 1800, 5400, 4, **more), job("b", 0, 0, 3600, 0, **{**more, "partition": "q"})])
    known = ClusterSettings(CLUSTER, nodes=8, cpus_per_node=4, gpus_per_node=2, memory_gib_per_node=1, resource="core")
    found = utilization.from_trace(of, replace(known, resources={"q": "memory"}))
    got = found["utilization_allocated"]
    hours = got.filter(pl.col("scope") == "cluster").select("unit", "allocated_s", "capacity_s", "is_binding")
    assert {row[0]: row[1:] for row in hours.group_by("unit").agg(pl.all()).iter_rows()} == {
        "GPU": ([4 * 1800] * 2, [16 * 3600, 16 * 1800], [False] * 2),
        "core": ([6 * 5400, 6 * 1800], [32 * 3600, 32 * 1800], [True] * 2),
        "GiB": ([3 * 5400, 3 * 1800], [8 * 3600, 8 * 1800], [False] * 2),
        "node": ([2 * 5400, 2 * 1800], [8 * 3600, 8 * 1800], [False] * 2),
    }
    binding = got.filter(pl.col("is_binding") & (pl.col("scope") == "partition"))
    assert dict(binding.select("partition", "unit").unique().iter_rows()) == {"p": "core", "q": "GiB"}
    said = found["resources"].select("scope", "partition", "resource", "is_declared").rows()
    assert said == [
        ("cluster", None, "core", True),
        ("partition", "p", "core", True),
        ("partition", "q", "memory", True),
    ]
    assert found["allocated_by_user"]["unit"].to_list() == ["core"]
    assert found["allocated_by_user"]["allocated_s"].to_list() == [2 * 6 * 3600]


def test_before_a_dump_by_end_shows_all_that_ran_the_capacity_is_not_counted() -> None:
    """A hundred jobs of an hour, of which the dump has those that ended from 50:30 on; one of them ran for 20 hours."""
    at_s = 50 * 3600 + 1800
    jobs = [job(f"j{i}", 0, 3600 * i, 3600 * (i + 1), 1, nodes=1) for i in range(100) if 3600 * (i + 1) >= at_s]
    jobs += [job(f"long{i}", 0, at_s - 72_000, at_s + 60 * i, 1, nodes=1) for i in range(20)]
    found = utilization.from_trace(trace(jobs), ClusterSettings(CLUSTER, nodes=40, gpus_per_node=1))
    whole = found["resources"].row(0, named=True)
    assert (whole["since_utc"], whole["until_utc"]) == (at(at_s), at(100 * 3600))
    hours = found["utilization_allocated"].filter((pl.col("scope") == "cluster") & pl.col("is_binding"))
    known = hours.filter(pl.col("capacity_s").is_not_null())
    assert known["hour_utc"].min() == at(51 * 3600) and known["capacity_s"].unique().to_list() == [40 * 3600]
    assert hours["allocated_s"].sum() == sum(row["gpu_time_s"] for row in jobs)


@settings(max_examples=40, deadline=None)
@given(random_jobs(fewest=1))
def test_allocated_by_user_adds_up_to_the_cluster(rows: list[dict[str, Any]]) -> None:
    found = utilization.from_trace(trace(rows), ClusterSettings(CLUSTER))
    users = found["allocated_by_user"]
    if users.is_empty() or users["unit"][0] == "node":
        return
    held = query(
        "SELECT user_name, sum(run_s * gpus)::BIGINT AS s FROM attempts JOIN jobs USING (job_key) "
        "WHERE attempts.run_s * gpus > 0 GROUP BY ALL",
        {"attempts": trace(rows).attempts.select("job_key", "run_s", "gpus"), "jobs": trace(rows).jobs.drop("run_s")},
    )
    assert dict(users.group_by("user_name").agg(pl.col("allocated_s").sum()).iter_rows()) == dict(held.iter_rows())
    assert users.group_by("week_utc").agg(pl.col("share_of_allocated").sum())["share_of_allocated"].to_list() == (
        pytest.approx([1.0] * users["week_utc"].n_unique())
    )
