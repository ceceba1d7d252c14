"""Export of warehouse tables as CSV or Parquet files, for a spreadsheet or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from traces.errors import InputError
from traces.files.whole import whole_file
from traces.given_paths import check_writable
from traces.store import warehouse
from traces.store.contents import check_clusters, check_tables
from traces.store.folder import DataFolder
from traces.store.quoting import sql_name

FORMATS = ("csv", "parquet")
# Beginnings of a cell that a spreadsheet runs as a formula, full-width signs included (OWASP, CSV injection). Some
# spreadsheets first trim all kinds of spaces (Z), and control and invisible characters (C).
_FORMULA = "^[\t\r\n]|^[\\p{Z}\\p{C}]*[=+\\-@\uff1d\uff0b\uff0d\uff20]"

Change = Callable[[str, pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class ExportedTable:
    """One table written to a file."""

    table: str
    path: Path
    rows: int


def write_csv(path: Path, frames: Iterable[pl.DataFrame]) -> int:
    """Write frames with the same columns as one CSV file, completely or not at all; return the number of rows.

    An apostrophe is put before text that a spreadsheet would run as a formula.
    """
    text = pl.col(pl.String)
    rows = 0
    with whole_file(path) as part, part.open("wb") as stream:
        for number, frame in enumerate(frames):
            safe = frame.with_columns(pl.when(text.str.contains(_FORMULA)).then("'" + text).otherwise(text).name.keep())
            safe.write_csv(stream, include_header=number == 0, datetime_format="%Y-%m-%dT%H:%M:%S")
            rows += frame.height
    return rows


def write_tables(
    data: DataFolder,
    names: Sequence[str],
    out: Path,
    format: str,
    *,
    cluster: str | None = None,
    change: Change,
) -> list[ExportedTable]:
    """Write each table to `out`/<table>.<format>, completely or not at all; rows of one cluster, or of all if None.

    `change`, (table name, rows) -> rows, is applied before writing. Raises InputError for an unknown format, table or
    cluster, and for a folder that cannot be written.
    """
    if format not in FORMATS:
        raise InputError(f"--format {format!r} is not understood: allowed are {', '.join(FORMATS)}")
    check_tables(data, names)
    if cluster is not None:
        check_clusters(data, [cluster])
    check_writable(out, "--out")
    return [_write(data, name, out / f"{name}.{format}", cluster, change) for name in names]


def _write(data: DataFolder, name: str, path: Path, cluster: str | None, change: Change) -> ExportedTable:
    where, params = ("", []) if cluster is None else (" WHERE cluster = ?", [cluster])
    sql = f"SELECT * FROM {sql_name(name)}{where}"  # noqa: S608 - a table that exists
    frames = (change(name, frame) for frame in warehouse.batches(data, sql, params))
    rows = write_csv(path, frames) if path.suffix == ".csv" else _write_parquet(path, frames)
    return ExportedTable(name, path, rows)


def _write_parquet(path: Path, frames: Iterable[pl.DataFrame]) -> int:
    writer, rows = None, 0
    with whole_file(path) as part, part.open("wb") as stream:  # pyarrow cannot open a path that is not UTF-8
        for frame in frames:
            arrow = frame.to_arrow()
            writer = writer or pq.ParquetWriter(stream, arrow.schema, compression="zstd")
            if frame.height:
                writer.write_table(arrow)
            rows += frame.height
        assert writer is not None
        writer.close()
    return rows
