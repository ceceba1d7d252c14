"""Retries and the no-retry rule on random jobs of several attempts: against SQL and against a loop."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features.failures import failures
from tests.features.toy import CLUSTER, at, job, trace
from traces.clusters import ClusterSettings
from traces.store.frames import query

TOY = ClusterSettings(CLUSTER)
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]
OF_GPUS = replace(TOY, resource="GPU")
HOPELESS = (2, 126, 127)  # exit statuses


@st.composite
def retried(draw: st.DrawFn) -> Rows:
    """Jobs and attempts: up to four runs of a job, some of no known GPU count."""
    jobs, attempts = [], []
    for number in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from((None, 1, 4, 16)))
        ends = st.tuples(
            st.sampled_from(("FAILED", "COMPLETED", "NODE_FAIL")),
            st.sampled_from((0, 1, *HOPELESS)),
            st.integers(0, 900),
        )
        runs = draw(st.lists(ends, min_size=1, max_size=4))
        key = f"j{number}"
        jobs.append(job(key, 0, 0, 4000, gpus, attempts=len(runs), state=runs[-1][0]))
        for index, (state, code, run) in enumerate(runs):
            span = {"start_utc": at(index * 1000), "end_utc": at(index * 1000 + run)}
            attempts.append(
                {"job_key": key, "attempt": index, "gpus": gpus, "state": state, "exit_code": code, "run": run, **span}
            )
    return jobs, attempts


RETRIES_SQL = """
WITH a AS (SELECT *, epoch(end_utc - start_utc)::BIGINT * gpus AS held FROM attempts), j AS (
    SELECT jobs.job_key, jobs.state, count(*) AS n, min_by(gpus, attempt) AS gpus, count(held) AS known,
        coalesce(sum(held) FILTER (WHERE attempt > 0), 0) AS later
    FROM a JOIN jobs USING (job_key) GROUP BY ALL
)
SELECT CASE WHEN gpus <= 1 THEN '1' WHEN gpus <= 4 THEN '2-4' WHEN gpus > 8 THEN '>8' END AS value,
    count(*) AS jobs, sum(n)::BIGINT AS attempts, avg(n) AS attempts_mean, max(n) AS attempts_most,
    count(*) FILTER (WHERE n > 1) AS retried_jobs, count(*) FILTER (WHERE n > 1) / count(*) AS retried_share,
    count(*) FILTER (WHERE n > 1 AND state = 'COMPLETED') AS recovered_jobs,
    CASE WHEN sum(known) > 0 THEN sum(later)::BIGINT END AS retry_unit_time_s
FROM j GROUP BY value ORDER BY value NULLS FIRST
"""


@settings(max_examples=30, deadline=None)
@given(retried())
def test_retries_by_size_are_those_of_sql(rows: Rows) -> None:
    of = trace(*rows)
    found = failures.from_trace(of, OF_GPUS)["retries"]
    expected = query(RETRIES_SQL, {"jobs": of.jobs, "attempts": of.attempts})
    by_size = found.filter(pl.col("dimension") == "size_bucket").select(expected.columns).sort("value")
    assert_frame_equal(by_size, expected, check_dtypes=False)
    whole = found.row(by_predicate=pl.col("dimension") == "all", named=True)
    assert (whole["jobs"], whole["attempts"]) == (len(rows[0]), len(rows[1]))


@settings(max_examples=60, deadline=None)
@given(retried())
def test_no_retry_is_that_of_a_loop(rows: Rows) -> None:
    """A job stops at its first failure with a hopeless exit status."""
    jobs = {row["job_key"]: row for row in rows[0]}
    expected: dict[str | None, list[int]] = {}
    for key, runs in groupby(rows[1], key=lambda row: row["job_key"]):
        stopped, avoided, saved = None, 0, 0
        completed = jobs[key]["state"] == "COMPLETED"
        if jobs[key]["gpus"] is None:
            continue
        for run in runs:
            if stopped is not None:
                avoided, saved = avoided + 1, saved + run["run"] * run["gpus"]
                completed |= run["state"] == "COMPLETED"
            elif run["state"] == "FAILED" and run["exit_code"] in HOPELESS:
                stopped = failures.EXIT_REASONS[run["exit_code"]][0]
        if avoided:
            for reason in (stopped, None):
                sums = expected.setdefault(reason, [0, 0, 0, 0])
                for place, value in enumerate((1, avoided, saved, int(completed))):
                    sums[place] += value
    found = failures.from_trace(trace(*rows), OF_GPUS)["failure_savings"].filter(
        pl.col("rule").str.starts_with("no retry")
    )
    columns = ("reason", "jobs", "attempts_avoided", "time_saved_s", "jobs_stopped_wrongly")
    assert {row[0]: list(row[1:]) for row in found.select(columns).iter_rows()} == expected
    assert (found["time_net_s"] == found["time_saved_s"]).all()
