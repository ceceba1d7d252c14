"""Utilization: allocated against SQL, measured (SQL) against a loop over samples."""

from __future__ import annotations

from datetime import timedelta
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features import utilization
from features.trace import Trace
from tests.features.toy import CLUSTER, EPOCH, at, job, random_jobs, table, trace
from traces import schema
from traces.clusters import ClusterSettings
from traces.store import query

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
    got = utilization.from_trace(of, ClusterSettings(CLUSTER))["utilization_allocated"]
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
    assert first(short) == (held, 6 * 3600, "machine list, raised to the peak in use")
    assert first(of) == (held, 6 * 3600, "peak in use")
    by_date = first(of, nodes=5, gpus_per_node=4, nodes_by_date=((at(1800), 10),))
    assert by_date == (held, 20 * 1800 + 40 * 1800, "settings")


def test_nodes_stand_in_where_no_gpu_is_known() -> None:
    got = utilization.from_trace(trace([job("a", 0, 0, 3600, None, nodes=3)]), ClusterSettings(CLUSTER, nodes=4))
    row = got["utilization_allocated"].to_dicts()[0]
    assert (row["unit"], row["allocated_share"]) == ("node", 0.75)


Sample = tuple[str, int, int, float | None]


def join(of: Trace, samples: list[Sample]) -> pl.DataFrame:
    rows = [
        {"node": node, "sample_utc": EPOCH + timedelta(minutes=minute), "gpu": gpu, "utilization_percent": value}
        for node, minute, gpu, value in samples
    ]
    frames = {
        "attempts": of.attempts,
        "placements": of.placements,
        "gpu_utilization": table(schema.GPU_UTILIZATION, rows),
    }
    return query(utilization.MEASURED_SQL, frames, (CLUSTER,))


def test_a_minute_belongs_to_the_attempt_that_began_at_it_not_to_the_one_that_ended() -> None:
    of = trace(
        [job("a", 0, 0, 120, 1), job("b", 0, 120, 240, 1)],
        placements=[{"job_key": key, "node": "n", "gpus": 1, "gpu_numbers": "0"} for key in "ab"],
    )
    found = {r["job_key"]: r for r in join(of, [("n", m, 0, float(m)) for m in range(6)]).to_dicts()}
    assert (found["a"]["samples"], found["a"]["utilization_mean_percent"]) == (2, 0.5)
    assert (found["b"]["samples"], found["b"]["utilization_mean_percent"]) == (2, 2.5)
    assert found["a"]["idle_node_minutes"] == 1 and found["a"]["shared_node_minutes"] == 0


def test_an_attempt_without_an_end_gives_its_gpu_up_when_another_starts_on_it() -> None:
    of = trace(
        [job("open", 0, 0, None, 1), job("next", 0, 120, 240, 1)],
        placements=[{"job_key": key, "node": "n", "gpus": 1, "gpu_numbers": "0"} for key in ("open", "next")],
    )
    joined = join(of, [("n", m, 0, 50.0) for m in range(6)])
    assert dict(joined.select("job_key", "samples").iter_rows()) == {"open": 2, "next": 2}
    got = utilization.from_trace(of, ClusterSettings(CLUSTER), joined)["utilization_allocated"]
    assert got.filter(pl.col("scope") == "cluster")["allocated_s"].sum() == 240


def test_idle_means_every_gpu_held_at_exactly_zero() -> None:
    of = trace(
        [job("a", 0, 0, 240, 2), job("b", 0, 0, 240, 1)],
        placements=[
            {"job_key": "a", "node": "n", "gpus": 2, "gpu_numbers": "0,1"},
            {"job_key": "b", "node": "n", "gpus": 1, "gpu_numbers": "2"},
        ],
    )
    samples: list[Sample] = []
    for minute, (zero, one) in enumerate([(0.0, 0.0), (0.0, 0.1), (None, 0.0), (None, None)]):
        samples += [("n", minute, 0, zero), ("n", minute, 1, one), ("n", minute, 2, 100.0)]
    found = {r["job_key"]: r for r in join(of, samples).to_dicts()}
    a, b = found["a"], found["b"]
    assert (a["attribution"], a["samples"], a["offline_samples"]) == ("gpu", 8, 3)
    assert (a["idle_node_minutes"], a["online_node_minutes"], a["node_minutes"]) == (2, 3, 4)
    assert a["idle_share"] == pytest.approx(2 / 3) and a["shared_node_minutes"] == 4
    assert (b["idle_share"], b["utilization_p50_percent"]) == (0, 100)


@st.composite
def sampled(draw: st.DrawFn) -> tuple[Trace, list[Sample]]:
    jobs, placements = [], []
    for i in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, 600))
        numbers = draw(st.sets(st.integers(0, 2), min_size=1))
        named = draw(st.booleans())
        ends = draw(st.one_of(st.none(), st.integers(start, 900)))
        jobs.append(job(f"j{i}", 0, start, ends, len(numbers)))
        for node in draw(st.sets(st.sampled_from(("n0", "n1")), min_size=1)):
            text = ",".join(map(str, sorted(numbers))) if named else None
            placements.append({"job_key": f"j{i}", "node": node, "gpus": len(numbers), "gpu_numbers": text})
    values = st.sampled_from((None, 0.0, 0.0, 40.0, 100.0))
    samples = [(n, m, g, draw(values)) for n in ("n0", "n1") for m in range(0, 16, 2) for g in range(3)]
    return trace(jobs, placements=placements), samples


@settings(max_examples=40, deadline=None)
@given(sampled())
def test_the_join_is_that_of_a_loop(case: tuple[Trace, list[Sample]]) -> None:
    of, samples = case
    found = {r["job_key"]: r for r in join(of, samples).to_dicts()}
    spans = {r["job_key"]: r for r in of.attempts.to_dicts()}

    def held_by(key: str) -> set[tuple[str, str]]:
        return {
            (p["node"], gpu)
            for p in of.placements.to_dicts()
            if p["job_key"] == key and p["gpu_numbers"]
            for gpu in p["gpu_numbers"].split(",")
        }

    def end(key: str) -> Any:
        if spans[key]["end_utc"] is not None:
            return spans[key]["end_utc"]
        later = [
            span["start_utc"]
            for other, span in spans.items()
            if span["start_utc"] > spans[key]["start_utc"] and held_by(key) & held_by(other)
        ]
        return min(later, default=EPOCH + timedelta(days=99))

    until = {key: end(key) for key in spans}

    def holds(placement: dict[str, Any], node: str, minute: int) -> bool:
        key, when = placement["job_key"], EPOCH + timedelta(minutes=minute)
        return bool(placement["node"] == node and spans[key]["start_utc"] <= when < until[key])

    for key in spans:
        counted: dict[tuple[str, int], list[float | None]] = {}
        for node, minute, gpu, value in samples:
            for placement in of.placements.to_dicts():
                if placement["job_key"] == key and holds(placement, node, minute):
                    numbers = placement["gpu_numbers"]
                    if numbers is None or str(gpu) in numbers.split(","):
                        counted.setdefault((node, minute), []).append(value)
        if not counted:
            assert key not in found
            continue
        got = found[key]
        online = [v for values in counted.values() for v in values if v is not None]
        assert got["samples"] == sum(map(len, counted.values())) and got["node_minutes"] == len(counted)
        assert got["offline_samples"] == got["samples"] - len(online)
        idle = sum(1 for values in counted.values() if set(values) in ({0.0}, {0.0, None}))
        assert got["idle_node_minutes"] == idle
        others = [p for p in of.placements.to_dicts() if p["job_key"] != key]
        assert got["shared_node_minutes"] == sum(any(holds(p, *minute) for p in others) for minute in counted)
        if online:
            assert got["utilization_mean_percent"] == pytest.approx(mean(online))
            assert got["utilization_p95_percent"] == pytest.approx(float(np.quantile(online, 0.95)))


def test_by_size_and_state_weighs_by_samples() -> None:
    of = trace(
        [job("a", 0, 0, 60, 1), job("b", 0, 0, 240, 1), job("c", 0, 0, 60, 8, state="FAILED")],
        placements=[{"job_key": k, "node": k, "gpus": 1, "gpu_numbers": "0"} for k in "ab"],
    )
    joined = join(of, [("a", 0, 0, 100.0), *(("b", m, 0, 0.0) for m in range(4))])
    rows = utilization.from_trace(of, ClusterSettings(CLUSTER), joined)["utilization_by"].to_dicts()
    found = {(r["size_bucket"], r["state"]): r for r in rows}
    one, eight = found["1", "COMPLETED"], found["5-8", "FAILED"]
    assert (one["jobs"], one["samples"], one["utilization_mean_percent"], one["idle_share"]) == (2, 5, 20, 0.8)
    assert (eight["measured_attempts"], eight["utilization_mean_percent"], eight["idle_share"]) == (0, None, None)
    assert eight["gpu_time_share"] == pytest.approx(480 / 780)


@pytest.mark.parametrize("rows", [[], [job("x", 0, None, 50, 4, state="CANCELLED")]])
def test_nothing_ran(rows: list[dict[str, Any]]) -> None:
    of = trace(rows)
    for name, frame in utilization.from_trace(of, ClusterSettings(CLUSTER), join(of, [])).items():
        assert frame.is_empty(), name
