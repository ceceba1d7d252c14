"""Section `summary`, the first page: three sentences, five numbers with trends, one plot, one recommended action."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from reports import figures
from reports import format as fmt
from reports.advice import findings
from reports.advice.advice import actions
from reports.layout import Section, Tile, Trend
from reports.parts.waiting_over_time import over_time
from reports.source import Source
from traces.counted import counted, listed

TREND_WEEKS = 4
MOST_ALSO = 2  # further actions on the page


def summary(source: Source) -> Section:
    """Return three sentences (who, why, what to do), five numbers, one plot, and the recommended actions."""
    section = Section("summary", "The finding")
    sentences = findings.of_source(source)
    if source.jobs.is_empty():
        section.missing = [finding["sentence"] for finding in sentences]
        return section
    section.sentences = [finding["sentence"] for finding in sentences]
    section.tiles = _tiles(source)
    section.figures += [figure for figure in (over_time(source),) if figure is not None]
    section.actions = actions(source)[: 1 + MOST_ALSO]
    section.missing += _lacks(source)
    return section


def _lacks(source: Source) -> list[str]:
    """Say what the log does not record and what to add to the dump, and what it contradicts of the cluster's size."""
    sentences = []
    lacks = source.missing_fields
    if lacks is not None:
        remedy = f" To add them, dump the log with {', '.join(lacks.add)} in sacct --format." if lacks.add else ""
        sentences.append(
            f"The log does not record {listed(lacks.what, 'or')}, so the report lacks what depends on them.{remedy}"
        )
    contradicted = source.machine.get("contradictions")
    if contradicted:
        sentences.append(
            f"The log contradicts the known size of the cluster, so the larger number counts: {fmt.text(contradicted)}."
        )
    return sentences


def lead(source: Source) -> str:
    """Describe the log in one line: jobs, users, window and machine."""
    jobs, (first, last) = source.jobs, source.window
    users = jobs["user_name"].drop_nulls().n_unique()
    ran = int(jobs["start_utc"].is_not_null().sum())
    size = source.machine
    machine = f" on {counted(size['nodes'], 'node')}" if size.get("nodes") else ""
    amount = {"GPU": "gpus", "core": "cpus"}.get(size.get("resource", ""))
    machine += f" with {counted(size[amount], source.unit)}" if machine and amount and size[amount] else ""
    machine += f" ({size['known_by']})" if machine else ""
    people = f" of {counted(users, 'user')}" if users else ""
    return (
        f"{counted(jobs.height, 'job')}{people}, {fmt.day(first)} to {fmt.day(last)}{machine}; "
        f"{ran:,} of {'it' if jobs.height == 1 else 'them'} started."
    )


def _tiles(source: Source) -> list[Tile]:
    jobs = source.jobs
    waits = jobs["wait_s"].drop_nulls()
    known = jobs.filter(pl.col("state") != "UNKNOWN")
    completed_share, is_weighted = _completed(known)
    waited = f"Start minus submission of the {counted(len(waits), 'job')} that have both"
    whole = f"{source.unit} time" if is_weighted else "jobs that ran"
    unit = f"{source.unit[0].upper()}{source.unit[1:]}"
    held = f"{unit} time held by" if is_weighted else "Number of"
    return [
        Tile("jobs", fmt.count(jobs.height), "submitted in the window", "All jobs of the log, whether they ran or not.",
             _trend(_weekly(source, pl.len()), fmt.count)),
        Tile("median wait", fmt.duration(_quantile(waits, 0.5)), "of jobs that ran",
             f"{waited}; half of them waited less.",
             _trend(_weekly(source, pl.col("wait_s").median()), fmt.duration)),
        Tile("95th percentile of the wait", fmt.duration(_quantile(waits, 0.95)), "of jobs that ran",
             f"{waited}; linear interpolation between the two nearest sorted waits.",
             _trend(_weekly(source, pl.col("wait_s").quantile(0.95, interpolation="linear")), fmt.duration)),
        Tile("allocated", fmt.percent(findings.allocated_share(source)), f"of the {source.unit} hours",
             f"{unit} time held by jobs divided by the capacity, summed over {_hours(source)}. "
             f"The main resource is {source.resource}: {source.machine.get('why', '')}.",
             _trend(_weekly_allocated(source), fmt.percent)),
        Tile("completed", fmt.percent(completed_share), f"of the {whole}",
             f"{held} jobs in state COMPLETED, divided by that of {counted(known.height, 'job')} whose state is known.",
             _trend(_weekly(source, _completed_share(is_weighted)), fmt.percent) if known.height else None),
    ]  # fmt: skip


def _completed(jobs: pl.DataFrame) -> tuple[float | None, bool]:
    """Return the share that completed, and whether it is weighted by the time held of the main resource."""
    is_weighted = bool((jobs["unit_time_s"].sum() or 0) > 0)
    return _float(jobs.select(_completed_share(is_weighted)).item()), is_weighted


def _completed_share(is_weighted: bool) -> pl.Expr:
    weight = pl.col("unit_time_s").fill_null(0) if is_weighted else pl.col("start_utc").is_not_null().cast(pl.Int64)
    return weight.filter(pl.col("state") == "COMPLETED").sum() / weight.sum()


def _allocated_hours(source: Source) -> pl.DataFrame:
    held = source.rows("utilization_allocated")
    if held.is_empty():
        return held
    return held.filter((pl.col("scope") == "cluster") & pl.col("is_binding") & pl.col("capacity_s").is_not_null()).sort(
        "hour_utc"
    )


def _hours(source: Source) -> str:
    """Name the hours that the share in use covers, and why earlier hours are left out."""
    held = _allocated_hours(source)
    if held.is_empty():
        return "the hours of the window"
    words = f"the hours from {fmt.moment(held['hour_utc'][0])} to {fmt.moment(source.machine['until_utc'])} UTC"
    return f"{words} (the log lacks jobs that ended before)" if source.shown_since else words


def _weekly_allocated(source: Source) -> pl.DataFrame:
    held = _allocated_hours(source)
    if held.is_empty():
        return held
    return held.group_by_dynamic(pl.col("hour_utc").alias("week"), every="1w").agg(
        (pl.col("allocated_s").sum() / pl.col("capacity_s").sum()).alias("value")
    )


def _weekly(source: Source, value: pl.Expr) -> pl.DataFrame:
    known = source.jobs.filter(pl.col("submit_utc").is_not_null()).sort("submit_utc")
    if known.is_empty():
        return known
    return known.group_by_dynamic(pl.col("submit_utc").alias("week"), every="1w").agg(value.alias("value"))


def _trend(weeks: pl.DataFrame, show: Callable[[float | None], str]) -> Trend | None:
    """Return the trend of the weeks, without the first and the last, which the window may cut.

    Returns None if fewer than three weeks have a value.
    """
    known = [(week, _float(value)) for week, value in weeks.iter_rows()][1:-1]
    days = [week for week, value in known if value is not None]
    values = tuple(value for _, value in known if value is not None)
    if not figures.sparkline(values):
        return None
    words = "weekly"
    if len(values) >= 2 * TREND_WEEKS:
        newest, before = sum(values[-TREND_WEEKS:]), sum(values[-2 * TREND_WEEKS : -TREND_WEEKS])
        words = f"weekly; last {TREND_WEEKS} weeks: {_change(newest, before)} the {TREND_WEEKS} before"
    return Trend(values, fmt.day(days[0]), fmt.day(days[-1]), show(min(values)), show(max(values)), words)


def _change(newest: float, before: float) -> str:
    """Compare two sums in words: a percentage, or a multiple if the newest is more than three times the other."""
    if not before:
        return "equal to" if not newest else "above"
    ratio = newest / before
    return f"{ratio:.0f} times" if ratio > 3 else f"{100 * (ratio - 1):+.0f} % compared with"


def _quantile(values: pl.Series, share: float) -> float | None:
    return _float(values.quantile(share, interpolation="linear"))


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
