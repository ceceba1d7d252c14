"""What the page's own filters add up: jobs by user, partition and period, summed so far that the page stays small.

The page embeds them as JSON and adds up what is chosen. Percentiles come from classes of waits (see CLASS_RATIO), so
they are exact to one class; counts and sums are exact.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import polars as pl

from reports import format as fmt
from reports.causes import CAUSES
from reports.sections.waiting_over_time import step_of
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S

MOST_BYTES = 600_000  # of JSON a cluster
MOST_NAMES = 400  # users, and partitions; the others are one entry
FEWEST_NAMES = 10
EXACT_S, CLASS_RATIO = 60, 1.02  # waits up to a minute have a class each; above, a class is 2 % wide
_CLASS = (
    f"CASE WHEN wait_s < {EXACT_S} THEN greatest(wait_s, 0) "
    f"ELSE {EXACT_S} + floor(ln(wait_s / {EXACT_S}.0) / ln({CLASS_RATIO})) END"
)
_SUMS = ("jobs", "ran", "done", "waited", "long", "gpu_time_s", "wait_s")
UNNAMED = "(not named)"


def embedded(source: Source) -> str | None:
    """JSON for the page of one cluster, safe inside a script element; None where there is no job to filter."""
    cells = _cells(source)
    if cells.is_empty():
        return None
    names = MOST_NAMES
    text = _json(source, cells, names)
    while len(text) > MOST_BYTES and names > FEWEST_NAMES:
        names //= 2
        text = _json(source, cells, names)
    if len(text) > MOST_BYTES:
        text = _json(source, cells.with_columns(pl.col("at_utc").dt.truncate("1mo")), names, "month")
    return text


def _cells(source: Source) -> pl.DataFrame:
    """One row a user, partition, period and class of waits."""
    first, last = source.window
    if "queueing_delay" not in source.tables or source.jobs.is_empty():
        return pl.DataFrame()
    step = step_of(last - first) if first is not None and last is not None else "month"
    known = source.read("SELECT * FROM queueing_delay WHERE cluster = ? LIMIT 0").columns
    causes = "".join(f', sum("{cause.column}") AS "{cause.column}"' for cause in CAUSES if cause.column in known)
    return source.read(
        f"SELECT user_name, partition, date_trunc('{step}', submit_utc) AS at_utc, {_CLASS} AS class, "  # noqa: S608 - our own names
        "count(*) AS jobs, count(*) FILTER (ran) AS ran, count(*) FILTER (ran AND state = 'COMPLETED') AS done, "
        f"count(wait_s) AS waited, count(*) FILTER (wait_s > {NOTICED_WAIT_S}) AS long, sum(gpu_time_s) AS gpu_time_s, "
        f"sum(wait_s) AS wait_s{causes} FROM queueing_delay WHERE cluster = ? GROUP BY ALL"
    ).with_columns(pl.col("at_utc").cast(pl.Datetime("us")))


def _json(source: Source, cells: pl.DataFrame, most_names: int, step: str | None = None) -> str:
    first, last = source.window
    causes = [cause for cause in CAUSES if cause.column in cells.columns]
    if len(causes) < len(CAUSES):
        causes = []
    users, cells = _numbered(cells, "user_name", "user", most_names)
    partitions, cells = _numbered(cells, "partition", "part", most_names)
    periods = cells["at_utc"].drop_nulls().unique().sort().to_list()
    numbers = {at: number for number, at in enumerate(periods)}
    keys, sums = ["user", "part", "at_utc"], [*_SUMS, *(cause.column for cause in causes)]
    summed = cells.group_by(keys).agg(pl.col(sums).sum()).sort(keys)
    classes = cells.filter(pl.col("class").is_not_null()).group_by([*keys, "class"]).agg(pl.col("waited").sum())
    spread: dict[tuple[int, int, datetime | None], list[int]] = {}
    for user, part, at, wait_class, waited in classes.sort([*keys, "class"]).iter_rows():
        spread.setdefault((user, part, at), []).extend((int(wait_class), waited))
    content = {
        "step": step or (step_of(last - first) if first is not None and last is not None else "month"),
        "users": users,
        "partitions": partitions,
        "periods": [fmt.moment(at) for at in periods],
        "sums": sums,
        "causes": [{"sum": cause.column, "name": cause.name, "tint": cause.tint} for cause in causes],
        "exact_s": EXACT_S,
        "ratio": CLASS_RATIO,
        "cells": [
            [user, part, numbers.get(at, -1), [int(value or 0) for value in values], spread.get((user, part, at), [])]
            for user, part, at, *values in summed.select(*keys, *sums).iter_rows()
        ],
    }
    return _safe(content)


def _safe(content: dict[str, Any]) -> str:
    """JSON that no script element ends in, whatever the names hold."""
    text = json.dumps(content, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _numbered(cells: pl.DataFrame, column: str, number: str, most: int) -> tuple[list[str], pl.DataFrame]:
    """Names in order of the alphabet, with a column of their numbers; beyond the `most` with most jobs all are one."""
    by = cells.group_by(column).agg(pl.col("jobs").sum()).sort("jobs", column, descending=[True, False])
    shown = sorted(by[column].head(most).to_list(), key=lambda name: (name is None, name or ""))
    names = [UNNAMED if name is None else fmt.text(name) for name in shown]
    places = pl.DataFrame({column: shown, number: range(len(shown))}, schema={column: pl.String, number: pl.Int64})
    cells = cells.join(places, on=column, how="left", nulls_equal=True)
    if by.height > most:
        names.append(f"the other {by.height - most:,}")
    return names, cells.with_columns(pl.col(number).fill_null(len(shown)))
