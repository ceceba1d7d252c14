"""Lines of a CSV split into columns of text, and the values that such texts stand for.

A value function takes a column of texts and gives null where a text has no value of its kind.
"""

from __future__ import annotations

import csv

import polars as pl

from traces import schema
from traces.readers.common import Parsed, Reject, map_unique, shown
from traces.readers.raw_text import EXACT
from traces.slurm.text import parse_state

BLANK = ("", "nan", "NaN", "None", "NaT", "NULL", "null")  # of a number or a time


def header_names(line: bytes) -> list[str]:
    """The names of a header line, as printed."""
    return [name.strip().strip('"') for name in line.decode("utf-8-sig", errors="replace").strip().split(",")]


def split(parsed: Parsed, lines: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """(line, raw, and a column of text a name) of the lines; one with more or fewer fields is refused.

    A line with a quote goes to the `csv` module; an unclosed quote costs its own line and no other.
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
    """The fields of lines with quotes; none for a line that leaves one open."""
    try:
        together = list(csv.reader(lines, strict=True))
    except csv.Error:
        together = []
    if len(together) == len(lines):  # else an open quote has taken the next line in
        return together
    alone = []
    for line in lines:
        try:
            alone.append(next(csv.reader([line], strict=True)))
        except csv.Error:
            alone.append([])
    return alone


def text(values: pl.Series) -> pl.Series:
    """The text as it is."""
    return values


def whole(values: pl.Series) -> pl.Series:
    """A whole number of at least 0, also as 8.0."""
    number = values.str.strip_chars().cast(pl.Float64, strict=False)
    return number.set(~((number == number.round()) & (number >= 0) & (number < EXACT)), None).cast(pl.Int64)


def seconds(values: pl.Series) -> pl.Series:
    """A duration of at least 0 s, rounded to whole seconds."""
    number = values.str.strip_chars().cast(pl.Float64, strict=False)
    return number.set(~((number >= 0) & (number < EXACT)), None).round().cast(pl.Int64)


def local_time(values: pl.Series) -> pl.Series:
    """YYYY-MM-DD HH:MM:SS without an offset."""
    return values.str.strip_chars().str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)


def offset_time(values: pl.Series) -> pl.Series:
    """YYYY-MM-DD HH:MM:SS+HH:MM, as naive UTC."""
    aware = values.str.strip_chars().str.to_datetime("%Y-%m-%d %H:%M:%S%:z", time_unit="us", strict=False)
    return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def since_zero(values: pl.Series) -> pl.Series:
    """Seconds since the trace's own zero, as if that were the start of 1970."""
    number = seconds(values)
    return pl.from_epoch(number.set(number > schema.MOST["s"], None), time_unit="s").cast(pl.Datetime("us"))


def slurm_state(values: pl.Series) -> pl.Series:
    """One of Slurm's base states, as `sacct` prints it."""
    return map_unique(values, _state, pl.String)[0]


def _state(printed: str) -> str:
    state = parse_state(printed)
    if state == "UNKNOWN" and printed.strip().upper() != state:
        raise ValueError(printed)
    return state
