"""sacct's times to UTC. They are local, without an offset, so that the hour of a clock change comes twice.

Which of the two it is, is settled from the elapsed seconds where the dump has them, else from the order of events and
the time limit; what nothing settles is read as the earlier and flagged.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise, product
from typing import Any

import polars as pl

from traces.readers.common import localized
from traces.readers.sacct_columns import TIMES

KILL_WAIT_S = 30  # Slurm's default KillWait: a job at its limit may live that much longer
SLACK_S = 30  # and some seconds pass until the node has told the controller


def to_utc(rows: pl.DataFrame, text: pl.DataFrame, zone: str) -> pl.DataFrame:
    """`rows` with submit_utc, eligible_utc, start_utc, end_utc, is_time_ambiguous and has_alloc_tres.

    `text` holds the times as printed; `rows` holds elapsed_s, suspended_s and limit_s. A time that is none is null.
    """
    earliest, latest, names = [], [], []
    for column in TIMES:
        name = f"{column.lower()}_utc"
        names.append(name)
        if column not in text.columns:
            earliest.append(pl.lit(None, dtype=pl.Datetime("us")).alias(name))
            latest.append(pl.lit(None, dtype=pl.Datetime("us")).alias(f"{name}_late"))
            continue
        printed = pl.col(column)
        local = printed.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
        epoch = pl.when(printed.str.contains(r"^\d{9,11}$") & (printed != "4294967295")).then(printed).otherwise(None)
        instant = pl.from_epoch(epoch.cast(pl.Int64), time_unit="s").cast(pl.Datetime("us"))
        early, late = localized(local, zone)
        earliest.append(pl.coalesce(instant, early).alias(name))
        latest.append(pl.coalesce(instant, late).alias(f"{name}_late"))
    held = pl.col("AllocTRES") != "" if "AllocTRES" in text.columns else pl.lit(None, dtype=pl.Boolean)
    times = text.select(*earliest, *latest, held.alias("has_alloc_tres"))
    rows = pl.concat([rows, times], how="horizontal").with_columns(pl.lit(False).alias("is_time_ambiguous"))
    doubled = pl.any_horizontal(pl.col(name) != pl.col(f"{name}_late") for name in names)
    asked = rows.with_row_index("at").filter(doubled.fill_null(False))
    late_names = [f"{name}_late" for name in names]
    if not asked.is_empty():
        rows = _settled(rows, asked, names)
    return rows.drop(late_names)


def _settled(rows: pl.DataFrame, asked: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    settled = []
    for row in asked.iter_rows(named=True):
        times, ambiguous = settle_hour(row)
        settled.append({"at": row["at"], **dict(zip(names, times, strict=True)), "is_time_ambiguous": ambiguous})
    kinds: dict[str, Any] = {
        "at": pl.UInt32,
        **dict.fromkeys(names, pl.Datetime("us")),
        "is_time_ambiguous": pl.Boolean,
    }
    new = pl.DataFrame(settled, schema=kinds)
    return rows.with_row_index("at").update(new, on="at").drop("at")


def settle_hour(row: dict[str, Any]) -> tuple[tuple[datetime | None, ...], bool]:
    """((submit, eligible, start, end), still ambiguous) of a record with a time in a doubled hour.

    Of all readings, those in the order submit <= start <= end whose run agrees best with the elapsed seconds, or lies
    within the limit; of several the earliest.
    """
    names = ("submit_utc", "eligible_utc", "start_utc", "end_utc")
    choices = [sorted({row[n], row[f"{n}_late"]}) if row[n] is not None else [None] for n in names]
    readings = [(_misfit(row, reading), reading) for reading in product(*choices)]
    least = min(misfit for misfit, _ in readings)
    best = [reading for misfit, reading in readings if misfit == least]
    return best[0], len(best) > 1


def _misfit(row: dict[str, Any], reading: tuple[datetime | None, ...]) -> tuple[int, float]:
    """(times out of order, seconds off the elapsed time or over the limit): the less, the better."""
    submit, eligible, start, end = reading
    given = [t for t in (submit, eligible, start, end) if t is not None]
    disorder = sum(a > b for a, b in pairwise(given))
    if start is None or end is None:
        return disorder, 0.0
    run = (end - start).total_seconds()
    if row["elapsed_s"] is not None:
        return disorder, abs(run - row["elapsed_s"] - row["suspended_s"])
    if row["limit_s"] is not None:
        return disorder, float(run > row["limit_s"] + KILL_WAIT_S + SLACK_S)
    return disorder, 0.0
