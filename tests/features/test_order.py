"""Starts out of order against a loop over pairs of jobs; the sensitivity of the split to the quota."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import order, queueing, quotas
from features.resources.capacity import capacity as size
from features.resources.usage import Steps, runs
from tests.features.toy import CLUSTER, EPOCH, job, random_jobs, trace
from traces.clusters import ClusterSettings


def rows_of(jobs: list[dict[str, Any]], **known: Any) -> dict[str, dict[str, Any]]:
    found = order.from_trace(trace(jobs), ClusterSettings(CLUSTER, **known))["start_order"]
    return {row["job_key"]: row for row in found.to_dicts()}


def test_overtaking_a_gang_that_would_not_fit_is_harmless_and_one_that_would_is_not() -> None:
    jobs = [
        job("running", 0, 0, 100, 6),
        job("gang", 10, 100, 200, 8),
        job("small", 20, 30, 90, 2),  # the gang could not start before 100 anyway
        job("long", 20, 30, 150, 0),  # holds nothing
    ]
    found = rows_of(jobs, nodes=1, gpus_per_node=8)
    assert (found["small"]["is_out_of_order"], found["small"]["is_harmless"]) == (True, True)
    assert found["small"]["smallest_overtaken"] == 8
    assert (found["gang"]["is_out_of_order"], found["gang"]["is_harmless"]) == (False, None)
    late = [*jobs[:1], job("gang", 10, 150, 200, 8), job("small", 20, 30, 150, 2)]  # 8 would be free from 100 on
    assert rows_of(late, nodes=1, gpus_per_node=8)["small"]["is_harmless"] is False


def test_a_cluster_about_cores_is_judged_by_cores() -> None:
    """Until 100 the wide job would not have fitted without the narrow one either; from 100 on it would."""
    wide = {"requested_cpus": 8, "allocated_cpus": 8, "cpus": 8}
    half = {"requested_cpus": 4, "allocated_cpus": 4, "cpus": 4}
    jobs = [job("running", 0, 0, 100, 0, **half), job("wide", 10, 150, 200, 0, **wide)]
    of = {"nodes": 1, "cpus_per_node": 8, "resource": "core"}
    short = rows_of([*jobs, job("narrow", 20, 30, 90, 0, **half)], **of)["narrow"]
    assert (short["is_out_of_order"], short["smallest_overtaken"], short["is_harmless"]) == (True, 8, True)
    assert rows_of([*jobs, job("narrow", 20, 30, 150, 0, **half)], **of)["narrow"]["is_harmless"] is False


def test_another_queue_is_not_overtaken() -> None:
    found = rows_of([job("a", 0, 100, 200, 1, partition="p"), job("b", 10, 20, 30, 1, partition="q")])
    assert not found["b"]["is_out_of_order"]


@settings(max_examples=60, deadline=None)
@given(random_jobs(fewest=2, most=10), st.sampled_from((16, 40)))
def test_order_is_that_of_a_loop_over_pairs(jobs: list[dict[str, Any]], capacity: int) -> None:
    known = ClusterSettings(CLUSTER, nodes=capacity // 8, gpus_per_node=8, resource="GPU")
    found = order.from_trace(of := trace(jobs), known)["start_order"]
    whole = size(of, known, runs(of, known)).gpus or capacity  # more than declared where more was in use

    def second(row: dict[str, Any], name: str) -> int:
        return int((row[name] - EPOCH).total_seconds())

    def gpus(row: dict[str, Any]) -> int:
        return int(row["gpus"] if row["gpus"] is not None else row["nodes"] * 8)

    ran = [row for row in jobs if row["start_utc"] is not None]
    instants = sorted({second(row, name) for row in ran for name in ("start_utc", "end_utc")})

    def free(at: int) -> int:
        return whole - sum(gpus(r) for r in ran if second(r, "start_utc") <= at < second(r, "end_utc"))

    for row in ran:
        start = second(row, "start_utc")
        overtaken = [
            other
            for other in jobs
            if other["partition"] == row["partition"]
            and second(other, "eligible_utc") < second(row, "eligible_utc")
            and second(other, "start_utc" if other["start_utc"] else "end_utc") > start
        ]
        got = found.row(by_predicate=pl.col("job_key") == row["job_key"], named=True)
        assert got["is_out_of_order"] == bool(overtaken)
        if not overtaken:
            assert got["is_harmless"] is None and got["smallest_overtaken"] is None
            continue
        assert got["smallest_overtaken"] == min(map(gpus, overtaken))
        harmed = any(
            free(at) + gpus(row) >= gpus(other)
            for other in overtaken
            for at in instants
            if start <= at < second(row, "end_utc")
            and at < second(other, "start_utc" if other["start_utc"] else "end_utc")
        )
        assert got["is_harmless"] == (not harmed)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.lists(st.integers(0, 25), min_size=2, max_size=2))
def test_range_maximum(values: list[int], span: list[int]) -> None:
    steps = Steps(np.arange(len(values)), np.array(values))
    begin, end = sorted(span)
    got = order.RangeMaximum(steps).over(np.array([begin]), np.array([end]))[0]
    if begin == end:
        assert got < 0
    else:
        assert got == max(values[min(i, len(values) - 1)] for i in range(begin, end))


def test_summary_counts_by_queue_and_size() -> None:
    jobs = [job("a", 0, 100, 200, 8, partition="p"), job("b", 10, 20, 30, 1, partition="p"), job("c", 0, 5, 9, 1)]
    found = order.from_trace(trace(jobs), ClusterSettings(CLUSTER, nodes=1, gpus_per_node=8))["start_order_by"]
    by = {(r["dimension"], r["value"]): (r["starts"], r["out_of_order"], r["harmless"]) for r in found.to_dicts()}
    assert by["all", "all"] == (3, 1, 0) and by["partition", "p"] == (2, 1, 0) and by["size_bucket", "1"][0] == 2


@settings(max_examples=25, deadline=None)
@given(random_jobs(fewest=2))
def test_sensitivity_holds_the_default_split_and_less_fair_share_with_a_larger_quota(
    jobs: list[dict[str, Any]],
) -> None:
    of, known = trace(jobs), ClusterSettings(CLUSTER)
    found = quotas.from_trace(of, known)["quota_sensitivity"]
    split = queueing.from_trace(of, known)["queueing_delay"].drop_nulls("fair_share_delay_s")
    if split.is_empty():
        assert found.is_empty()
        return
    default = found.filter("is_default").row(0, named=True)
    assert default["fair_share_delay_s"] == split["fair_share_delay_s"].sum()
    assert default["fragmentation_delay_s"] == split["fragmentation_delay_s"].sum()
    assert default["fair_share_jobs"] == (split["philly_cause"] == "fair share").sum()
    ordered = found.sort("quantile")
    assert ordered["fair_share_delay_s"].to_list() == sorted(ordered["fair_share_delay_s"].to_list(), reverse=True)
    assert found["quota_source"].unique().to_list() == ["inferred"]


def test_given_quotas_leave_one_row() -> None:
    of = trace([job("x", 0, 0, 100, 4, partition="a"), job("y", 0, 100, 200, 4, partition="a")])
    found = quotas.from_trace(of, ClusterSettings(CLUSTER, quotas={"a": 4}))["quota_sensitivity"].to_dicts()
    assert [(r["quantile"], r["quota_source"], r["quota_gpus"], r["fair_share_delay_share"]) for r in found] == [
        (None, "given", 4, pytest.approx(1.0))
    ]
