"""Waits and their split: by hand, against brute force second by second, and SQL against polars."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features import queueing
from features.causes.waits import CAUSES
from features.resources.usage import Steps
from features.trace import Trace
from tests.features.toy import CLUSTER, GROUPS, job, random_jobs, trace
from traces.clusters import ClusterSettings
from traces.store.frames import query


def compute(of: Trace, **known: Any) -> dict[str, pl.DataFrame]:
    return queueing.from_trace(of, ClusterSettings(CLUSTER, **known))


def row(of: Trace, key: str, **known: Any) -> dict[str, Any]:
    return compute(of, **known)["queueing_delay"].row(by_predicate=pl.col("job_key") == key, named=True)


def test_over_the_quota_is_fair_share_delay_and_within_it_fragmentation_delay() -> None:
    of = trace(
        [
            job("own", 0, 0, 100, 6, partition="a"),  # 6 of a's 8
            job("other", 0, 0, 300, 6, partition="b"),
            job("wide", 10, 250, 400, 4, partition="a"),  # over a's quota until 100, then room for it in the quota
        ]
    )
    wide = row(of, "wide", nodes=2, gpus_per_node=8, quotas={"a": 8, "b": 8})
    assert (wide["fair_share_delay_s"], wide["fragmentation_delay_s"]) == (90, 150)
    assert (wide["philly_cause"], wide["quota_source"], wide["quota_gpus"]) == ("fragmentation", "given", 8)


def test_a_demand_that_just_fills_the_quota_or_the_cluster_is_within_it() -> None:
    of = trace([job("a", 0, 0, 100, 4, partition="a"), job("b", 0, 50, 100, 4, partition="a")])
    found = row(of, "b", nodes=1, gpus_per_node=8, quotas={"a": 8})
    assert (found["fair_share_delay_s"], found["fragmentation_delay_s"]) == (0, 50)


def test_time_before_eligible_is_no_delay_of_the_scheduler() -> None:
    of = trace([job("x", 0, 100, 200, 1, eligible=60, partition="a")])
    found = row(of, "x", quotas={"a": 4})
    assert (found["wait_s"], found["held_s"], found["eligible_wait_s"]) == (100, 60, 40)
    assert found["fair_share_delay_s"] + found["fragmentation_delay_s"] == 40


def test_a_demand_over_the_whole_quota_is_always_fair_share() -> None:
    assert row(trace([job("x", 0, 50, 60, 16, partition="a")]), "x", quotas={"a": 8})["fair_share_delay_s"] == 50


def test_an_inferred_quota_is_the_99th_percentile_of_busy_time_and_says_so() -> None:
    of = trace(
        [
            job("long", 0, 0, 10_000, 4, partition="a"),
            job("burst", 0, 50, 60, 32, partition="a"),  # 0.1 % of the time
            job("b", 0, 0, 10, 1, partition="b"),
        ]
    )
    found = row(of, "burst")
    assert (found["quota_gpus"], found["quota_source"]) == (4, "inferred")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 8)), min_size=1, max_size=6),
    st.sampled_from((0.5, 0.75, 0.9, 0.99, 1.0)),
)
def test_a_quantile_of_use_is_that_of_a_second_by_second_loop(spans: list[tuple[int, int, int]], share: float) -> None:
    """The least number of GPUs that covers so much of the busy seconds."""
    start, length, gpus = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    used = sorted(total for second in range(60) if (total := sum(g for a, n, g in spans if a <= second < a + n)) > 0)
    covering = [value for value in used if sum(u <= value for u in used) >= share * len(used)]
    assert Steps.of_intervals(start, start + length, gpus).quantile(share) == (min(covering) if used else None)


def test_a_run_without_a_start_ran_and_its_wait_is_unknown() -> None:
    """As the Helios form of the Philly trace: submission, run time and GPUs, no start."""
    of = trace([{**job("x", 0, None, None, 4, state="UNKNOWN", partition="a"), "run_s": 66, "gpu_time_s": 264}])
    found = row(of, "x", quotas={"a": 4})
    assert found["ran"] and found["wait_s"] is None and found["held_s"] is None and found["abandoned_wait_s"] is None
    assert found["fair_share_delay_s"] is None
    whole = compute(of)["queueing_by"].row(by_predicate=pl.col("dimension") == "all", named=True)
    assert (whole["jobs"], whole["never_ran"], whole["wait_mean_s"]) == (0, 0, None)


@pytest.mark.parametrize("partition", [None, "only"])
def test_no_group_or_a_lone_one_leaves_the_split_null(partition: str | None) -> None:
    of = trace([job("x", 0, 0, 100, 4, partition=partition), job("y", 0, 100, 200, 4, partition=partition)])
    found = row(of, "y", nodes=1, gpus_per_node=4)
    assert found["fair_share_delay_s"] is None and found["fragmentation_delay_s"] is None
    assert found["quota_source"] is None and found["philly_cause"] is None


def test_gpus_come_from_whole_nodes_where_the_log_has_none() -> None:
    assert row(trace([job("x", 0, 5, 9, None, nodes=2)]), "x", gpus_per_node=3)["gpus"] == 6
    found = row(trace([job("x", 0, 5, 9, None, nodes=2)]), "x")
    assert found["gpus"] is None and found["wait_s"] == 5 and found["size_bucket"] == "2-4"  # nodes


def brute_force(of: Trace, quotas: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Fair-share and fragmentation seconds of each job, second by second."""
    epoch = [
        {**r, **{n: None if r[n] is None else int(r[n].replace(tzinfo=UTC).timestamp())
                 for n in ("submit_utc", "eligible_utc", "start_utc", "end_utc")}}
        for r in of.jobs.to_dicts()
    ]  # fmt: skip
    found = {}
    for waiting in epoch:
        demand, group = waiting["requested_gpus"], waiting["partition"]
        if waiting["start_utc"] is None or not demand or group not in quotas:
            continue
        counts = [0, 0]
        for second in range(waiting["eligible_utc"], waiting["start_utc"]):
            live = [r for r in epoch if r["start_utc"] is not None and r["start_utc"] <= second < r["end_utc"]]
            used = sum(r["requested_gpus"] or 0 for r in live if r["partition"] == group)
            counts[used + demand <= quotas[group]] += 1
        found[waiting["job_key"]] = (counts[0], counts[1])
    return found


@settings(max_examples=25, deadline=None)
@given(random_jobs(most=7), st.sampled_from((1, 4, 8, 20)), st.sampled_from((2, 4, 16)), st.integers(1, 6))
def test_the_split_is_that_of_a_second_by_second_loop(rows: list[dict[str, Any]], a: int, b: int, nodes: int) -> None:
    quotas = {"vc-a": a, "vc-b": b, "vc-c": 5}
    of = trace(rows)
    delays = compute(of, quotas=quotas, nodes=nodes, gpus_per_node=4)["queueing_delay"]
    # The settings fill GPUs that the log does not hold from nodes; the brute force reads them filled.
    filled = of.jobs.with_columns(pl.coalesce("requested_gpus", pl.col("requested_nodes") * 4).alias("requested_gpus"))
    expected = brute_force(Trace(filled, of.attempts, of.placements, of.nodes), quotas)
    got = {
        r["job_key"]: (r["fair_share_delay_s"], r["fragmentation_delay_s"])
        for r in delays.to_dicts()
        if r["fair_share_delay_s"] is not None
    }
    # A log that names no given group goes by no quota at all.
    assert got == (expected if any(r["partition"] in quotas for r in rows) else {})
    for r in delays.to_dicts():
        if r["fair_share_delay_s"] is not None:
            assert r["fair_share_delay_s"] + r["fragmentation_delay_s"] == r["eligible_wait_s"]


SUMMARY_SQL = """
SELECT {value} AS value,
    count(wait_s) AS jobs,
    count(*) FILTER (WHERE NOT ran) AS never_ran,
    avg(wait_s) AS wait_mean_s,
    quantile_cont(wait_s, 0.5) AS wait_p50_s, quantile_cont(wait_s, 0.9) AS wait_p90_s,
    quantile_cont(wait_s, 0.95) AS wait_p95_s, quantile_cont(wait_s, 0.99) AS wait_p99_s,
    avg(eligible_wait_s) AS eligible_wait_mean_s,
    quantile_cont(eligible_wait_s, 0.5) AS eligible_wait_p50_s,
    quantile_cont(eligible_wait_s, 0.9) AS eligible_wait_p90_s,
    quantile_cont(eligible_wait_s, 0.95) AS eligible_wait_p95_s,
    quantile_cont(eligible_wait_s, 0.99) AS eligible_wait_p99_s,
    count(*) FILTER (WHERE wait_s > 600) / nullif(count(wait_s), 0) AS over_10min_share,
    sum(wait_s::DOUBLE * gpu_time_s) / nullif(sum(gpu_time_s) FILTER (WHERE wait_s IS NOT NULL), 0)
        AS wait_gpu_time_weighted_s,
    coalesce(sum(wait_s), 0)::BIGINT AS wait_total_s,
    sum(held_s)::BIGINT AS held_s, sum(own_limit_s)::BIGINT AS own_limit_s, sum(behind_s)::BIGINT AS behind_s,
    sum(cluster_full_s)::BIGINT AS cluster_full_s, sum(fragmented_s)::BIGINT AS fragmented_s,
    coalesce(sum(epoch(end_utc - submit_utc)) FILTER (WHERE NOT ran), 0)::BIGINT AS abandoned_wait_total_s,
    sum(fair_share_delay_s)::BIGINT AS fair_share_delay_s,
    sum(fragmentation_delay_s)::BIGINT AS fragmentation_delay_s,
    CASE WHEN count(quota_gpus) > 0 THEN count(*) FILTER (WHERE fair_share_delay_s > fragmentation_delay_s) END
        AS fair_share_jobs,
    CASE WHEN count(quota_gpus) > 0 THEN count(*) FILTER (WHERE fragmentation_delay_s >= fair_share_delay_s
        AND fragmentation_delay_s > 0) END AS fragmentation_jobs
FROM delays JOIN (SELECT job_key, eligible_utc, end_utc FROM jobs) USING (job_key)
GROUP BY ALL ORDER BY value NULLS FIRST
"""
VALUES = {
    "all": "'all'",
    "size_bucket": "size_bucket",
    "partition": '"partition"',
    "user_name": "user_name",
    "state": "state",
    "week": """strftime(date_trunc('week', (submit_utc AT TIME ZONE 'UTC') AT TIME ZONE 'America/Chicago'),
        '%Y-%m-%d')""",
    "month": "strftime((submit_utc AT TIME ZONE 'UTC') AT TIME ZONE 'America/Chicago', '%Y-%m')",
    "hour_of_week": """((isodow((submit_utc AT TIME ZONE 'UTC') AT TIME ZONE 'America/Chicago') - 1) * 24
        + hour((submit_utc AT TIME ZONE 'UTC') AT TIME ZONE 'America/Chicago'))::VARCHAR""",
}


@pytest.mark.parametrize("dimension", queueing.DIMENSIONS)
@settings(max_examples=10, deadline=None)
@given(random_jobs(fewest=1))
def test_summary_in_polars_is_that_of_sql(dimension: str, rows: list[dict[str, Any]]) -> None:
    of = trace(rows)
    tables = compute(of, quotas={"vc-a": 6}, timezone="America/Chicago")
    frames = {"delays": tables["queueing_delay"], "jobs": of.jobs}
    expected = query(SUMMARY_SQL.format(value=VALUES[dimension]), frames)
    got = tables["queueing_by"].filter(pl.col("dimension") == dimension).select(expected.columns)
    assert_frame_equal(got.sort("value"), expected.sort("value"), check_dtypes=False)


def test_a_hundred_thousand_jobs() -> None:
    """1.5 s on one core; a loop over jobs would take minutes."""
    rng = np.random.default_rng(7)
    n = 100_000
    submit = np.sort(rng.integers(0, 90 * 86_400, n))
    wait, run = rng.exponential(3000, n).astype(np.int64), rng.exponential(7000, n).astype(np.int64)
    names = pl.Series(GROUPS)[rng.integers(0, 3, n)]
    stamps = {
        name: pl.from_epoch(pl.Series(values + 1_600_000_000), "s").cast(pl.Datetime("us"))
        for name, values in (("submit_utc", submit), ("start_utc", submit + wait), ("end_utc", submit + wait + run))
    }
    gpus = pl.Series(2 ** rng.integers(0, 6, n))
    frame = pl.DataFrame(
        {"job_key": [str(i) for i in range(n)], **stamps, "partition": names, "requested_gpus": gpus, "gpus": gpus}
    )
    none = trace([])
    jobs = frame.with_columns(cluster=pl.lit(CLUSTER), state=pl.lit("COMPLETED"))
    attempts = frame.with_columns(attempt=pl.lit(0, pl.Int64))
    of = Trace(_like(jobs, none.jobs), _like(attempts, none.attempts), none.placements, none.nodes)
    delays = compute(of, nodes=100, gpus_per_node=8)["queueing_delay"]
    assert delays.height == n
    split = delays["fair_share_delay_s"] + delays["fragmentation_delay_s"]
    assert (split == pl.Series(wait)[delays["job_key"].cast(pl.Int64)]).all()
    assert (delays.select(pl.sum_horizontal(CAUSES)).to_series() == delays["wait_s"]).all()


def _like(rows: pl.DataFrame, few: pl.DataFrame) -> pl.DataFrame:
    """`rows` with the columns of `few`, null where they have none."""
    return pl.concat([few, rows.select(name for name in rows.columns if name in few.columns)], how="diagonal")
