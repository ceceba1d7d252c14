"""A JSON file that is one long list of objects, read by DuckDB some rows at a time."""

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
    """The objects of a JSON list in a file, in order, `rows` at a time; `columns` are DuckDB's types by name.

    Raises InputError, also after some batches, where the file is no such list or has a name that DuckDB cannot open.
    """
    import duckdb

    if set(str(path)) & set("*?[") or storable(path) != str(path):
        raise InputError(f"{path}: a path that DuckDB takes for a pattern, or that is not UTF-8")
    types = ", ".join(f"{sql_text(name)}: {sql_text(kind)}" for name, kind in columns.items())
    options = f"format = 'array', columns = {{{types}}}, compression = '{compression}'"
    source = f"read_json({sql_text(str(path))}, {options})"
    with in_memory() as connection:
        try:
            connection.execute("SET threads = 1")  # one thread alone reads a list: others would only wait, and count
            connection.execute("SET produce_arrow_string_view = true")  # as polars holds texts: nothing is copied
            for batch in connection.sql(f"SELECT * FROM {source}").to_arrow_reader(rows):  # noqa: S608
                yield as_frame(batch)
        except (duckdb.Error, OSError, RuntimeError, UnicodeDecodeError) as error:
            # the last: DuckDB's message quotes the file, and may be cut within a letter
            raise InputError(f"{path}: {str(error).splitlines()[0]}") from error
