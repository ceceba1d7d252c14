"""Read a JSON file that is one long list of objects, with DuckDB, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import InputError
from traces.store.connections import in_memory
from traces.store.frames import as_frame
from traces.store.quoting import sql_text
from traces.visible import storable

if TYPE_CHECKING:
    import polars as pl


def json_batches(
    path: Path, columns: Mapping[str, str], rows: int, compression: str = "uncompressed"
) -> Iterator[pl.DataFrame]:
    """Yield the objects of a JSON list in a file, in order, `rows` at a time; `columns` are DuckDB's types by name.

    Raises InputError, possibly after some batches, if the file is not such a list or DuckDB cannot open its name.
    """
    import duckdb

    if set(str(path)) & set("*?[") or storable(path) != str(path):
        raise InputError(f"{path}: DuckDB would read this path as a pattern, or it is not UTF-8: rename the file")
    types = ", ".join(f"{sql_text(name)}: {sql_text(kind)}" for name, kind in columns.items())
    options = f"format = 'array', columns = {{{types}}}, compression = '{compression}'"
    source = f"read_json({sql_text(str(path))}, {options})"
    with in_memory() as connection:
        try:
            connection.execute("SET threads = 1")  # DuckDB reads a list in one thread; others would only wait
            connection.execute("SET produce_arrow_string_view = true")  # the layout of polars, so texts are not copied
            for batch in connection.sql(f"SELECT * FROM {source}").to_arrow_reader(rows):  # noqa: S608
                yield as_frame(batch)
        except (duckdb.Error, OSError, RuntimeError, UnicodeDecodeError) as error:
            # UnicodeDecodeError: DuckDB's message quotes the file, and may be cut within a character
            raise InputError(f"{path}: {str(error).splitlines()[0]}") from error
