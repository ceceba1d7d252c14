"""Failures: classes by hand, shares against SQL and against a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features import queueing
from features.failures import failures
from features.trace import Trace
from tests.features.toy import CLUSTER, at, job, random_jobs, trace
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.schema import REDUCED
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import query

TOY = ClusterSettings(CLUSTER)


@pytest.mark.parametrize(
    ("state", "code", "signal", "reason", "category"),
    [
        ("FAILED", 1, 0, "error exit", "user"),
        ("FAILED", 255, 0, "error exit", "user"),
        ("FAILED", 2, 0, "wrong usage", "user"),
        ("FAILED", 127, 0, "command not found", "user"),
        ("FAILED", 0, 11, "invalid memory access", "user"),
        ("FAILED", 139, 0, "invalid memory access", "user"),  # 128 + 11, by a shell
        ("FAILED", 134, None, "core dump", "user"),
        ("FAILED", 0, 9, "killed", "unknown"),
        ("FAILED", 0, 53, "other signal", "unknown"),
        ("FAILED", None, None, "no signature", "unknown"),
        ("FAILED", 0, 0, "no signature", "unknown"),
        ("OUT_OF_MEMORY", 0, 125, "out of memory", "user"),  # the state settles it
        ("TIMEOUT", 0, 15, "time limit", "user"),
        ("NODE_FAIL", 1, 0, "node failure", "infrastructure"),
        ("PREEMPTED", 0, 15, "preempted", "scheduler"),
    ],
)
def test_reason(state: str, code: int | None, signal: int | None, reason: str, category: str) -> None:
    of = trace([job("x", 0, 0, 10, 2, state=state, exit_code=code, exit_signal=signal)])
    (found,) = failures.from_trace(of, TOY)["failures"].to_dicts()
    assert (found["reason"], found["category"]) == (reason, category)


@pytest.mark.parametrize(
    ("code", "signal", "reason", "source", "is_hopeless"),
    [
        (9, 0, "killed", "exit status, 128 assumed", False),
        (11, 0, "invalid memory access", "exit status, 128 assumed", False),
        (0, 9, "killed", "signal", False),
        (9, 11, "invalid memory access", "signal", False),
        (0, 0, "error exit", "exit status", False),  # of a failed job: 128
        (1, 0, "error exit", "exit status", False),
        (2, 0, "wrong usage", "exit status", True),
        (127, 0, "command not found", "exit status", False),  # or 255
        (126, 0, "command not executable", "exit status", True),
        (72, 0, "error exit", "exit status", False),
    ],
)
def test_reason_where_128_may_be_missing(code: int, signal: int, reason: str, source: str, is_hopeless: bool) -> None:
    of = trace([job("x", 0, 0, 10, 2, state="FAILED", exit_code=code, exit_signal=signal, exit_code_form=REDUCED)])
    (found,) = failures.from_trace(of, TOY)["failures"].to_dicts()
    assert (found["reason"], found["reason_source"], found["is_hopeless"]) == (reason, source, is_hopeless)


FORMS = ("24.11.psv", "24.11-all.psv", "24.11.json", "26.05.psv", "26.05-all.psv", "26.05.json")
SAME = {"exit137": "killed", "child9": "killed", "self9": "killed", "step9s": "killed", "segv": "invalid memory access",
        "oom": "out of memory", "timeout": "time limit", "exit1": "error exit", "exit128": "error exit"}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_reasons_are_the_same_in_every_version_and_form(form: str, tmp_path: Path) -> None:
    """Dumps of a real Slurm. Without 128, exit 9 is assumed to be a kill, and 255 looks like 127."""
    data = DataFolder(tmp_path)
    path = Path(__file__).resolve().parents[2] / "fixtures" / "traces" / f"slurm-{form}.gz"
    ingest([path], cluster=TOY, data=data)
    warehouse.build(data)
    found = failures.compute(data, TOY)["failures"]
    named = warehouse.read(data, "SELECT job_key, job_name FROM jobs")
    rows = {
        row["job_name"]: row
        for row in found.cast({"job_key": pl.String}).join(named, on="job_key").iter_rows(named=True)
    }
    assert {name: rows[name]["reason"] for name in SAME} == SAME
    reduced = form.startswith("24.11") and form.endswith("psv")
    assert rows["exit9"]["reason"] == ("killed" if reduced else "error exit")
    assert (rows["exit255"]["reason"], rows["exit255"]["is_hopeless"]) == (
        ("command not found" if reduced else "error exit"), False,
    )  # fmt: skip


def test_reasons_of_a_real_slurm_22_05(tmp_path: Path) -> None:
    """Its text prints exit statuses without 128 too: failed jobs have none above 127."""
    data = DataFolder(tmp_path)
    path = Path(__file__).resolve().parents[2] / "fixtures" / "traces" / "slurm-22.05-recorded.psv.gz"
    ingest([path], cluster=TOY, data=data)
    warehouse.build(data)
    found = failures.compute(data, TOY)["failures"]
    of_status = found.filter((pl.col("state") == "FAILED") & (pl.col("exit_signal") == 0))
    sources = {"exit status", "exit status, 128 assumed"}
    assert len(of_status) and set(of_status["reason_source"].cast(pl.String)) <= sources


def test_of_an_attempt_without_a_status_that_was_run_again_the_log_tells_no_reason() -> None:
    """As Philly's: one status a job. The last attempt failed; the one before it may have been preempted."""
    runs = [
        {
            "job_key": "x",
            "attempt": i,
            "start_utc": at(100 * i),
            "end_utc": at(100 * i + 50),
            "state": "FAILED",
            "gpus": 1,
        }
        for i in range(2)
    ]
    of = trace([job("x", 0, 0, 150, 1, state="FAILED", attempts=2)], attempts=runs)
    found = failures.from_trace(of, TOY)["failures"].sort("attempt")
    assert found["reason"].to_list() == ["failed or preempted", "no signature"]
    assert found["category"].to_list() == ["unknown", "unknown"] and found["reason_source"].to_list() == [
        "none",
        "none",
    ]
    runs[0]["exit_code"] = 1  # Slurm's requeued attempts do have one
    again = failures.from_trace(trace(of.jobs.to_dicts(), attempts=runs), TOY)["failures"].sort("attempt")
    assert again["reason"].to_list() == ["error exit", "no signature"]


def test_every_failure_state_has_a_reason_and_none_is_a_good_end() -> None:
    rows = [job(state, 0, 0, 10, 1, state=state) for state in failures.FAILURE_STATES]
    rows += [job(state, 0, 0, 10, 1, state=state) for state in ("COMPLETED", "CANCELLED", "RUNNING")]
    found = failures.from_trace(trace(rows), TOY)["failures"]
    assert set(found["state"]) == set(failures.FAILURE_STATES)


def test_retries_and_gpu_time_lost() -> None:
    """Two attempts fail, the third passes: the job is a success that cost two failures."""
    jobs = [job("x", 0, 0, 100, 4, state="COMPLETED", attempts=3, user_name="ann")]
    ends = [(0, 10, "FAILED", 1), (20, 50, "FAILED", 139), (60, 100, "COMPLETED", 0)]
    attempts = [
        {
            **{"job_key": "x", "attempt": i, "start_utc": at(start), "end_utc": at(end)},
            **{"gpus": 4, "state": state, "exit_code": code},
        }
        for i, (start, end, state, code) in enumerate(ends)
    ]
    tables = failures.from_trace(trace(jobs, attempts), TOY)
    rows = tables["failures"].to_dicts()
    assert [(r["attempt"], r["retries_after"], r["gpu_time_lost_s"], r["job_state"]) for r in rows] == [
        (0, 2, 40, "COMPLETED"),
        (1, 1, 120, "COMPLETED"),
    ]
    by_state = tables["failures_by"].filter(pl.col("dimension") == "state").to_dicts()
    assert [(r["value"], r["jobs"], r["attempts"], r["gpu_time_s"]) for r in by_state] == [("COMPLETED", 1, 3, 320)]
    by_size = tables["failures_by"].filter(pl.col("dimension") == "size_bucket").to_dicts()
    assert [(r["value"], r["jobs"], r["attempts"], r["gpu_time_share"]) for r in by_size] == [("2-4", 1, 2, 0.5)]


BY_SQL = """
WITH a AS (
    SELECT {value} AS value, a.job_key, j.user_name, epoch(a.end_utc - a.start_utc)::BIGINT AS run,
        run * a.gpus AS held, a.attempt
    FROM attempts AS a JOIN jobs AS j USING (job_key) WHERE a.start_utc IS NOT NULL
), every AS (SELECT count(DISTINCT job_key) AS jobs, nullif(sum(held), 0) AS held FROM a)
SELECT value, count(DISTINCT job_key) AS jobs, count(*) AS attempts, count(DISTINCT user_name) AS users,
    count(*) / count(DISTINCT job_key) AS repetition_per_job,
    count(*) / count(DISTINCT user_name) AS repetition_per_user,
    count(DISTINCT job_key) / (SELECT jobs FROM every) AS jobs_share,
    sum(held)::BIGINT AS gpu_time_s,
    sum(held) / (SELECT held FROM every) AS gpu_time_share,
    quantile_cont(run, 0.5) AS runtime_p50_s, quantile_cont(run, 0.9) AS runtime_p90_s,
    quantile_cont(run, 0.95) AS runtime_p95_s, sum(run)::BIGINT AS runtime_total_s,
    sum(run) / nullif(sum(sum(run)) OVER (), 0) AS runtime_share
FROM a WHERE {those} GROUP BY value ORDER BY value NULLS FIRST
"""
BAD = (
    "(job_key, attempt) IN (SELECT (job_key, attempt) FROM attempts WHERE state IN ('FAILED', 'TIMEOUT', 'NODE_FAIL'))"
)
CLASS = """CASE a.state WHEN 'TIMEOUT' THEN 'user' WHEN 'NODE_FAIL' THEN 'infrastructure' ELSE
    CASE WHEN a.exit_code IN (1, 2) THEN 'user' ELSE 'unknown' END END"""  # 137 is a kill from outside


@st.composite
def failing_jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    ends = st.sampled_from(("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"))
    codes = st.sampled_from((None, 0, 1, 2, 137))
    return [{**row, "state": draw(ends), "exit_code": draw(codes)} for row in draw(random_jobs())]


@settings(max_examples=20, deadline=None)
@given(failing_jobs())
def test_shares_are_those_of_sql(rows: list[dict[str, Any]]) -> None:
    of = trace(rows)
    found = failures.from_trace(of, TOY)["failures_by"]
    for dimension, value, those in (
        ("state", "j.state", "true"),
        ("user_name", "j.user_name", BAD),
        ("category", CLASS, BAD),
    ):
        expected = query(BY_SQL.format(value=value, those=those), {"jobs": of.jobs, "attempts": of.attempts})
        got = found.filter(pl.col("dimension") == dimension)
        assert_frame_equal(got.select(expected.columns), expected, check_dtypes=False)


@settings(max_examples=20, deadline=None)
@given(failing_jobs())
def test_reasons_count_every_failed_attempt_once(rows: list[dict[str, Any]]) -> None:
    tables = failures.from_trace(trace(rows), TOY)
    failed = [r for r in rows if r["start_utc"] is not None and r["state"] in failures.FAILURE_STATES]
    by = tables["failures_by"]
    for dimension in ("reason", "size_bucket"):
        assert by.filter(pl.col("dimension") == dimension)["attempts"].sum() == len(failed)
    lost = sum(r["run_s"] * r["gpus"] for r in failed if r["gpus"] is not None)
    assert tables["failures"]["gpu_time_lost_s"].sum() == lost
    assert tables["failures"].height == len(failed)


def test_empty() -> None:
    of: Trace = trace([])
    for name, frame in failures.from_trace(of, TOY).items():
        assert frame.is_empty(), name


def test_failures_of_a_dump_without_starts_stand_beside_those_of_one_with(tmp_path: Path) -> None:
    """One start anywhere in the cluster hides nothing, and the GPU time of the dump without is the log's own."""
    timed, untimed = tmp_path / "timed.psv", tmp_path / "untimed.psv"
    timed.write_text(
        "JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES|ExitCode\n"
        "1|FAILED|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:00:10|10|gres/gpu=4|1:0\n"
    )
    untimed.write_text(
        "JobID|State|ElapsedRaw|AllocTRES|ExitCode\n2|FAILED|60|gres/gpu=2|2:0\n3|FAILED|0|gres/gpu=2|1:0\n"
    )
    data = DataFolder(tmp_path / "data")
    ingest([timed, untimed], cluster=TOY, data=data)
    warehouse.build(data)
    tables = failures.compute(data, TOY)
    rows = tables["failures"].sort("job_key").select("job_key", "gpu_time_lost_s", "size_bucket").rows()
    assert [(key.split("@")[0], lost, size) for key, lost, size in rows] == [
        ("1", 40, "2-4"), ("2", 120, "2-4"), ("3", 0, "2-4"),
    ]  # fmt: skip
    by_state = tables["failures_by"].filter(pl.col("dimension") == "state").to_dicts()
    assert [(r["value"], r["attempts"], r["gpu_time_s"]) for r in by_state] == [("FAILED", 3, 160)]
    assert by_state[0]["gpu_time_s"] == queueing.compute(data, TOY)["queueing_delay"]["gpu_time_s"].sum()


def test_an_attempt_that_never_started_in_a_log_that_prints_starts_is_no_failure() -> None:
    """As Philly lists them: a failed job whose last attempt has no start."""
    runs = [
        {"job_key": "x", "attempt": i, "start_utc": start, "end_utc": at(50), "state": "FAILED", "gpus": 1}
        for i, start in enumerate((at(0), None))
    ]
    found = failures.from_trace(trace([job("x", 0, 0, 50, 1, state="FAILED", attempts=2)], runs), TOY)["failures"]
    assert found["attempt"].to_list() == [0]
