"""Split lines of a CSV into columns of text, and convert such texts to values.

A conversion function takes a column of texts; its result is null where a text has the wrong form.
"""

from __future__ import annotations

import csv

import polars as pl

from traces import schema
from traces.readers.common import Parsed, Reject, map_unique, shown
from traces.readers.raw_text import EXACT
from traces.slurm.text import parse_state

BLANK = ("", "nan", "NaN", "None", "NaT", "NULL", "null")  # texts for a missing number or time


def header_names(line: bytes) -> list[str]:
    """Return the column names of a header line, as printed."""
    return [name.strip().strip('"') for name in line.decode("utf-8-sig", errors="replace").strip().split(",")]


def split_lines(parsed: Parsed, lines: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Split lines into the columns (line, raw, *names); reject a line with more or fewer fields.

    The `csv` module parses lines with a quote; an unclosed quote affects only its own line.
    """
    width = len(names)
    quoted = lines["raw"].str.contains('"', literal=True)
    plain = lines.filter(~quoted)
    fits = plain["raw"].str.count_matches(",", literal=True) == width - 1
    parts = pl.col("raw").str.split_exact(",", width - 1).struct.rename_fields(names).alias("parts")
    frames = [plain.filter(fits).select("line", "raw", parts).unnest("parts")]
    wrong = [*plain.filter(~fits).iter_rows()]
    slow = lines.filter(quoted)
    values = _values(slow["raw"].to_list())
    rows = zip(slow["line"], slow["raw"], values, strict=True)
    wrong.extend((number, raw) for number, raw, fields in rows if len(fields) != width)
    slow = slow.filter(pl.Series([len(fields) == width for fields in values], dtype=pl.Boolean))
    columns = list(zip(*(fields for fields in values if len(fields) == width), strict=True)) or [()] * width
    frames.append(slow.hstack([pl.Series(n, c, dtype=pl.String) for n, c in zip(names, columns, strict=True)]))
    for number, raw in wrong:
        parsed.rejects.append(Reject(number, f"not {width} fields as in the header: {shown(raw)}", raw))
    return pl.concat(frames).sort("line")


def _values(lines: list[str]) -> list[list[str]]:
    """Return the fields of lines with quotes; no fields for a line with an unclosed quote."""
    try:
        together = list(csv.reader(lines, strict=True))
    except csv.Error:
        together = []
    if len(together) == len(lines):  # otherwise an unclosed quote included the next line
        return together
    alone = []
    for line in lines:
        try:
            alone.append(next(csv.reader([line], strict=True)))
        except csv.Error:
            alone.append([])
    return alone


def parse_text(values: pl.Series) -> pl.Series:
    """Return the texts unchanged."""
    return values


def whole(values: pl.Series) -> pl.Series:
    """Convert to whole numbers of at least 0; 8.0 is accepted."""
    number = values.str.strip_chars().cast(pl.Float64, strict=False)
    return number.set(~((number == number.round()) & (number >= 0) & (number < EXACT)), None).cast(pl.Int64)


def parse_seconds(values: pl.Series) -> pl.Series:
    """Convert to durations of at least 0 s, rounded to whole seconds."""
    number = values.str.strip_chars().cast(pl.Float64, strict=False)
    return number.set(~((number >= 0) & (number < EXACT)), None).round().cast(pl.Int64)


def local_time(values: pl.Series) -> pl.Series:
    """Parse YYYY-MM-DD HH:MM:SS without an offset."""
    return values.str.strip_chars().str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)


def offset_time(values: pl.Series) -> pl.Series:
    """Parse YYYY-MM-DD HH:MM:SS+HH:MM into naive UTC."""
    aware = values.str.strip_chars().str.to_datetime("%Y-%m-%d %H:%M:%S%:z", time_unit="us", strict=False)
    return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def since_zero(values: pl.Series) -> pl.Series:
    """Convert seconds since the trace's own start to times, as if it started at the beginning of 1970."""
    number = parse_seconds(values)
    return pl.from_epoch(number.set(number > schema.MOST["s"], None), time_unit="s").cast(pl.Datetime("us"))


def slurm_state(values: pl.Series) -> pl.Series:
    """Convert states as `sacct` prints them to Slurm's base states."""
    return map_unique(values, _state, pl.String)[0]


def _state(printed: str) -> str:
    state = parse_state(printed)
    if state == "UNKNOWN" and printed.strip().upper() != state:
        raise ValueError(printed)
    return state
