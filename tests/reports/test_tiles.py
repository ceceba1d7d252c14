"""The tiles of the first page: trends with their scale and dates, and how each number was counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from reports import format as fmt
from reports.sections.summary import summary
from reports.source import Source
from tests.reports import warehouse
from traces.store.folder import DataFolder

CLUSTER = "gpu-lab"


def _sql(data: DataFolder, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(data.warehouse), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_weeks_are_spoken_of_where_there_is_a_trend(full_data: DataFolder, tmp_path: Path) -> None:
    long = [tile.trend.words for tile in summary(Source(full_data, CLUSTER)).tiles if tile.trend]
    assert len(long) == 5 and all(re.match(r"weekly; last 4 weeks .* the 4 before$", words) for words in long), long
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
    assert f"the {waited} jobs with both" in tiles["median wait"].counted
