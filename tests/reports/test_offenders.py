"""Whom to write to: figures by hand, who is left alone, hostile names, hidden names, the file beside the report."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.tables.failures import FAILURES
from features.tables.utilization import IDLE_GPU_TIME, RESOURCES
from reports.build import build_report
from reports.sections.offenders import SCHEMA, offenders, offenders_path, write_offenders
from reports.source import Names, Source
from tests.reports import warehouse
from tests.reports.warehouse import START, job, trace_file
from traces import schema
from traces.store.folder import DataFolder
from traces.store.frames import conform, empty

HOSTILE = '=cmd|"/c calc"!A1<script>\x1b[31m'


def failure(number: int, hour: int, **values: Any) -> dict[str, Any]:
    """A hopeless failure of that job, two GPUs for five minutes."""
    return {
        "cluster": "lab", "job_key": str(number), "attempt": 0, "user_name": "ann", "state": "FAILED",
        "reason": "command not found", "category": "user", "reason_source": "exit status", "is_hopeless": True,
        "gpus": 2, "end_utc": START + timedelta(hours=hour), "runtime_to_failure_s": 300, "retries_after": 0,
        "job_state": "FAILED", "gpu_time_lost_s": 600, "unit_time_lost_s": 600,
    } | values  # fmt: skip


def idle(number: int, hours: float, measured_h: float) -> dict[str, Any]:
    return {
        "cluster": "lab", "dimension": "job_key", "value": str(number), "attempts": 1,
        "gpu_time_s": int(measured_h * 3600), "measured_gpu_time_s": int(measured_h * 3600),
        "idle_gpu_time_s": int(hours * 3600), "idle_share": hours / measured_h,
    }  # fmt: skip


def source(
    root: Path,
    jobs: list[dict[str, Any]],
    bad: list[dict[str, Any]],
    idle: list[dict[str, Any]],
    key: bytes | None = None,
    resource: str = "GPU",
) -> Source:
    about = {
        "cluster": "lab",
        "scope": "cluster",
        "resource": resource,
        "why": "declared",
        "is_declared": True,
        "known_by": "declared",
    }
    data = DataFolder(root / "data")
    tables = {
        **warehouse.empty_tables(),
        "jobs": conform(schema.JOBS, pl.DataFrame(jobs, infer_schema_length=None)),
        "trace_files": conform(schema.TRACE_FILES, pl.DataFrame([trace_file("lab", len(jobs))])),
        "resources": conform(RESOURCES, pl.DataFrame([about])),
        "failures": conform(FAILURES, pl.DataFrame(bad)) if bad else empty(FAILURES),
        "idle_gpu_time": conform(IDLE_GPU_TIME, pl.DataFrame(idle)) if idle else empty(IDLE_GPU_TIME),
    }
    warehouse.write(data, tables)
    return Source(data, "lab", Names(key))


def test_idle_gpus_from_a_day_and_a_quarter_on(tmp_path: Path) -> None:
    """ann: 30 of 60 measured hours in two jobs. bob: a day, but a fifth of what he held. cy: half, but an hour."""
    jobs = [job("lab", n, user_name=user) for n, user in enumerate(["ann", "ann", "bob", "cy"])]
    found = offenders(source(tmp_path, jobs, [], [idle(0, 20, 30), idle(1, 10, 30), idle(2, 24, 120), idle(3, 1, 2)]))
    (row,) = found.to_dicts()
    assert (row["finding"], row["user_name"], row["jobs"], row["of_jobs"]) == ("idle GPUs", "ann", 2, 2)
    assert (row["time_s"], row["share"], row["examples"]) == (30 * 3600, 0.5, "0, 1")
    assert "\n  0: idle for 20.00 GPU h of 30.00 GPU h, ran 1 h\n" in row["mail_text"]
    assert row["mail_text"].startswith("Dear ann,\n\n") and "30.00 GPU hours: 50.0 %" in row["mail_text"]


def test_a_retry_is_hopeless_until_a_job_of_that_name_completes(tmp_path: Path) -> None:
    """ann's `train` fails at 1, 2, 3, 4 h: three repeats. bob's completes between: one repeat, and he is left alone."""
    jobs = [job("lab", n, user_name="ann", state="FAILED", exit_code=127) for n in range(4)]
    jobs += [job("lab", n, user_name="bob", state="FAILED") for n in (10, 11, 13)]
    jobs += [job("lab", 12, user_name="bob", submit_utc=START + timedelta(hours=4.2), run_s=600)]
    bad = [failure(n, 1 + n) for n in range(4)]
    bad += [failure(10, 1, user_name="bob"), failure(11, 2, user_name="bob"), failure(13, 6, user_name="bob")]
    bad += [failure(3, 9, is_hopeless=False, attempt=1)]
    (row,) = offenders(source(tmp_path, jobs, bad, [])).to_dicts()
    assert (row["finding"], row["user_name"], row["jobs"]) == ("early hopeless retries", "ann", 3)
    assert (row["time_s"], row["share"], row["examples"]) == (3 * 600, None, "1, 2, 3")
    assert "failed 3 times with an error" in row["mail_text"] and "command not found" in row["mail_text"]


def test_a_cluster_about_cores_counts_core_time(tmp_path: Path) -> None:
    jobs = [job("lab", n, user_name="ann", state="FAILED", exit_code=127) for n in range(4)]
    bad = [failure(n, 1 + n, gpus=0, gpu_time_lost_s=0, unit_time_lost_s=2 * 3600) for n in range(4)]
    (row,) = offenders(source(tmp_path, jobs, bad, [], resource="core")).to_dicts()
    assert (row["finding"], row["time_s"], row["unit"]) == ("early hopeless retries", 6 * 3600, "core")
    assert "held 6.00 core h for it" in row["mail_text"] and "\n  1: ran 5.0 min, 2.00 core h\n" in row["mail_text"]
    assert "GPU" not in row["mail_text"]


def test_late_failures_are_apart_from_early_ones_and_the_mail_quotes_what_cost_most(tmp_path: Path) -> None:
    """ann fails at once four times for nearly nothing, then after 20 and 15 h: the latter hold nearly all of the cost.

    Job 5 fails late in two attempts, which count as one example of both costs.
    """
    jobs = [job("lab", n, user_name="ann", state="FAILED") for n in range(7)]
    late = {"runtime_to_failure_s": 20 * 3600, "unit_time_lost_s": 40 * 3600, "reason": "killed"}
    bad = [failure(n, 1 + n, gpu_time_lost_s=n, unit_time_lost_s=n) for n in range(4)]
    bad += [failure(4, 30, **late | {"unit_time_lost_s": 60 * 3600}), failure(5, 50, **late)]
    bad += [failure(5, 70, attempt=1, **late | {"runtime_to_failure_s": 15 * 3600}), failure(6, 80, **late)]
    early, late_row = offenders(source(tmp_path, jobs, bad, [])).to_dicts()
    assert (early["finding"], early["jobs"], early["time_s"]) == ("early hopeless retries", 3, 1 + 2 + 3)
    assert early["examples"] == "3, 2, 1" and "for a few minutes" in early["mail_text"]
    assert (late_row["finding"], late_row["jobs"], late_row["time_s"]) == ("late hopeless retries", 3, 180 * 3600)
    assert late_row["examples"] == "5, 4, 6" and "for a few minutes" not in late_row["mail_text"]
    assert (
        "checkpoints" in late_row["mail_text"]
        and "failed 4 times with an error that had already made them fail" in late_row["mail_text"]
    )
    lines = [line.strip() for line in late_row["mail_text"].splitlines() if line.startswith("  ")]
    assert lines == ["5: ran 20 h, 80.00 GPU h", "4: ran 20 h, 60.00 GPU h", "6: ran 20 h, 40.00 GPU h"]


def test_one_late_failure_after_early_ones_is_named_too(tmp_path: Path) -> None:
    """Three repeats make the habit; the late one may hold the cost. Its run time may be unknown."""
    jobs = [job("lab", n, user_name="ann", state="FAILED") for n in range(4)]
    bad = [failure(n, 1 + n) for n in range(3)] + [failure(3, 9, runtime_to_failure_s=None, unit_time_lost_s=None)]
    early, late = offenders(source(tmp_path, jobs, bad, [])).to_dicts()
    assert (early["jobs"], late["jobs"], late["time_s"]) == (2, 1, None)
    assert (
        "failed 1 time with an error that had already made them fail" in late["mail_text"]
        and "10 min" not in late["mail_text"]
    )
    assert "\n  3\n" in late["mail_text"]


def test_limits_far_over_what_is_used(tmp_path: Path) -> None:
    """ann asks 10 h for an hour, ten times; bob nine times; cy uses a half. 1.1 x 1 h is 70 min in whole steps."""
    limits = {"limit_s": 36_000, "run_s": 3600}
    jobs = [job("lab", n, user_name="ann", **limits) for n in range(10)]
    jobs += [job("lab", 20 + n, user_name="bob", **limits) for n in range(9)]
    jobs += [job("lab", 40 + n, user_name="cy", limit_s=7200, run_s=3600) for n in range(10)]
    (row,) = offenders(source(tmp_path, jobs, [], [])).to_dicts()
    assert (row["finding"], row["user_name"], row["jobs"], row["of_jobs"]) == ("over-asked limits", "ann", 10, 10)
    assert (row["time_s"], row["share"]) == (None, 0.1)
    assert "which was 10 h" in row["mail_text"] and "1 h 10 min would have been enough" in row["mail_text"]
    assert "\n  0: ran 1 h, asked for 10 h\n" in row["mail_text"]


def test_hostile_names_are_defused_and_hidden_where_asked(tmp_path: Path) -> None:
    jobs = [job("lab", n, user_name=HOSTILE, limit_s=36_000, run_s=60) for n in range(12)]
    path = tmp_path / "list.csv"
    assert write_offenders(path, [source(tmp_path / "plain", jobs, [], [])]) == 1
    (row,) = csv.DictReader(path.open(newline=""))
    assert list(row) == list(SCHEMA) and row["user_name"] == "'" + HOSTILE
    assert "\x1b" not in row["mail_text"] and "\\x1b" in row["mail_text"]
    assert write_offenders(path, [source(tmp_path / "hidden", jobs, [], [], key=b"k" * 32)]) == 1
    text = path.read_text()
    assert "calc" not in text and "Dear user-" in text


def test_it_lies_beside_the_report_that_links_to_it(tmp_path: Path) -> None:
    jobs = [job("lab", n, limit_s=36_000, run_s=60) for n in range(12)]
    report = build_report(source(tmp_path, jobs, [], []).data, out=tmp_path / "out" / "report.html")
    assert len(list(csv.DictReader((tmp_path / "out" / "offenders.csv").open(newline="")))) == 1
    assert 'href="offenders.csv"' in report.read_text()


def test_the_list_of_a_part_never_takes_the_place_of_the_whole(tmp_path: Path) -> None:
    names = {"report.html": "offenders.csv", "report-lab.html": "offenders-lab.csv", "a b.html": "a b-offenders.csv"}
    assert {name: offenders_path(Path(name)).name for name in names} == names
    jobs = [job("lab", n, limit_s=36_000, run_s=60) for n in range(12)]
    page = build_report(source(tmp_path, jobs, [], []).data, out=tmp_path / "a b.html").read_text()
    assert 'href="a%20b-offenders.csv"' in page and not (tmp_path / "offenders.csv").exists()


def test_nobody_to_write_to_is_a_list_without_rows_and_no_link(tmp_path: Path) -> None:
    report = build_report(source(tmp_path, [job("lab", 1)], [], []).data, out=tmp_path / "report.html")
    assert (tmp_path / "offenders.csv").read_text().count("\n") == 1
    assert "offenders.csv" not in report.read_text()


@pytest.mark.parametrize("table", ["failures", "idle_gpu_time"])
def test_a_warehouse_without_features_has_what_can_be_told(tmp_path: Path, table: str) -> None:
    found = source(tmp_path, [job("lab", n, limit_s=36_000, run_s=60) for n in range(12)], [], [])
    found.tables = found.tables - {table}
    assert offenders(found)["finding"].to_list() == ["over-asked limits"]
