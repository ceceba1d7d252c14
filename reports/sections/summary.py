"""Section `summary`, the first page: three sentences, five numbers with trends, one plot, one recommended action."""

from __future__ import annotations

import math

import polars as pl

from reports import figures, findings
from reports import format as fmt
from reports.advice import actions
from reports.layout import Section, Tile
from reports.sections.waiting_over_time import over_time
from reports.source import Source
from traces.counted import counted

TREND_WEEKS = 4
MOST_ALSO = 2  # what would help besides, at most


def summary(source: Source) -> Section:
    """Three sentences (who, why, what to do), five numbers, one plot, and the recommended action."""
    section = Section("summary", "The finding")
    sentences = findings.of(source)
    if source.jobs.is_empty():
        section.missing = [finding["sentence"] for finding in sentences]
        return section
    section.sentences = [finding["sentence"] for finding in sentences]
    section.tiles = _tiles(source)
    section.figures += [figure for figure in (over_time(source),) if figure is not None]
    section.actions = actions(source)[: 1 + MOST_ALSO]
    return section


def lead(source: Source) -> str:
    """What the log is: jobs, people, window and machine, in one line."""
    jobs, (first, last) = source.jobs, source.window
    users = jobs["user_name"].drop_nulls().n_unique()
    ran = int(jobs["start_utc"].is_not_null().sum())
    size = source.read(
        "SELECT max(capacity_nodes) AS nodes, max(capacity_gpus) AS gpus FROM fragmentation WHERE cluster = ?"
    ).to_dicts()[0] if "fragmentation" in source.tables else {"nodes": None, "gpus": None}  # fmt: skip
    machine = " on " + counted(size["nodes"], "node") if size["nodes"] else ""
    machine += f" with {counted(size['gpus'], 'GPU')}" if machine and size["gpus"] else ""
    people = f" of {counted(users, 'user')}" if users else ""
    return (
        f"{counted(jobs.height, 'job')}{people}, {fmt.day(first)} to {fmt.day(last)}{machine}; "
        f"{ran:,} of {'it' if jobs.height == 1 else 'them'} started."
    )


def _tiles(source: Source) -> list[Tile]:
    jobs = source.jobs
    waits = jobs["wait_s"].drop_nulls()
    share = findings.allocated_share(source)
    known = jobs.filter(pl.col("state") != "UNKNOWN")
    done, weighted = _completed(known)
    return [
        _tile("jobs", fmt.count(jobs.height), "submitted in the window", _weekly(source, pl.len())),
        _tile("median wait", fmt.duration(_quantile(waits, 0.5)), "of jobs that ran",
              _weekly(source, pl.col("wait_s").median())),
        _tile("95th percentile of the wait", fmt.duration(_quantile(waits, 0.95)), "of jobs that ran",
              _weekly(source, pl.col("wait_s").quantile(0.95, interpolation="linear"))),
        _tile("allocated", fmt.percent(share), "of the capacity, by time", _weekly_allocated(source)),
        _tile("completed", fmt.percent(done), f"of the {'GPU time' if weighted else 'jobs that ran'}",
              _weekly(source, _completed_share(weighted)) if known.height else ()),
    ]  # fmt: skip


def _completed(jobs: pl.DataFrame) -> tuple[float | None, bool]:
    """Share that completed, and whether it is weighted by GPU time (where the log has any)."""
    weighted = (jobs["gpu_time_s"].sum() or 0) > 0
    return _float(jobs.select(_completed_share(bool(weighted))).item()), bool(weighted)


def _completed_share(weighted: bool) -> pl.Expr:
    weight = pl.col("gpu_time_s").fill_null(0) if weighted else pl.col("start_utc").is_not_null().cast(pl.Int64)
    return weight.filter(pl.col("state") == "COMPLETED").sum() / weight.sum()


def _allocated_hours(source: Source) -> pl.DataFrame:
    held = source.rows("utilization_allocated")
    if held.is_empty():
        return held
    return held.filter((pl.col("scope") == "cluster") & pl.col("capacity_s").is_not_null()).sort("hour_utc")


def _weekly_allocated(source: Source) -> tuple[float, ...]:
    held = _allocated_hours(source)
    if held.is_empty():
        return ()
    weeks = held.group_by_dynamic("hour_utc", every="1w").agg(
        (pl.col("allocated_s").sum() / pl.col("capacity_s").sum()).alias("value")
    )
    return _whole_weeks(weeks)


def _weekly(source: Source, value: pl.Expr) -> tuple[float, ...]:
    known = source.jobs.filter(pl.col("submit_utc").is_not_null()).sort("submit_utc")
    if known.is_empty():
        return ()
    return _whole_weeks(known.group_by_dynamic("submit_utc", every="1w").agg(value.alias("value")))


def _whole_weeks(weeks: pl.DataFrame) -> tuple[float, ...]:
    """Values of the weeks but the first and the last, which the window may cut."""
    values = (_float(value) for value in weeks["value"].to_list()[1:-1])
    return tuple(value for value in values if value is not None)


def _tile(label: str, value: str, meaning: str, trend: tuple[float, ...]) -> Tile:
    words = "weekly" if figures.sparkline(trend) else ""
    if len(trend) >= 2 * TREND_WEEKS:
        newest, before = sum(trend[-TREND_WEEKS:]), sum(trend[-2 * TREND_WEEKS : -TREND_WEEKS])
        words = f"weekly; last {TREND_WEEKS} weeks {_change(newest, before)} the {TREND_WEEKS} before"
    return Tile(label, value, meaning, trend, words)


def _change(newest: float, before: float) -> str:
    """The second as a change on the first: a percentage, or so many times where it more than trebled."""
    if not before:
        return "as" if not newest else "above"
    ratio = newest / before
    return f"{ratio:.0f} times" if ratio > 3 else f"{100 * (ratio - 1):+.0f} % on"


def _quantile(values: pl.Series, share: float) -> float | None:
    return _float(values.quantile(share, interpolation="linear"))


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
