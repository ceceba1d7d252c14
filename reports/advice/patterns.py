"""Which hours and sizes wait longest: patterns of many jobs that remain without the user who waits most."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from features.resources.sizes import size_in_words
from reports import format as fmt
from reports.source import Source

STANDS_OUT = 1.5  # times the mean wait of all jobs; an hour or a size below that is not named
NAMELESS = 0.1  # of the jobs; if more have no user, any pattern may come from one user
LEAST_JOBS, LEAST_SHARE = 30, 0.01  # number, and share of the jobs that started, that a pattern needs


@dataclass(frozen=True)
class Pattern:
    """A group of jobs that waits longer than the others: its name in words, and its mean wait (s)."""

    words: str
    mean_wait_s: float


def patterns(source: Source) -> list[Pattern]:
    """Return the size and the hour of the day (local time) that wait longest, at most one of each.

    Each must wait longest both with and without the jobs of the user who waits most.
    """
    waits = source.read(
        "SELECT user_name, wait_s, nullif(size_bucket, '0') AS size, submit_utc FROM queueing_delay "
        "WHERE cluster = ? AND wait_s IS NOT NULL AND submit_utc IS NOT NULL"
    )
    if waits.is_empty() or waits["user_name"].null_count() > NAMELESS * waits.height:
        return []
    local = pl.col("submit_utc").dt.replace_time_zone("UTC").dt.convert_time_zone(source.timezone)
    waits = waits.with_columns(local.dt.hour().alias("hour"))
    found = []
    for column in ("size", "hour"):
        longest = _longest(waits, column)
        if longest is None:
            continue
        value, mean = longest
        if column == "size":
            words = f"jobs of {size_in_words(str(value), source.unit)}"
        else:
            words = f"jobs submitted from {value:02d}:00 to {value:02d}:59 ({source.timezone})"
        found.append(Pattern(words, mean))
    return found


def _longest(waits: pl.DataFrame, column: str) -> tuple[object, float] | None:
    """Return the value of `column` with the longest mean wait, and that mean.

    Returns None if no value stands out, or if it does so only because of one user's jobs.
    """
    by_user = (
        waits.drop_nulls("user_name").group_by("user_name").agg(pl.col("wait_s").sum()).sort("wait_s", "user_name")
    )
    most = by_user["user_name"][-1] if by_user.height else None
    others = waits.filter(pl.col("user_name").ne_missing(pl.lit(most))) if by_user.height > 1 else waits
    means = _means(waits, column)
    if means.height < 2 or not _stands_out(means, waits):
        return None
    value = means[column][-1]
    rest = _means(others, column).filter(pl.col(column) == value)
    if rest.is_empty() or not _stands_out(rest, others):
        return None
    return value, float(means["mean"][-1])


def _means(waits: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the mean wait of each value with enough jobs, the longest last."""
    least = max(LEAST_JOBS, LEAST_SHARE * waits.height)
    by = waits.drop_nulls(column).group_by(column).agg(pl.len().alias("jobs"), pl.col("wait_s").mean().alias("mean"))
    return by.filter(pl.col("jobs") >= least).sort("mean", column)


def _stands_out(means: pl.DataFrame, waits: pl.DataFrame) -> bool:
    return bool(means["mean"][-1] >= STANDS_OUT * float(str(waits["wait_s"].mean())))


def in_words(source: Source) -> str:
    """Return `patterns` as a sentence without a full stop; '' if there is none."""
    found = patterns(source)
    if not found:
        return ""
    whole = fmt.duration(source.mean_wait_s)
    parts = [f"{one.words} ({fmt.duration(one.mean_wait_s)} on average)" for one in found]
    longest = " and ".join(parts)
    return f"{longest[0].upper()}{longest[1:]} wait longest; the mean wait of all jobs is {whole}"
