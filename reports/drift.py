"""Drift in words: what features are called, and whether a champion still fits what its cluster runs."""

from __future__ import annotations

from typing import Any

import polars as pl

from reports import format as fmt
from traces.counted import counted

FEATURES = {
    "gpus": "GPUs asked for", "nodes": "nodes asked for", "limit_s": "time limit", "run_s": "run time",
    "wait_s": "wait",
    "interarrival_s": "time between submissions", "hour_of_day": "hour of the day", "user_name": "who submits",
    "partition": "partition", "account": "account", "qos": "QOS", "state": "final state", "gpu_time_s": "GPU time",
    "limit_used_share": "share of the limit used", "eligible_wait_s": "wait from eligible",
    "day_of_week": "day of the week", "queued_jobs": "jobs queued before it", "running_jobs": "jobs running before it",
    "wait_error_s": "predicted less actual wait",
}  # fmt: skip


def listed(features: list[str], most: int = 5) -> str:
    """The first of the features in words, and how many more there are."""
    names = [FEATURES.get(name, name) for name in features]
    return ", ".join(names[:most]) + (f" and {counted(len(names) - most, 'more feature')}" if len(names) > most else "")


def sentence(rows: pl.DataFrame) -> str:
    """The newest week of `champion_drift` against the champion's fit, and whether retraining is asked for.

    Empty where there are no rows.
    """
    newest = rows.filter(pl.col("week_utc") == pl.col("week_utc").max()) if len(rows) else rows
    if newest.is_empty():
        return ""
    row = newest.row(0, named=True)
    beyond = newest.filter("is_beyond").sort(pl.col("psi") / pl.col("bound"), descending=True)["feature"].to_list()
    among = (
        f"the {counted(row['weeks'], 'week')} of {fmt.day(row['before_from_utc'])} to "
        f"{fmt.day(row['before_until_utc'])} that champion version {row['champion_version']} was fitted on"
    )
    by_chance = f"by chance one week in {round(1 / row['chance'])} would"
    if not beyond:
        return f"The week of {fmt.day(row['week_utc'])} differs from {among} no more than these among themselves."
    return (
        f"The week of {fmt.day(row['week_utc'])} differs from {among} by more than these among themselves in "
        f"{listed(beyond)} ({by_chance}): retraining is asked for."
    )


def queue_time_sentence(rows: pl.DataFrame) -> str:
    """The newest week of `queue_time_drift` against what the release promised, and whether training is asked for.

    Empty where there are no rows.
    """
    newest = rows.filter(pl.col("week_utc") == pl.col("week_utc").max()) if len(rows) else rows
    if newest.is_empty():
        return ""
    row = newest.row(0, named=True)
    said = " and ".join(_against(one) for one in newest.to_dicts())
    found = (
        f"In the week of {fmt.day(row['week_utc'])} queue-time champion version {row['champion_version']} had, on "
        f"{counted(row['n'], 'job')}, {said}; promised are the medians of the {counted(row['weeks'], 'week')} that "
        "it was judged by."
    )
    if not newest["is_beyond"].any():
        return f"{found} It does no worse than promised."
    by_chance = f"by chance one week in {round(1 / row['chance'])} would be"
    return f"{found} That is worse than these weeks ({by_chance}): training is asked for."


def _against(row: dict[str, Any]) -> str:
    """A score of the week, what was promised of it, and its bound."""
    figures = [row[name] for name in ("value", "promised", "bound")]
    if row["score"] == "missed_95":
        value, promised, bound = (fmt.percent(min(one, 1.0)) for one in figures)
        return f"{value} of waits outside its 95 % intervals (promised {promised}, at most {bound})"
    value, promised, bound = (f"{one:.2f} h" for one in figures)
    return f"a CRPS of {value} (promised {promised}, at most {bound})"
