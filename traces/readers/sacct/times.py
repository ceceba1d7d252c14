"""sacct's times to UTC. They are local, without an offset, so that the hour of a clock change comes twice.

Which of the two it is, is settled from the elapsed seconds where the dump has them, else from the order of events and
the time limit; what nothing settles is read as the earlier and flagged.
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
from traces.readers.sacct.fields import Field
from traces.slurm.text import NO_TIME

KILL_WAIT_S = 30  # Slurm's default KillWait: a job at its limit may live that much longer
SLACK_S = 30  # and some seconds pass until the node has told the controller


def to_utc(rows: pl.DataFrame, fields: Mapping[str, Field], zone: str) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
    """(rows with submit_utc, eligible_utc, start_utc, end_utc, is_time_ambiguous and has_alloc_tres; valid).

    `fields` holds the times as printed; `rows` holds elapsed_s, suspended_s and limit_s. A time that is none is null;
    valid is false where a text is no time.
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
    asked = rows.with_row_index("at").filter(doubled.fill_null(False))
    if not asked.is_empty():
        rows = _settled(rows, asked, names)
    return rows.drop(f"{name}_late" for name in names), valid


def _instants(printed: Field, zone: str) -> tuple[pl.Series, pl.Series, NDArray[np.bool_]]:
    """(earliest, latest, valid) of one column of times."""
    micros, rest = printed.read("times")
    early, late = _in_utc(micros.cast(pl.Datetime("us")), zone)
    valid = np.ones(len(printed), np.bool_)
    if len(rest):
        first, last, fits = _rare(printed.take(rest).texts(), zone)
        early, late = early.clone().scatter(rest, first), late.clone().scatter(rest, last)
        valid[rest] = fits.to_numpy()
    return early, late, valid


def _rare(printed: pl.Series, zone: str) -> tuple[pl.Series, pl.Series, pl.Series]:
    """As `_instants`, of texts of another form."""
    rest = printed.to_frame("t").select(
        pl.when(pl.col("t").str.contains(EPOCH) & (pl.col("t") != "4294967295")).then(pl.col("t")).cast(pl.Int64)
    )
    instant = pl.from_epoch(rest.to_series(), time_unit="s").cast(pl.Datetime("us"))
    early, late = (pl.select(pl.coalesce(instant, other)).to_series() for other in _other_forms(printed, zone))
    return early, late, early.is_not_null() | printed.is_in(list(NO_TIME))


def _other_forms(printed: pl.Series, zone: str) -> tuple[pl.Series, pl.Series]:
    """(earliest, latest) of times that other settings of SLURM_TIME_FORMAT print; parts of a second are cut off."""
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
    """(earliest, latest) naive UTC; one conversion where no time falls into a clock change."""
    if zone == "UTC":
        return local, local
    aware = local.dt.replace_time_zone(zone, ambiguous="null", non_existent="null")
    if aware.null_count() == local.null_count():
        utc = aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return utc, utc
    early, late = localized(pl.col("t"), zone)
    frame = local.to_frame("t").select(early.alias("early"), late.alias("late"))
    return frame["early"], frame["late"]


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
