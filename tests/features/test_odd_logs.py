"""Logs that lack something, from raw files to every table: there, with the right columns, empty or honest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from features.catalog import FEATURES
from tests.features.odd_logs import DAY, NAME, ODD
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform

Tables = dict[str, pl.DataFrame]


def no_gpu_column(found: Tables, whole: dict[str, object]) -> None:
    assert found["queueing_delay"]["gpus"].null_count() == 29 and whole["fair_share_delay_s"] is None
    assert found["fragmentation"]["basis"].unique().to_list() == ["node counts"]
    assert found["fragmentation"]["free_gpus"].null_count() == found["fragmentation"].height > 0
    assert found["utilization_allocated"]["unit"].unique().to_list() == ["node"]
    assert found["failures_by"]["gpu_time_s"].null_count() == found["failures_by"].height > 0
    assert empty(found, "failure_savings", "quota_sensitivity", "utilization_measured")


def no_samples(found: Tables, whole: dict[str, object]) -> None:
    assert empty(found, "utilization_measured", "utilization_percentiles", "idle_gpu_time")
    by = found["utilization_by"]
    assert by["attempts"].sum() > 50 and by["measured_attempts"].sum() == 0
    assert by["utilization_mean_percent"].null_count() == by["idle_share"].null_count() == by.height
    assert found["utilization_allocated"]["allocated_s"].sum() > 0


def one_job(found: Tables, whole: dict[str, object]) -> None:
    assert (whole["jobs"], whole["wait_p50_s"], whole["wait_p95_s"], whole["never_ran"]) == (1, 60, 60, 0)
    assert empty(found, "drift", "failures") and found["load"]["arrivals"].to_list() == [1]
    assert found["start_order"]["is_out_of_order"].to_list() == [False]


def one_day(found: Tables, whole: dict[str, object]) -> None:
    assert empty(found, "drift") and found["load"].height == 1
    assert found["allocated_by_user"]["share_of_allocated"].to_list() == [1.0]


def all_cancelled(found: Tables, whole: dict[str, object]) -> None:
    assert (whole["jobs"], whole["never_ran"], whole["wait_p50_s"], whole["wait_total_s"]) == (0, 19, None, 0)
    assert whole["abandoned_wait_total_s"] == 19 * 60
    assert empty(found, "fragmentation", "failures", "failures_by", "utilization_allocated", "start_order_by")
    assert found["load"]["arrivals"].sum() == 19 and found["load"]["running_peak"].max() == 0


def no_quota(found: Tables, whole: dict[str, object]) -> None:
    delays = found["queueing_delay"]
    sources = dict(delays.select("group_name", "quota_source").unique().iter_rows())
    assert sources == {"given": "given", "free": "inferred"}
    assert delays.filter(pl.col("group_name") == "given")["quota_gpus"].unique().to_list() == [8]
    assert found["quota_sensitivity"]["quota_source"].unique().to_list() == ["inferred"]


def gap_of_weeks(found: Tables, whole: dict[str, object]) -> None:
    late = found["drift"].filter(pl.col("week_utc") == DAY + timedelta(weeks=9))
    assert late["before_utc"].unique().to_list() == [DAY + timedelta(weeks=1)]
    assert late.filter(pl.col("feature") == "run_s")["is_shifted"].to_list() == [True]
    quiet = found["load"].filter(pl.col("arrivals") == 0)
    # The last job ends a minute past midnight.
    assert quiet.height > 50 and (quiet["running_mean"] == 0).sum() == quiet.height - 1
    hours = found["utilization_allocated"].filter(pl.col("scope") == "cluster")
    assert hours.filter(pl.col("allocated_s") == 0).height > 1000


def one_name_for_two(found: Tables, whole: dict[str, object]) -> None:
    delays = found["queueing_delay"]
    assert delays.height == 60 + 8 and delays["job_key"].n_unique() == 68
    assert found["utilization_measured"].height > 0


def empty(found: Tables, *names: str) -> bool:
    return all(found[name].is_empty() for name in names)


EXPECTED: dict[str, Callable[[Tables, dict[str, object]], None]] = {
    f.__name__: f
    for f in (no_gpu_column, no_samples, one_job, one_day, all_cancelled, no_quota, gap_of_weeks, one_name_for_two)
}


@pytest.mark.parametrize("name", ODD)
def test_every_table_is_there(name: str, tmp_path: Path) -> None:
    files, settings = ODD[name](tmp_path / "raw")
    data = DataFolder(tmp_path / "data")
    ingest(files, cluster=settings, data=data)
    warehouse.build(data)
    found: Tables = {}
    for module in FEATURES.values():
        tables = module.compute(data, settings)
        assert list(tables) == [table.name for table in module.TABLES]
        for table in module.TABLES:
            frame = tables[table.name]
            assert conform(table, frame).equals(frame) and frame["cluster"].unique().to_list() in ([], [NAME])
            assert not frame.select(table.key).is_duplicated().any(), table.name
        found |= tables
    whole = found["queueing_by"].row(by_predicate=pl.col("dimension") == "all", named=True)
    EXPECTED[name](found, whole)
