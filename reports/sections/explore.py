"""The numbers behind the page's filters: jobs by user, partition and period, with the sorted waits of each.

The page embeds them as compressed JSON and sums what is chosen, so its counts and sums are exact. Percentiles are exact
if the waits fit into MOST_BYTES. Otherwise waits, then periods, then names become coarser, one step of GRAINS after
another, and `notes` states the error of each figure.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.sizes import by_size
from reports import format as fmt
from reports.causes import CAUSES
from reports.longest import longest
from reports.parts.waiting_over_time import step_of
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from traces.clusters import check_timezone

MOST_BYTES = 600_000  # of compressed JSON per cluster, as embedded in the page
UNNAMED = "(not named)"
_SUMS = {
    "jobs": "count(*)",
    "ran": "count(*) FILTER (ran)",
    "done": "count(*) FILTER (ran AND state = 'COMPLETED')",
    "waited": "count(wait_s)",
    "long": f"count(*) FILTER (wait_s > {NOTICED_WAIT_S})",
    "wait_s": "sum(wait_s)",
    "held_time_s": "sum(unit_time_s)",
    "known_time_s": "sum(unit_time_s) FILTER (state <> 'UNKNOWN')",
    "done_time_s": "sum(unit_time_s) FILTER (state = 'COMPLETED')",
}


@dataclass(frozen=True)
class Grain:
    """The resolution of the numbers.

    `names` is the number of users, and of partitions, that are kept. `step` is the period; None selects the one that
    suits the window. `bits` is the number of leading bits kept of a wait; None keeps waits to the second. `is_split`
    keeps sizes, states and months apart, so that the tables of waits by them can be filtered.
    """

    names: int
    step: str | None = None
    bits: int | None = None
    is_split: bool = False

    @property
    def error(self) -> float:
        """The largest relative error of any wait, and therefore of any percentile of waits."""
        return 0.0 if self.bits is None else 2.0**-self.bits


GRAINS = (
    Grain(2_000, is_split=True),
    Grain(2_000),
    Grain(2_000, bits=10),
    Grain(2_000, bits=7),
    Grain(2_000, "month", 7),
    Grain(400, "month", 7),
    Grain(100, "month", 7),
    Grain(30, "month", 7),
    Grain(10, "year", 7),
)


@dataclass(frozen=True)
class _Numbers:
    """What the warehouse holds: sums per user, partition and period, and the distinct waits with their counts."""

    step: str
    unit: str  # of the main resource
    causes: list[str]
    sums: pl.DataFrame
    waits: pl.DataFrame


def embedded(source: Source) -> str | None:
    """Return base64 of the compressed JSON of one cluster; None if there is no job to filter.

    It contains no character that is special in HTML, whatever the names are.
    """
    numbers = _numbers(source)
    if numbers is None:
        return None
    jobs = longest(source, numbers.step)
    for grain in GRAINS:
        content = _content(numbers, jobs, grain)
        if content is None or len(_with_texts(content, 0)) > MOST_BYTES:
            continue
        texts = sum(job["text"] is not None for job in jobs)
        while len(text := _with_texts(content, texts)) > MOST_BYTES:
            texts //= 2
        return text
    return None


def _with_texts(content: dict[str, Any], most: int) -> str:
    """Pack the content with the texts of the first `most` jobs, which are of the users who waited longest."""
    jobs = [job if place < most else [*job[:-1], None] for place, job in enumerate(content["longest"])]
    return packed({**content, "longest": jobs})


def packed(content: dict[str, Any]) -> str:
    """Return JSON, compressed (zlib) and as base64, which the page unpacks."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def rounded(waits: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Round waits (s) of shape (n,) to their leading `bits` bits, at the middle of each interval.

    The result is monotone, exact below 2**bits, and off by at most 2**-bits of the wait, like the buckets of
    HdrHistogram.
    """
    magnitude = np.abs(waits)
    width = np.int64(1) << np.maximum(np.frexp(magnitude.astype(np.float64))[1].astype(np.int64) - bits, 0)
    coarse: NDArray[np.int64] = np.sign(waits) * (magnitude // width * width + width // 2)
    return coarse


def _numbers(source: Source) -> _Numbers | None:
    first, last = source.window
    if "queueing_delay" not in source.tables or source.jobs.is_empty():
        return None
    step = step_of(last - first) if first is not None and last is not None else "month"
    known = source.read("SELECT * FROM queueing_delay WHERE cluster = ? LIMIT 0").columns
    causes = [cause.column for cause in CAUSES if cause.column in known]
    if len(causes) < len(CAUSES):
        causes = []  # a warehouse of an older version
    zone = check_timezone(source.timezone, f"cluster {source.cluster!r}")  # it goes into the statement
    key = (
        f"user_name, partition, date_trunc('{step}', submit_utc)::TIMESTAMP AS at_utc, size_bucket, state, "
        f"strftime(timezone('{zone}', timezone('UTC', submit_utc)), '%Y-%m') AS month"
    )
    sums = ", ".join(f'{sql} AS "{name}"' for name, sql in {**_SUMS, **{c: f'sum("{c}")' for c in causes}}.items())
    return _Numbers(
        step,
        source.unit,
        causes,
        source.compact(f"SELECT {key}, {sums} FROM queueing_delay WHERE cluster = ? GROUP BY ALL"),  # noqa: S608 - our own names
        source.compact(
            f"SELECT {key}, wait_s, count(*) AS n FROM queueing_delay "  # noqa: S608 - our own names
            "WHERE cluster = ? AND wait_s IS NOT NULL GROUP BY ALL"
        ),
    )


_CELL = ["user", "part", "period"]
_SPLIT = ["size_bucket", "state", "month"]  # columns of the tables that a split cell can fill


def _content(numbers: _Numbers, jobs: list[dict[str, Any]], grain: Grain) -> dict[str, Any] | None:
    """Return the page's numbers at one grain; None if they cannot fit."""
    step = grain.step or numbers.step
    sums, waits = (frame.with_columns(_start_of(step)) for frame in (numbers.sums, numbers.waits))
    users, partitions = _by_waiting(sums, "user_name", grain.names), _by_waiting(sums, "partition", grain.names)
    periods = sums["at_utc"].drop_nulls().unique().sort().to_list()
    places: dict[str, dict[Any, int]] = {
        "user_name": users, "partition": partitions, "at_utc": {at: place for place, at in enumerate(periods)},
    }  # fmt: skip
    if grain.bits is not None:
        waits = waits.with_columns(pl.Series("wait_s", rounded(waits["wait_s"].to_numpy(), grain.bits)))
    split = {name: _split_names(sums[name]) for name in _SPLIT} if grain.is_split else {}
    sums, waits = (_placed(frame, places).with_columns(_split_places(split)) for frame in (sums, waits))
    cell = [*_CELL, *split]
    waits = waits.group_by(*cell, "wait_s").agg(pl.col("n").sum()).sort(*cell, "wait_s")
    if waits.height > MOST_BYTES:  # each takes a byte at least
        return None
    names = [*_SUMS, *numbers.causes]
    return {
        "step": step,
        "users": _shown(users, sums["user_name"].n_unique()),
        "partitions": _shown(partitions, sums["partition"].n_unique()),
        "periods": [fmt.moment(at) for at in periods],
        "sums": names,
        "causes": [{"sum": c.column, "name": c.name, "tint": c.tint} for c in CAUSES if numbers.causes],
        "held": {"sum": "held_time_s", "name": f"{numbers.unit} hours"},
        "completed": _completed(sums, numbers.unit),
        "notes": _notes(grain, step != numbers.step),
        "tables": [
            {"name": f"by_{name}", "values": [fmt.MISSING if value is None else fmt.text(value) for value in values]}
            for name, values in split.items()
        ],
        "cells": _cells(sums.group_by(cell).agg(pl.col(names).sum()).sort(cell), waits, cell),
        "longest": [_job(job, places, step) for job in jobs if job["user_name"] in users],
    }


def _start_of(step: str) -> pl.Expr:
    return pl.col("at_utc").dt.truncate({"hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "year": "1y"}[step])


def _by_waiting(sums: pl.DataFrame, column: str, most: int) -> dict[str | None, int]:
    """Return the `most` names with the longest total wait, and the place of each."""
    by = sums.group_by(column).agg(pl.col("wait_s", "jobs").sum()).with_columns(pl.col(column).cast(pl.String))
    by = by.sort("wait_s", "jobs", column, descending=[True, True, False], nulls_last=True)
    return {name: place for place, name in enumerate(by[column].head(most).to_list())}


def _shown(places: dict[str | None, int], total: int) -> list[str]:
    """Return the names in order; the names left out become one more entry."""
    names = [UNNAMED if name is None else fmt.text(name) for name in places]
    return [*names, f"the other {total - len(names):,}"] if total > len(names) else names


def _placed(rows: pl.DataFrame, places: dict[str, dict[Any, int]]) -> pl.DataFrame:
    """Replace names and periods by their places (columns of _CELL)."""
    for (column, known), cell in zip(places.items(), _CELL, strict=True):
        keys = pl.Series(column, list(known), pl.Datetime("us") if cell == "period" else pl.String)
        place = pl.DataFrame([keys.cast(rows.schema[column]), pl.Series(cell, range(len(known)), pl.Int64)])
        rows = rows.join(place, on=column, how="left", nulls_equal=True)
    return rows.with_columns(
        pl.col("user").fill_null(len(places["user_name"])),
        pl.col("part").fill_null(len(places["partition"])),
        pl.col("period").fill_null(-1),
    )


def _split_names(values: pl.Series) -> list[str | None]:
    """Return the values of a column of _SPLIT in the order of its table, a null last."""
    known = values.cast(pl.String).unique().to_frame("value")
    key = by_size("value") if values.name == "size_bucket" else pl.col("value")
    return known.sort(key, nulls_last=True)["value"].to_list()


def _split_places(split: dict[str, list[str | None]]) -> list[pl.Expr]:
    """Replace the values of those columns by their places."""
    return [
        pl.col(name).cast(pl.String).replace_strict(values, range(len(values)), return_dtype=pl.Int64)
        for name, values in split.items()
    ]


def _cells(sums: pl.DataFrame, waits: pl.DataFrame, cell: list[str]) -> list[list[Any]]:
    """Return user, partition, period, sums, the sorted waits as differences to the one before with counts, and the
    places of _SPLIT if the cells are split."""
    runs = waits.with_columns(pl.col("wait_s").diff().over(cell).fill_null(pl.col("wait_s")))
    runs = runs.group_by(cell, maintain_order=True).agg(pl.concat_list("wait_s", "n").explode().alias("runs"))
    joined = sums.join(runs, on=cell, how="left", maintain_order="left")
    at, split = len(_CELL), len(cell)
    return [
        [*row[:at], [int(value or 0) for value in row[split:-1]], row[-1] or [], *row[at:split]]
        for row in joined.iter_rows()
    ]


def _job(job: dict[str, Any], places: dict[str, dict[Any, int]], step: str) -> list[Any]:
    """Return one job as the page reads it; its text comes last."""
    at = pl.Series("at_utc", [job["at_utc"]], pl.Datetime("us")).to_frame().select(_start_of(step)).item()
    return [
        places["user_name"][job["user_name"]], places["partition"].get(job["partition"], len(places["partition"])),
        places["at_utc"].get(at, -1),
        *(job[name] for name in ("id", "wait_s", "causes", "words", "command", "text")),
    ]  # fmt: skip


def _completed(sums: pl.DataFrame, unit: str) -> dict[str, str]:
    """Name the two sums whose ratio is the share that completed: by time held if any is known, else by jobs."""
    if sums["known_time_s"].sum():
        return {"part": "done_time_s", "whole": "known_time_s", "meaning": f"of the {unit} time"}
    return {"part": "done", "whole": "ran", "meaning": "of the jobs that ran"}


def _notes(grain: Grain, is_coarse: bool) -> list[str]:
    """Say how exact the figures are."""
    if grain.bits is None:
        return ["Counts, sums and percentiles are exact. A percentile interpolates linearly between the sorted waits."]
    notes = [
        f"Counts and sums are exact. Percentiles are off by at most {100 * grain.error:.1g} %: waits over "
        f"{fmt.duration(2**grain.bits)} are rounded so that the page stays small."
    ]
    return notes + (["Periods are longer than in the figures below for the same reason."] if is_coarse else [])
