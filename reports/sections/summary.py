"""Section `summary`, the first page: three sentences, five numbers with trends, one plot, one recommended action."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from reports import figures, findings
from reports import format as fmt
from reports.advice import actions
from reports.layout import Section, Tile, Trend
from reports.sections.waiting_over_time import over_time
from reports.source import Source
from traces.counted import counted, listed

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
    section.missing += _lacks(source)
    return section


def _lacks(source: Source) -> list[str]:
    """What this log does not hold, once, with what to add to the dump; and what it contradicts of the machine."""
    said = []
    lacks = source.missing_fields
    if lacks is not None:
        asked = f": add {', '.join(lacks.add)} to sacct --format" if lacks.add else ""
        said.append(f"The log holds no {listed(lacks.what, 'or')}, so what needs these is not inferred{asked}.")
    contradicted = source.machine.get("contradictions")
    if contradicted:
        said.append(f"The log contradicts the machine, and the larger number counts: {fmt.text(contradicted)}.")
    return said


def lead(source: Source) -> str:
    """What the log is: jobs, people, window and machine, in one line."""
    jobs, (first, last) = source.jobs, source.window
    users = jobs["user_name"].drop_nulls().n_unique()
    ran = int(jobs["start_utc"].is_not_null().sum())
    size = source.machine
    machine = f" on {counted(size['nodes'], 'node')}" if size.get("nodes") else ""
    of = {"GPU": "gpus", "core": "cpus"}.get(size.get("resource", ""))
    machine += f" with {counted(size[of], source.unit)}" if machine and of and size[of] else ""
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
    done, weighted = _completed(known)
    waited = f"Start minus submission of the {counted(len(waits), 'job')} with both"
    of = f"{source.unit} time" if weighted else "jobs that ran"
    held = f"{source.unit[0].upper()}{source.unit[1:]} time held by" if weighted else "Number of"
    return [
        Tile("jobs", fmt.count(jobs.height), "submitted in the window", "All jobs of the log, whether they ran or not.",
             _trend(_weekly(source, pl.len()), fmt.count)),
        Tile("median wait", fmt.duration(_quantile(waits, 0.5)), "of jobs that ran",
             f"{waited}; half of them waited less.",
             _trend(_weekly(source, pl.col("wait_s").median()), fmt.duration)),
        Tile("95th percentile of the wait", fmt.duration(_quantile(waits, 0.95)), "of jobs that ran",
             f"{waited}; linear interpolation between the two nearest of the sorted waits.",
             _trend(_weekly(source, pl.col("wait_s").quantile(0.95, interpolation="linear")), fmt.duration)),
        Tile("allocated", fmt.percent(findings.allocated_share(source)), f"of the {source.unit} hours",
             f"{source.unit[0].upper()}{source.unit[1:]} time held by jobs over what the cluster has, summed over "
             f"{_hours(source)}. The cluster is about {source.resource}: {source.machine.get('why', '')}.",
             _trend(_weekly_allocated(source), fmt.percent)),
        Tile("completed", fmt.percent(done), f"of the {of}",
             f"{held} jobs in state COMPLETED, over that of all {known.height:,} whose last state is known.",
             _trend(_weekly(source, _completed_share(weighted)), fmt.percent) if known.height else None),
    ]  # fmt: skip


def _completed(jobs: pl.DataFrame) -> tuple[float | None, bool]:
    """Share that completed, and whether it is weighted by time held of the cluster's resource, where that is known."""
    weighted = (jobs["unit_time_s"].sum() or 0) > 0
    return _float(jobs.select(_completed_share(bool(weighted))).item()), bool(weighted)


def _completed_share(weighted: bool) -> pl.Expr:
    weight = pl.col("unit_time_s").fill_null(0) if weighted else pl.col("start_utc").is_not_null().cast(pl.Int64)
    return weight.filter(pl.col("state") == "COMPLETED").sum() / weight.sum()


def _allocated_hours(source: Source) -> pl.DataFrame:
    held = source.rows("utilization_allocated")
    if held.is_empty():
        return held
    return held.filter((pl.col("scope") == "cluster") & pl.col("is_binding") & pl.col("capacity_s").is_not_null()).sort(
        "hour_utc"
    )


def _hours(source: Source) -> str:
    """The hours that the share in use is of, and why not those before."""
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
    """The weeks but the first and the last, which the window may cut; None where fewer than three have a value."""
    known = [(week, _float(value)) for week, value in weeks.iter_rows()][1:-1]
    days = [week for week, value in known if value is not None]
    values = tuple(value for _, value in known if value is not None)
    if not figures.sparkline(values):
        return None
    words = "weekly"
    if len(values) >= 2 * TREND_WEEKS:
        newest, before = sum(values[-TREND_WEEKS:]), sum(values[-2 * TREND_WEEKS : -TREND_WEEKS])
        words = f"weekly; last {TREND_WEEKS} weeks {_change(newest, before)} the {TREND_WEEKS} before"
    return Trend(values, fmt.day(days[0]), fmt.day(days[-1]), show(min(values)), show(max(values)), words)


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
