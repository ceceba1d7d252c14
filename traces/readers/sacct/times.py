"""Convert sacct's times to UTC. They are local times without an offset, so an hour repeats at a clock change.

The elapsed seconds settle which of the two hours is meant; without them, the order of events and the time limit do. A
time that nothing settles is read as the earlier one and flagged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from traces.readers.common import localized
from traces.readers.sacct.columns import EPOCH, OTHER_TIME, TIMES
from traces.readers.sacct.fields import SacctField
from traces.slurm.text import NO_TIME

KILL_WAIT_S = 30  # Slurm's default KillWait: a job may run that much longer than its limit
SLACK_S = 30  # allowance for the delay until the node reports the end to the controller


def to_utc(rows: pl.DataFrame, fields: Mapping[str, SacctField], zone: str) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
    """Return (rows with submit_utc, eligible_utc, start_utc, end_utc, is_time_ambiguous and has_alloc_tres; valid).

    `fields` holds the times as printed; `rows` holds elapsed_s, suspended_s and limit_s. A word for no time becomes
    null; valid is false where a text is not a time.
    """
    names = [f"{column.lower()}_utc" for column in TIMES]
    valid = np.ones(len(rows), np.bool_)
    early: list[pl.Series] = []
    late: list[pl.Series] = []
    for column, name in zip(TIMES, names, strict=True):
        if column in fields:
            first, last, fits = _instants(fields[column], zone)
            valid &= fits
        else:
            first = last = pl.Series([None], dtype=pl.Datetime("us")).new_from_index(0, len(rows))
        early.append(first.alias(name))
        late.append(last.alias(f"{name}_late"))
    held = pl.Series(fields["AllocTRES"].given()) if "AllocTRES" in fields else pl.lit(None, dtype=pl.Boolean)
    rows = rows.with_columns(*early, held.alias("has_alloc_tres"), pl.lit(False).alias("is_time_ambiguous"))
    if all(first.equals(last, check_names=False) for first, last in zip(early, late, strict=True)):
        return rows, valid
    rows = rows.with_columns(late)
    doubled = pl.any_horizontal(pl.col(name) != pl.col(f"{name}_late") for name in names)
    unsettled = rows.with_row_index("at").filter(doubled.fill_null(False))
    if not unsettled.is_empty():
        rows = _settled(rows, unsettled, names)
    return rows.drop(f"{name}_late" for name in names), valid


def _instants(printed: SacctField, zone: str) -> tuple[pl.Series, pl.Series, NDArray[np.bool_]]:
    """Convert one column of times to (earliest, latest, valid)."""
    micros, rest = printed.read("times")
    early, late = _in_utc(micros.cast(pl.Datetime("us")), zone)
    valid = np.ones(len(printed), np.bool_)
    if len(rest):
        first, last, fits = _rare(printed.take(rest).texts(), zone)
        early, late = early.clone().scatter(rest, first), late.clone().scatter(rest, last)
        valid[rest] = fits.to_numpy()
    return early, late, valid


def _rare(printed: pl.Series, zone: str) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Convert texts of rare forms as `_instants` does."""
    rest = printed.to_frame("t").select(
        pl.when(pl.col("t").str.contains(EPOCH) & (pl.col("t") != "4294967295")).then(pl.col("t")).cast(pl.Int64)
    )
    instant = pl.from_epoch(rest.to_series(), time_unit="s").cast(pl.Datetime("us"))
    early, late = (pl.select(pl.coalesce(instant, other)).to_series() for other in _other_forms(printed, zone))
    return early, late, early.is_not_null() | printed.is_in(list(NO_TIME))


def _other_forms(printed: pl.Series, zone: str) -> tuple[pl.Series, pl.Series]:
    """Convert times of other SLURM_TIME_FORMAT settings to (earliest, latest); drop fractions of a second."""
    frame = printed.to_frame("t").select(
        day=pl.col("t").str.extract(OTHER_TIME, 1),
        clock=pl.col("t").str.extract(OTHER_TIME, 2),
        offset=pl.col("t").str.extract(OTHER_TIME, 3),
    )
    plain = pl.concat_str("day", pl.lit("T"), "clock").str.to_datetime(
        "%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False
    )
    minutes = pl.col("offset").str.slice(1, 2).cast(pl.Int64, strict=False) * 60 + pl.col("offset").str.slice(-2).cast(
        pl.Int64, strict=False
    )
    sign = pl.when(pl.col("offset").str.starts_with("-")).then(-1).otherwise(1)
    frame = frame.select(plain.alias("plain"), "offset", away=pl.duration(minutes=sign * minutes.fill_null(0)))
    exact = frame.select(pl.when(pl.col("offset").is_not_null()).then(pl.col("plain") - pl.col("away"))).to_series()
    early, late = _in_utc(frame.select(pl.when(pl.col("offset").is_null()).then("plain")).to_series(), zone)
    return tuple(pl.select(pl.coalesce(exact, side)).to_series() for side in (early, late))  # type: ignore[return-value]


def _in_utc(local: pl.Series, zone: str) -> tuple[pl.Series, pl.Series]:
    """Convert to (earliest, latest) naive UTC, with a single conversion if no time is in a clock change."""
    if zone == "UTC":
        return local, local
    aware = local.dt.replace_time_zone(zone, ambiguous="null", non_existent="null")
    if aware.null_count() == local.null_count():
        utc = aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return utc, utc
    early, late = localized(pl.col("t"), zone)
    frame = local.to_frame("t").select(early.alias("early"), late.alias("late"))
    return frame["early"], frame["late"]


def _settled(rows: pl.DataFrame, unsettled: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    settled = []
    for row in unsettled.iter_rows(named=True):
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
    """Settle a record with a time in a repeated hour: return ((submit, eligible, start, end), still ambiguous).

    The best reading has its times in order, and a run that agrees best with the elapsed seconds or is within the limit.
    Of several best readings, the earliest is returned.
    """
    names = ("submit_utc", "eligible_utc", "start_utc", "end_utc")
    choices = [sorted({row[n], row[f"{n}_late"]}) if row[n] is not None else [None] for n in names]
    readings = [(_misfit(row, reading), reading) for reading in product(*choices)]
    least = min(misfit for misfit, _ in readings)
    best = [reading for misfit, reading in readings if misfit == least]
    return best[0], len(best) > 1


def _misfit(row: dict[str, Any], reading: tuple[datetime | None, ...]) -> tuple[int, float]:
    """Return (number of times out of order, seconds off the elapsed time or 1 if over the limit); less is better."""
    submit, eligible, start, end = reading
    stated = [t for t in (submit, eligible, start, end) if t is not None]
    disorder = sum(a > b for a, b in pairwise(stated))
    if start is None or end is None:
        return disorder, 0.0
    run = (end - start).total_seconds()
    if row["elapsed_s"] is not None:
        return disorder, abs(run - row["elapsed_s"] - row["suspended_s"])
    if row["limit_s"] is not None:
        return disorder, float(run > row["limit_s"] + KILL_WAIT_S + SLACK_S)
    return disorder, 0.0
