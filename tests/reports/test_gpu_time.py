"""One total of GPU time in one report, with jobs that still run at the log's end."""

from __future__ import annotations

import re
from datetime import timedelta

import polars as pl
import pytest

from reports.build import SECTIONS, section_data
from tests.reports import warehouse
from tests.reports.warehouse import START, job
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform
from traces.store.warehouse import read

CLUSTER = "lab"
TOTAL = re.compile(r"([\d,]+) GPU h, with running jobs counted until the end of the log")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """Eighty jobs over ten days; every eighth still runs, and one of two ran twice. Recorded run times stop earlier."""
    rows = [
        job(CLUSTER, i, submit_utc=START + timedelta(hours=3 * i), run_s=3600 * (1 + i % 5), user_name=f"u{i % 3}")
        for i in range(80)
    ]
    open_ = {"end_utc": None, "state": "RUNNING", "run_s": 600, "gpu_time_s": 1200}
    rows = [row | open_ if i % 8 == 7 else row for i, row in enumerate(rows)]
    jobs = conform(schema.JOBS, pl.from_dicts(rows, infer_schema_length=None))
    attempts = warehouse.attempts_of(jobs)
    before = pl.col("start_utc") - pl.duration(hours=1)
    first = attempts.filter(pl.col("job_key") == "40").with_columns(
        before.alias("start_utc"), pl.col("start_utc").alias("end_utc"), pl.lit("FAILED").alias("state")
    )
    second = pl.when(pl.col("job_key") == "40").then(1).otherwise(0).alias("attempt")
    tables = {
        "jobs": jobs,
        "attempts": pl.concat([first, attempts.with_columns(second)], how="vertical_relaxed"),
        "trace_files": pl.DataFrame([warehouse.trace_file(CLUSTER, len(rows))]),
    }
    settings = ClusterSettings(CLUSTER, nodes=4, gpus_per_node=4)
    return warehouse.with_features(tmp_path_factory.mktemp("gpu-time"), tables, settings)


def test_every_section_counts_the_same_gpu_time(data: DataFolder) -> None:
    """Read from the JSON of all sections: tables that hold all of it, and the sentences that say it."""
    end = read(data, "SELECT max(greatest(start_utc, end_utc)) AS t FROM attempts")["t"][0]
    expected = sum(
        gpus * ((stop or end) - start).total_seconds()
        for start, stop, gpus in read(data, "SELECT start_utc, end_utc, gpus FROM attempts").iter_rows()
    )
    sections = {name: section_data(data, CLUSTER, name) for name in SECTIONS}
    found = {
        f"{name}.{table}": sum(row[column] or 0 for row in sections[name]["tables"][table]) * unit
        for name, table, column, unit in (
            ("fails", "states", "gpu_time_s", 1),
            ("waste", "utilization_by", "gpu_time_s", 1),
            ("waste", "allocated_by_user", "hours", 3600),
        )
    }
    assert found == {place: pytest.approx(expected) for place in found}
    said = {number for section in sections.values() for text in section["sentences"] for number in TOTAL.findall(text)}
    assert said == {f"{expected / 3600:,.0f}"}
    # The jobs' own share that completed is of the same whole.
    done = next(row["gpu_time_s"] for row in sections["fails"]["tables"]["states"] if row["value"] == "COMPLETED")
    assert sections["summary"]["numbers"]["completed"] == f"{100 * done / expected:.1f} %"


def test_tables_of_the_warehouse_hold_the_same_gpu_time(data: DataFolder) -> None:
    totals = read(
        data,
        "SELECT (SELECT sum(allocated_s) FROM utilization_allocated WHERE scope = 'cluster' AND unit = 'GPU') AS a, "
        "(SELECT sum(allocated_s) FROM allocated_by_user) AS b, (SELECT sum(gpu_time_s) FROM utilization_by) AS c, "
        "(SELECT sum(gpu_time_s) FROM failures_by WHERE dimension = 'state') AS d, "
        "(SELECT sum(gpu_time_s) FROM queueing_delay) AS e, (SELECT sum(demand_gpu_time_s) FROM load) AS f",
    )
    assert len(set(totals.row(0))) == 1
