"""The tiles of the first page: trends with their scale and dates, and how each number was counted."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from reports import format as fmt
from reports.advice.findings import in_use
from reports.sections.summary import summary
from reports.source import Source
from tests.reports import warehouse
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform

CLUSTER = "gpu-lab"


def _sql(data: DataFolder, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(data.warehouse), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_weeks_are_spoken_of_where_there_is_a_trend(full_data: DataFolder, tmp_path: Path) -> None:
    long = [tile.trend.words for tile in summary(Source(full_data, CLUSTER)).tiles if tile.trend]
    assert len(long) == 5 and all(re.match(r"weekly; last 4 weeks: .* the 4 before$", words) for words in long), long
    short = warehouse.one_job(tmp_path)
    assert [tile.trend for tile in summary(Source(short, "tiny")).tiles] == [None] * 5


def test_a_trend_has_its_scale_and_dates_and_a_tile_says_how_it_was_counted(full_data: DataFolder) -> None:
    """Against SQL: the whole weeks of the window (10 weeks from Monday 2024-01-01), their fewest and most jobs."""
    tiles = {tile.label: tile for tile in summary(Source(full_data, CLUSTER)).tiles}
    weeks = _sql(
        full_data,
        "SELECT date_trunc('week', submit_utc)::DATE::VARCHAR, count(*), quantile_cont(wait_s, 0.95) "
        "FROM jobs GROUP BY 1 ORDER BY 1",
    )[1:-1]
    ((waited,),) = _sql(full_data, "SELECT count(*) FROM jobs WHERE wait_s IS NOT NULL")
    jobs, wait = tiles["jobs"].trend, tiles["95th percentile of the wait"].trend
    assert jobs is not None and wait is not None
    counts = [week[1] for week in weeks]
    assert (jobs.first, jobs.last) == (weeks[0][0], weeks[-1][0]) == ("2024-01-08", "2024-02-26")
    assert (jobs.low, jobs.high) == (f"{min(counts)}", f"{max(counts)}")
    assert wait.values == pytest.approx([week[2] for week in weeks])
    assert wait.high == fmt.duration(max(week[2] for week in weeks))
    assert all(tile.counted.endswith(".") for tile in tiles.values())
    assert f"the {waited} jobs that have both" in tiles["median wait"].counted


def test_the_share_in_use_names_the_day_since_when_the_log_shows_all_that_ran(tmp_path: Path) -> None:
    """A dump of the jobs that ended after 9 January: 20 of them had begun before, and what ended earlier is missing."""
    first_end = warehouse.START + timedelta(days=8, minutes=30)
    early = [warehouse.job("tiny", n, wait_s=0, run_s=8 * 86_400 + 1800 + 60 * n, allocated_gpus=1) for n in range(20)]
    later = [warehouse.job("tiny", 20 + n, submit_utc=first_end, wait_s=60 * n, allocated_gpus=1) for n in range(400)]
    jobs = pl.DataFrame([*early, *later])
    tables = {
        "jobs": jobs,
        "attempts": warehouse.attempts_of(conform(schema.JOBS, jobs)),
        "trace_files": pl.DataFrame([warehouse.trace_file("tiny", jobs.height)]),
    }
    settings = ClusterSettings("tiny", nodes=20, gpus_per_node=4)
    source = Source(warehouse.with_features(tmp_path, tables, settings), "tiny")
    (allocated,) = (tile for tile in summary(source).tiles if tile.label == "allocated")
    assert "over the hours from 2024-01-09 01:00 to 2024-01-09 08:09 UTC (the log lacks jobs that ended before)" in (
        allocated.counted
    )
    assert str(in_use(source)).endswith("in use on average since 2024-01-09, when the first recorded job ended")
    whole = Source(warehouse.one_job(tmp_path / "whole"), "tiny")
    (allocated,) = (tile for tile in summary(whole).tiles if tile.label == "allocated")
    assert "over the hours from 2024-01-01 00:00 to 2024-01-01 01:01 UTC. The main resource is" in allocated.counted
    assert str(in_use(whole)).endswith("in use on average")
