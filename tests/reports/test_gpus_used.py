"""GPU utilization by Slurm's accounting in the report: figures against SQL, and said to be unknown without it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reports.build import section_data
from tests.reports import warehouse
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform
from traces.store.warehouse import read

CLUSTER = "gpus"
UNKNOWN = "no step of it records gres/gpuutil in TRESUsageInTot"


def recorded(folder: Path, *, records: bool) -> DataFolder:
    """Generated: 60 jobs of 2 GPUs and an hour each, of three users; steps of every second one record utilization."""
    rows = [
        warehouse.job(
            CLUSTER, number, submit_utc=warehouse.START + timedelta(hours=number),
            user_name=(warehouse.HOSTILE[0], "ann", "bob")[number % 3],
        )
        for number in range(60)
    ]  # fmt: skip
    jobs = conform(schema.JOBS, pl.from_dicts(rows, infer_schema_length=None))
    attempts = warehouse.attempts_of(jobs)
    line = pl.col("line")
    percent = pl.when((line % 2 == 0) & pl.lit(records)).then((line % 5 * 50).cast(pl.Float64))
    steps = attempts.select(
        "cluster", "job_key", pl.lit("batch").alias("step_id"), "state", "start_utc", "end_utc", "run_s",
        "trace_sha256", "line", percent.alias("gpu_percent"),
    )  # fmt: skip
    files = pl.DataFrame([warehouse.trace_file(CLUSTER, len(rows))])
    tables = {"jobs": jobs, "attempts": attempts, "steps": steps, "trace_files": files}
    return warehouse.with_features(folder, tables, ClusterSettings(CLUSTER, nodes=4, gpus_per_node=2))


def test_gpus_used_are_those_of_the_steps_that_record_it(tmp_path: Path) -> None:
    data = recorded(tmp_path, records=True)
    waste: dict[str, Any] = section_data(data, CLUSTER, "waste")
    used = "sum(gpu_percent / 100 * s.run_s)"
    joined = "steps s JOIN attempts a USING (job_key) JOIN jobs j USING (job_key) WHERE gpu_percent IS NOT NULL"
    ((share, n),) = read(data, f"SELECT {used} / sum(a.gpus * a.run_s), count(*) FROM {joined}").rows()
    assert n == 30
    said = f"By Slurm's accounting, jobs used {100 * share:.1f} % of their GPU time (30 runs). Slurm keeps the last"
    assert [text for text in waste["sentences"] if text.startswith(said)]
    expected = read(
        data,
        f"SELECT user_name, count(*), {used} / sum(a.gpus * a.run_s), (sum(a.gpus * a.run_s) - {used}) / 3600 AS idle "
        f"FROM {joined} GROUP BY ALL ORDER BY idle DESC, user_name",
    ).rows()
    rows = waste["tables"]["gpus_used"]
    assert [(row["value"], row["gpu_measured"]) for row in rows] == [row[:2] for row in expected]
    for row, (_, _, share, idle) in zip(rows, expected, strict=True):
        assert (row["gpu_used_share"], row["unused_hours"]) == (pytest.approx(share), pytest.approx(idle))
    assert not [text for text in waste["missing"] if UNKNOWN in text]


def test_a_log_without_gpu_usage_says_so(tmp_path: Path) -> None:
    waste = section_data(recorded(tmp_path, records=False), CLUSTER, "waste")
    assert "gpus_used" not in waste["tables"]
    assert not [text for text in waste["sentences"] if "By Slurm's accounting" in text]
    assert len([text for text in waste["missing"] if UNKNOWN in text]) == 1
