"""The plot of the first page: hours waited by cause over the window, or the share in use if nothing waited."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.causes import CAUSES
from reports.layout import Figure
from reports.source import Source

_STEPS = (("hour", timedelta(days=3)), ("day", timedelta(days=62)), ("week", timedelta(days=800)))
_SHORTEST = 3  # points; fewer make no line


def over_time(source: Source) -> Figure | None:
    """Plot the waiting by time of submission and cause; else the share in use; None if neither is known."""
    return _waited(source) or _in_use(source)


def step_of(window: timedelta) -> str:
    """Choose the step into which a window is cut (hour, day, week or month) for a readable number of steps."""
    return next((step for step, most in _STEPS if window <= most), "month")


def _waited(source: Source) -> Figure | None:
    first, last = source.window
    if "queueing_delay" not in source.tables or first is None or last is None:
        return None
    step = step_of(last - first)
    known = set(source.read("SELECT * FROM queueing_delay WHERE cluster = ? LIMIT 0").columns)
    causes = [cause for cause in CAUSES if cause.column in known]
    if len(causes) < len(CAUSES):
        causes = []  # a warehouse of an older version
    sums = "".join(f', sum("{cause.column}") AS "{cause.column}"' for cause in causes)
    rows = source.read(
        f"SELECT date_trunc('{step}', submit_utc) AS at_utc, count(wait_s) AS jobs, sum(wait_s) AS wait_s{sums} "  # noqa: S608 - our own names
        "FROM queueing_delay WHERE cluster = ? AND submit_utc IS NOT NULL AND wait_s IS NOT NULL GROUP BY 1 ORDER BY 1"
    )
    if rows.is_empty() or not rows["wait_s"].sum():
        return None
    series = {cause.name: (_hours(rows, cause.column), cause.tint) for cause in causes if rows[cause.column].sum()}
    by = ", by what they waited for" if series else ""
    return Figure(
        "waited",
        f"Hours waited{by}",
        f"Sum of the waits of the jobs submitted in each {step} (UTC). "
        + source.caption(int(rows["jobs"].sum()), "jobs"),
        figures.stacked(
            f"{source.slug}-waited",
            rows["at_utc"].to_list(),
            step,
            series or {"waited": (_hours(rows, "wait_s"), "recorded")},
            f"hours waited, a {step}",
        ),
        f"Stacked bars of the hours waited by {step} of submission.",
    )


def _hours(rows: pl.DataFrame, column: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return rows[column].cast(pl.Float64).fill_null(0.0).to_numpy() / 3600


def _in_use(source: Source) -> Figure | None:
    held = source.rows("utilization_allocated")
    if held.is_empty():
        return None
    of_cluster = (pl.col("scope") == "cluster") & pl.col("is_binding")
    held = held.filter(of_cluster & pl.col("allocated_share").is_not_null()).sort("hour_utc")
    if held.height < _SHORTEST:
        return None
    unit = held["unit"][0]
    share = held["allocated_share"].cast(pl.Float64).to_numpy()
    return Figure(
        "in_use",
        f"{fmt.text(unit)} hours in use",
        f"Share of the cluster's {unit} hours held by jobs. {source.caption(held.height, 'hours')}",
        figures.over_time(
            f"{source.slug}-in-use",
            held["hour_utc"].to_list(),
            {"in use": (share, "allocated")},
            f"share of {source.resource}",
            fill=True,
            as_share=True,
        ),
        "Share in use over time.",
    )
