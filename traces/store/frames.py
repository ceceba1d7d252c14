"""Frames as tables of the schema: cast to it, written to and read from Parquet, and queried with SQL in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traces import schema
from traces.errors import WorkError
from traces.files.whole import whole_file
from traces.store import raw_files
from traces.store.connections import ask, first_line, in_memory
from traces.store.quoting import SqlValue, sql_name, sql_text

if TYPE_CHECKING:
    import polars as pl


@cache
def _polars_types() -> dict[str, Any]:
    import polars as pl

    return {
        schema.UTC: pl.Datetime("us"),
        schema.TEXT: pl.String,
        schema.INT: pl.Int64,
        schema.FLOAT: pl.Float64,
        schema.FLAG: pl.Boolean,
    }


def conform(table: schema.Table, frame: pl.DataFrame) -> pl.DataFrame:
    """Cast a frame to the table's columns, in order; a missing nullable column becomes null. Texts may be categories.

    Raises WorkError for an unknown column, a missing required column, or a null in a required column.
    """
    import polars as pl

    extra = set(frame.columns) - set(table.names)
    if extra:
        raise WorkError(f"table {table.name}: unknown columns {sorted(extra)}: allowed are {', '.join(table.names)}")
    columns = []
    for column in table.columns:
        kind = _polars_types()[column.type]
        if frame.schema.get(column.name) == pl.Categorical and column.type == schema.TEXT:
            columns.append(pl.col(column.name))
        elif column.name in frame.columns:
            columns.append(pl.col(column.name).cast(kind))
        elif column.nullable:
            columns.append(pl.lit(None, dtype=kind).alias(column.name))
        else:
            raise WorkError(f"table {table.name}: column {column.name} is missing")
    result = frame.select(columns)
    for column in table.columns:
        if not column.nullable and result[column.name].null_count():
            raise WorkError(f"table {table.name}: column {column.name} holds {result[column.name].null_count()} nulls")
    return result


def empty(table: schema.Table) -> pl.DataFrame:
    """Return a frame without rows, with the table's columns and types."""
    import polars as pl

    return pl.DataFrame(schema={column.name: _polars_types()[column.type] for column in table.columns})


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a Parquet file completely or not at all. Categories become text, some rows at a time."""
    import polars as pl

    text = frame.lazy().cast({pl.Categorical: pl.String})
    with whole_file(path) as part:
        text.sink_parquet(part, compression="zstd", statistics=True)


def read_parquet(path: Path) -> pl.DataFrame:
    """Read a whole Parquet file of the lake. Raises WorkError where it cannot be read."""
    import polars as pl

    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise WorkError(f"{path} cannot be read ({first_line(error)}): {raw_files.mend(path.parent)}") from error


def as_frame(arrow: Any) -> pl.DataFrame:
    """Return the rows of an Arrow table or batch as a frame."""
    import polars as pl

    frame = pl.from_arrow(arrow)
    assert isinstance(frame, pl.DataFrame)
    return frame


def query(sql: str, frames: Mapping[str, pl.DataFrame | Path | str], params: Sequence[SqlValue] = ()) -> pl.DataFrame:
    """Run one SELECT over named frames and Parquet globs, in an in-memory DuckDB."""
    import polars as pl

    with in_memory() as connection:
        for name, frame in frames.items():
            if isinstance(frame, pl.DataFrame):
                connection.register(name, frame.to_arrow())
            else:
                source = f"read_parquet({sql_text(str(frame))}, union_by_name = true)"
                connection.execute(f"CREATE VIEW {sql_name(name)} AS SELECT * FROM {source}")  # noqa: S608
        return ask(connection, sql, params).pl()
