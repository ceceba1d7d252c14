"""Measured utilization: the join of samples with attempts against a loop over samples, and against SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features.resources import samples as joining
from features.resources import utilization
from features.resources.samples import Fetch
from features.trace import Trace
from tests.features.toy import CLUSTER, EPOCH, at, job, table, trace
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.frames import query

Sample = tuple[str, int, int, float | None]


NodeSample = tuple[str, int, float | None]
JOIN_SQL = (Path(__file__).parent / "join_gpu_samples.sql").read_text(encoding="utf-8")


def sample_frames(
    of: Trace, gpu: list[Sample], cpu: Sequence[NodeSample] = (), memory: Sequence[NodeSample] = ()
) -> dict[str, pl.DataFrame]:
    """Tables as the warehouse holds them; of memory the share in use is given, in percent."""

    def when(minute: int) -> Any:
        return EPOCH + timedelta(minutes=minute)

    return {
        "attempts": of.attempts,
        "placements": of.placements,
        "gpu_utilization": table(
            schema.GPU_UTILIZATION,
            [{"node": n, "sample_utc": when(m), "gpu": g, "utilization_percent": v} for n, m, g, v in gpu],
        ),
        "cpu_utilization": table(
            schema.CPU_UTILIZATION, [{"node": n, "sample_utc": when(m), "utilization_percent": v} for n, m, v in cpu]
        ),
        "memory_utilization": table(
            schema.MEMORY_UTILIZATION,
            [
                {
                    "node": n,
                    "sample_utc": when(m),
                    "total_kib": None if v is None else 1000,
                    "free_kib": None if v is None else round(1000 - 10 * v),
                }
                for n, m, v in memory
            ],
        ),
    }


def fetch(*given: Any) -> Fetch:
    frames = sample_frames(*given)
    return lambda sql, params: [query(sql, frames, params)]


def tables(*given: Any, **known: Any) -> dict[str, pl.DataFrame]:
    return utilization.from_trace(given[0], ClusterSettings(CLUSTER, **known), fetch(*given))


def join(*given: Any) -> pl.DataFrame:
    return tables(*given)["utilization_measured"]


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
    found = tables(of, [("n", m, 0, 50.0) for m in range(6)])
    assert dict(found["utilization_measured"].select("job_key", "samples").iter_rows()) == {"open": 2, "next": 2}
    got = found["utilization_allocated"]
    assert got.filter((pl.col("scope") == "cluster") & (pl.col("unit") == "GPU"))["allocated_s"].sum() == 240


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


@settings(max_examples=25, deadline=None)
@given(sampled())
def test_the_join_is_that_of_a_loop(case: tuple[Trace, list[Sample]]) -> None:
    """The join against loops over jobs, samples and placements.

    Over 50 lines: the loops ask one another who holds what until when, and read best as one text.
    """
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
    given = [("a", 0, 0, 100.0), *(("b", m, 0, 0.0) for m in range(4))]
    rows = tables(of, given)["utilization_by"].to_dicts()
    found = {(r["size_bucket"], r["state"]): r for r in rows}
    one, eight = found["1", "COMPLETED"], found["5-8", "FAILED"]
    assert (one["jobs"], one["samples"], one["utilization_mean_percent"], one["idle_share"]) == (2, 5, 20, 0.8)
    assert (eight["measured_attempts"], eight["utilization_mean_percent"], eight["idle_share"]) == (0, None, None)
    assert eight["gpu_time_share"] == pytest.approx(480 / 780)


@pytest.mark.parametrize("rows", [[], [job("x", 0, None, 50, 4, state="CANCELLED")]])
def test_nothing_ran(rows: list[dict[str, Any]]) -> None:
    of = trace(rows)
    for name, frame in tables(of, []).items():
        assert frame.is_empty() or name == "resources", name


def test_the_join_is_that_of_sql() -> None:
    """On a trace with every oddity at once: attempts without an end, without GPU numbers, on several nodes, sharing."""
    rng = np.random.default_rng(9)
    jobs, placements = [], []
    for i in range(300):
        start = int(rng.integers(0, 20_000))
        end = None if i % 10 == 0 else start + int(rng.lognormal(6, 2))
        jobs.append(job(f"j{i}", 0, start, end, 2))
        for node in rng.choice(8, 1 + i % 3, replace=False):
            numbers = ",".join(map(str, sorted(rng.choice(4, 1 + i % 4, replace=False)))) if i % 7 else None
            placements.append({"job_key": f"j{i}", "node": f"n{node}", "gpus": 1, "gpu_numbers": numbers})
    of = trace(jobs, placements=placements)
    values = [None, 0.0, 0.0, *(float(v) for v in rng.random(20) * 100)]
    samples = [(f"n{n}", m, g, values[rng.integers(0, 23)]) for n in range(8) for m in range(400) for g in range(4)]
    expected = query(JOIN_SQL, sample_frames(of, samples), (CLUSTER,))
    got = join(of, samples).select(expected.columns)
    assert got.height > 250
    assert_frame_equal(got, expected, check_dtypes=False, abs_tol=1e-9)


@pytest.mark.parametrize("rows_at_once", [1, 40])
def test_nodes_read_some_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    rng = np.random.default_rng(5)
    jobs, placements = [], []
    for i in range(12):
        start = int(rng.integers(0, 900))
        jobs.append(job(f"j{i}", 0, start, start + int(rng.integers(0, 1500)), 2))
        for node in rng.choice(5, 1 + i % 3, replace=False):
            placements.append({"job_key": f"j{i}", "node": f"n{node}", "gpus": 1, "gpu_numbers": str(i % 3)})
    of = trace(jobs, placements=placements)
    gpu = [
        (f"n{n}", m, g, float(rng.choice([0, 0, 33.3, 99.9]))) for n in range(5) for m in range(40) for g in range(3)
    ]
    cpu = [(f"n{n}", m, float(rng.integers(0, 100))) for n in range(5) for m in range(40)]
    memory = [(f"n{n}", m, float(rng.integers(0, 100))) for n in range(5) for m in range(40)]
    whole = tables(of, gpu, cpu, memory)
    monkeypatch.setattr(joining, "ROWS_AT_ONCE", rows_at_once)
    for name, frame in tables(of, gpu, cpu, memory).items():
        assert_frame_equal(frame, whole[name])


def test_a_gpu_minute_read_twice_counts_once_and_is_told() -> None:
    of = trace([job("a", 0, 0, 120, 1)], placements=[{"job_key": "a", "node": "n", "gpus": 1, "gpu_numbers": "0"}])
    row = join(of, [("n", 0, 0, 10.0), ("n", 1, 0, 20.0), ("n", 1, 0, 40.0)]).to_dicts()[0]
    assert (row["samples"], row["repeated_samples"], row["utilization_mean_percent"]) == (2, 1, 25.0)


def test_samples_at_odd_seconds_and_after_a_gap_of_weeks() -> None:
    of = trace(
        [job("a", 0, 0, 60, 1), job("b", 0, 3_000_000, 3_000_060, 1)],
        placements=[{"job_key": k, "node": "n", "gpus": 1, "gpu_numbers": "0"} for k in "ab"],
    )
    frames = sample_frames(of, [])
    rows = [
        {"node": "n", "sample_utc": at(second), "gpu": 0, "utilization_percent": float(second % 7)}
        for second in (0, 59, 60, 2_999_999, 3_000_000, 3_000_059, 3_000_060)
    ]
    frames["gpu_utilization"] = table(schema.GPU_UTILIZATION, rows)
    found = utilization.from_trace(of, ClusterSettings(CLUSTER), lambda sql, given: [query(sql, frames, given)])
    assert found["utilization_measured"]["samples"].to_list() == [2, 2]


def test_groups_pool_every_sample_of_their_attempts() -> None:
    """Mean and percentiles of groups against a loop over attempts, minutes and GPUs."""
    of = trace(
        [job("a", 0, 0, 240, 2), job("b", 0, 120, 360, 2, state="FAILED"), job("c", 0, 0, 360, 1)],
        placements=[
            {"job_key": "a", "node": "n0", "gpus": 1, "gpu_numbers": "0"},
            {"job_key": "a", "node": "n1", "gpus": 1, "gpu_numbers": "0"},
            {"job_key": "b", "node": "n0", "gpus": 2, "gpu_numbers": "1,2"},
            {"job_key": "c", "node": "n2", "gpus": 1, "gpu_numbers": "0"},
        ],
    )
    gpu = [
        (f"n{n}", m, g, float((7 * n + 13 * m + 29 * g) % 101)) for n in range(3) for m in range(6) for g in range(3)
    ]
    cpu = [(f"n{n}", m, float(10 * n + m)) for n in range(3) for m in range(6)]
    memory = [(f"n{n}", m, float(50 + m)) for n in range(3) for m in range(6)]
    found = tables(of, gpu, cpu, memory)
    value = {(n, m, g): v for n, m, g, v in gpu}
    a = [value[n, m, 0] for n in ("n0", "n1") for m in range(4)]
    a_shared = [value["n0", m, 0] for m in (2, 3)]
    b = [value["n0", m, g] for m in range(2, 6) for g in (1, 2)]
    b_shared = [value["n0", m, g] for m in (2, 3) for g in (1, 2)]
    c = [value["n2", m, 0] for m in range(6)]
    expected = {
        ("all", None, None, None, None, None): a + b + c,
        ("size_bucket", "1", None, None, None, None): c,
        ("size_bucket", "2-4", None, None, None, None): a + b,
        ("state", None, None, "COMPLETED", None, None): a + c,
        ("sharing", None, None, None, None, "shared"): a_shared + b_shared,
        ("gpus nodes", None, 2, None, 2, None): a,
        ("gpus nodes", None, 2, None, 1, None): b,
        ("gpus state", None, 2, "FAILED", None, None): b,
        ("gpus sharing", None, 2, None, None, "shared"): a_shared + b_shared,
    }
    rows = found["utilization_percentiles"].filter(pl.col("resource") == "GPU").to_dicts()
    by_key = {(r["grouping"], *(r[k] for k in ("size_bucket", "gpus", "state", "nodes", "sharing"))): r for r in rows}
    for key, values in expected.items():
        got = by_key[key]
        assert got["samples"] == len(values), key
        assert got["mean_percent"] == pytest.approx(mean(values)), key
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95)):
            assert got[f"{name}_percent"] == pytest.approx(float(np.quantile(values, share))), (key, name)
    assert by_key["sharing", None, None, None, None, "shared"]["attempts"] == 2
    measured = {r["job_key"]: r for r in found["utilization_measured"].to_dicts()}
    assert measured["a"]["cpu_mean_percent"] == pytest.approx(mean([*range(4), *range(10, 14)]))
    assert measured["c"]["memory_mean_percent"] == pytest.approx(mean(range(50, 56)))


def test_idle_gpu_time_by_user_and_job() -> None:
    of = trace(
        [job("a", 0, 0, 240, 2, user_name="ann"), job("b", 0, 0, 240, 1, user_name="bob")],
        placements=[
            {"job_key": "a", "node": "n", "gpus": 2, "gpu_numbers": "0,1"},
            {"job_key": "b", "node": "n", "gpus": 1, "gpu_numbers": "2"},
        ],
    )
    gpu = [("n", m, g, 0.0 if m < 2 or g == 0 else 50.0) for m in range(4) for g in range(3)]
    rows = tables(of, gpu)["idle_gpu_time"].to_dicts()
    found = {(r["dimension"], r["value"]): (r["measured_gpu_time_s"], r["idle_gpu_time_s"]) for r in rows}
    # a's second GPU works in minutes 2 and 3: its node is then not idle, although GPU 0 reads 0.
    assert found["user_name", "ann"] == found["job_key", "a"] == (480, 240)
    assert found["user_name", "bob"] == (240, 120) and found["all", "all"] == (720, 360)
