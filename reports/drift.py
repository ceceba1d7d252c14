"""Drift in words: the names of features, and whether a champion still fits the jobs of its cluster."""

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


def list_features(features: list[str], most: int = 5) -> str:
    """Name the first `most` features in words, and count the rest."""
    names = [FEATURES.get(name, name) for name in features]
    return ", ".join(names[:most]) + (f" and {counted(len(names) - most, 'more feature')}" if len(names) > most else "")


def drift_sentence(rows: pl.DataFrame) -> str:
    """Compare the newest week of `champion_drift` with the weeks of the champion's fit, and say whether to retrain.

    Returns '' if there are no rows.
    """
    newest = rows.filter(pl.col("week_utc") == pl.col("week_utc").max()) if len(rows) else rows
    if newest.is_empty():
        return ""
    row = newest.row(0, named=True)
    beyond = newest.filter("is_beyond").sort(pl.col("psi") / pl.col("bound"), descending=True)["feature"].to_list()
    week = f"The week of {fmt.day(row['week_utc'])}"
    fitted_on = (
        f"the {counted(row['weeks'], 'week')} from {fmt.day(row['before_from_utc'])} to "
        f"{fmt.day(row['before_until_utc'])} that champion version {row['champion_version']} was fitted on"
    )
    by_chance = f"by chance, one week in {round(1 / row['chance'])} would"
    if not beyond:
        return f"{week} differs from {fitted_on} no more than these weeks differ among themselves."
    return (
        f"{week} differs in {list_features(beyond)} from {fitted_on}, by more than these weeks differ among themselves "
        f"({by_chance}). Retraining is requested."
    )


def queue_time_sentence(rows: pl.DataFrame) -> str:
    """Compare the newest week of `queue_time_drift` with what the release promised, and say whether to retrain.

    Returns '' if there are no rows.
    """
    newest = rows.filter(pl.col("week_utc") == pl.col("week_utc").max()) if len(rows) else rows
    if newest.is_empty():
        return ""
    row = newest.row(0, named=True)
    scores = " and ".join(_against(one) for one in newest.to_dicts())
    comparison = (
        f"In the week of {fmt.day(row['week_utc'])} queue-time champion version {row['champion_version']} had, on "
        f"{counted(row['n'], 'job')}, {scores}. The promised values are the medians of the "
        f"{counted(row['weeks'], 'week')} in which it was evaluated."
    )
    if not newest["is_beyond"].any():
        return f"{comparison} It is no worse than promised."
    by_chance = f"by chance, one week in {round(1 / row['chance'])} would be"
    return f"{comparison} It is worse than in those weeks ({by_chance}). Retraining is requested."


def _against(row: dict[str, Any]) -> str:
    """Format a score of the week with its promised value and its bound."""
    figures = [row[name] for name in ("value", "promised", "bound")]
    if row["score"] == "missed_95":
        value, promised, bound = (fmt.percent(min(one, 1.0)) for one in figures)
        return f"{value} of waits outside its 95 % intervals (promised {promised}, at most {bound})"
    value, promised, bound = (f"{one:.2f} h" for one in figures)
    return f"a CRPS of {value} (promised {promised}, at most {bound})"
