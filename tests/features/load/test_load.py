"""Load against SQL and a loop; drift against scipy and a loop over bins."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from features.load import load
from tests.features.toy import CLUSTER, EPOCH, job, random_jobs, trace
from traces.clusters import ClusterSettings
from traces.store.frames import query

DAY, WEEK = 86_400, 7 * 86_400


@settings(max_examples=40, deadline=None)
@given(random_jobs(fewest=1), st.sampled_from((1, 40)))
def test_a_day_is_that_of_a_loop(rows: list[dict[str, Any]], stretch: int) -> None:
    """Concurrency second by second, on the instants at which anything changes."""
    for row in rows:
        for name in ("submit_utc", "eligible_utc", "start_utc", "end_utc"):
            if row[name] is not None:
                row[name] = EPOCH + (row[name] - EPOCH) * stretch
    found = load.from_trace(trace(rows), ClusterSettings(CLUSTER))["load"].to_dicts()
    ran = [row for row in rows if row["start_utc"] is not None]

    def span(row: dict[str, Any]) -> tuple[Any, Any]:
        return row["eligible_utc"], row["start_utc"] or row["end_utc"]

    for day in found:
        begin, end = day["day_utc"], day["day_utc"] + timedelta(days=1)
        assert day["arrivals"] == sum(begin <= row["submit_utc"] < end for row in rows)
        for name, spans in (
            ("running", [(r["start_utc"], r["end_utc"]) for r in ran]),
            ("queued", list(map(span, rows))),
        ):
            inside = sum(max((min(b, end) - max(a, begin)).total_seconds(), 0) for a, b in spans)
            assert day[f"{name}_mean"] == pytest.approx(inside / DAY)
            instants = {begin, *(a for a, _ in spans if begin <= a < end)}
            assert day[f"{name}_peak"] == max(sum(a <= at < b for a, b in spans) for at in instants)
    assert sum(day["arrivals"] for day in found) == len(rows)


def test_demand_and_bursts_against_sql() -> None:
    rng = np.random.default_rng(3)
    submits = np.sort(rng.integers(0, 3 * DAY, 200)).tolist()
    rows = [
        job(f"j{i}", s, s + 60, s + 60 + int(rng.integers(1, 9000)), int(rng.integers(1, 9)))
        for i, s in enumerate(submits)
    ]
    of = trace(rows)
    expected = query(
        """WITH gaps AS (
             SELECT date_trunc('day', submit_utc) AS day_utc, gpu_time_s,
               epoch(submit_utc - lag(submit_utc) OVER (ORDER BY submit_utc, job_key)) AS gap FROM jobs)
           SELECT day_utc, sum(gpu_time_s)::BIGINT AS demand_gpu_time_s, avg(gap) AS interarrival_mean_s,
             stddev_samp(gap) / avg(gap) AS interarrival_variation FROM gaps GROUP BY ALL ORDER BY day_utc""",
        {"jobs": of.jobs},
    )
    found = load.from_trace(of, ClusterSettings(CLUSTER))["load"].select(expected.columns).head(expected.height)
    for name in expected.columns[1:]:
        assert found[name].to_list() == pytest.approx(expected[name].to_list())


samples = st.lists(st.sampled_from((0.0, 1.0, 2.0, 2.5, 9.0, 100.0)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(samples, samples)
def test_distances_are_those_of_scipy_and_of_a_loop(old: list[float], new: list[float]) -> None:
    a, b = np.sort(old), np.sort(new)
    assert load.kolmogorov_smirnov(a, b) == pytest.approx(ks_2samp(a, b, method="asymp").statistic)
    edges = sorted({sorted(old)[-(-len(old) * k // 10) - 1] for k in range(1, 10)})
    bins = [-np.inf, *edges, np.inf]
    expected = 0.0
    for low, high in pairwise(bins):
        p = (sum(low < x <= high for x in old) + 0.5) / (len(old) + 0.5 * (len(bins) - 1))
        q = (sum(low < x <= high for x in new) + 0.5) / (len(new) + 0.5 * (len(bins) - 1))
        expected += (q - p) * log(q / p)
    assert load.stability_of_numbers(a, b) == pytest.approx(expected)


names = st.lists(st.sampled_from(("ann", "bob", "<b>")), min_size=1, max_size=20)


@settings(max_examples=40, deadline=None)
@given(names, names)
def test_stability_of_names_is_that_of_a_loop(old: list[str], new: list[str]) -> None:
    every = sorted({*old, *new})
    expected = 0.0
    for name in every:
        p = (sum(x == name for x in old) + 0.5) / (len(old) + 0.5 * len(every))
        q = (sum(x == name for x in new) + 0.5) / (len(new) + 0.5 * len(every))
        expected += (q - p) * log(q / p)
    assert load.stability_of_categories(pl.Series(old), pl.Series(new)) == pytest.approx(expected)


def weeks(*runs: tuple[int, int, str]) -> pl.DataFrame:
    """(week, run time, user): fifty jobs each."""
    rows = [
        job(
            f"w{week}-{i}",
            week * WEEK + i * 600,
            week * WEEK + i * 600 + 5,
            week * WEEK + i * 600 + 5 + run + i,
            1,
            user_name=user,
        )
        for week, run, user in runs
        for i in range(50)
    ]
    return load.from_trace(trace(rows), ClusterSettings(CLUSTER))["drift"]


def test_a_change_shows_in_its_feature_alone_and_a_gap_of_weeks_is_told() -> None:
    found = weeks((0, 100, "ann"), (1, 100, "ann"), (5, 9000, "bob"))
    assert found["week_utc"].n_unique() == 2
    still = found.filter(pl.col("week_utc") == EPOCH + timedelta(weeks=1))
    assert still.height > 5 and not still["is_shifted"].any()
    changed = found.filter(pl.col("week_utc") == EPOCH + timedelta(weeks=5))
    assert changed["before_utc"].unique().to_list() == [EPOCH + timedelta(weeks=1)]
    shifted = {row["feature"]: row for row in changed.filter("is_shifted").to_dicts()}
    assert {"run_s", "user_name"} <= set(shifted) and "gpus" not in shifted
    assert shifted["run_s"]["ks"] == 1 and shifted["run_s"]["ks_p"] < 1e-6


def test_one_week_has_nothing_to_be_compared_with() -> None:
    assert weeks((0, 100, "ann")).is_empty()


@pytest.mark.parametrize(("distance", "n", "m"), [(0.05, 300, 400), (0.15, 200, 300), (0.4, 100, 100)])
def test_p_value_is_near_scipys(distance: float, n: int, m: int) -> None:
    a = np.arange(n) / n
    b = np.arange(m) / m + distance
    found = ks_2samp(a, b, method="asymp")
    got = load._p_value(float(found.statistic), n, m)
    assert got == pytest.approx(found.pvalue, abs=0.04)


@settings(max_examples=30, deadline=None)
@given(random_jobs(fewest=1))
def test_what_a_job_met_is_that_of_a_loop(rows: list[dict[str, Any]]) -> None:
    """Queue and running jobs the second before the submission."""
    found = load.drift_features(trace(rows), ClusterSettings(CLUSTER))
    met = sorted((row["submit_utc"], row["queued_jobs"], row["running_jobs"]) for row in found.to_dicts())
    expected = []
    for row in rows:
        at = row["submit_utc"] - timedelta(seconds=1)
        queued = sum(r["eligible_utc"] <= at < (r["start_utc"] or r["end_utc"]) for r in rows)
        running = sum(r["start_utc"] <= at < r["end_utc"] for r in rows if r["start_utc"] is not None)
        expected.append((row["submit_utc"], queued, running))
    assert met == sorted(expected)
