"""Settings of every DuckDB connection (UTC, memory, spill folder), and conversion of its errors to one line.

This module opens in-memory databases; `traces.store.warehouse` opens the warehouse's file.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import InputError, WorkError
from traces.store import memory, staging
from traces.store.quoting import SqlValue, sql_text, sql_value

if TYPE_CHECKING:
    import duckdb


def set_up(connection: duckdb.DuckDBPyConnection, spill: Path, limit: str | None = None) -> None:
    """Set UTC, no progress bar, a memory limit (default from `traces.store.memory`), and a spill folder.

    Connections of one process to one file share limit and folder. The first connection sets them; a given limit
    overrides its limit.
    """
    connection.execute("SET TimeZone='UTC'")
    connection.execute("SET enable_progress_bar=false")  # under `python -c` DuckDB prints one on standard output
    is_first = connection.execute("SELECT current_setting('temp_directory')").fetchone() != (str(spill),)
    if is_first:
        connection.execute(f"SET temp_directory = {sql_text(str(spill))}")
    if is_first or limit is not None:
        connection.execute(f"SET memory_limit = {sql_text(limit or f'{memory.duckdb_limit()}B')}")


def ask(connection: duckdb.DuckDBPyConnection, sql: str, params: Sequence[SqlValue]) -> duckdb.DuckDBPyConnection:
    """Run one SELECT whose `?` stand for `params`; return the connection with its result.

    The values reach a prepared statement as SQL literals, because for parameters of its own DuckDB imports pandas,
    which takes a second.
    """
    if not params:
        return connection.execute(sql)
    connection.execute(f"PREPARE asked AS {sql}")
    return connection.execute(f"EXECUTE asked({', '.join(map(sql_value, params))})")


@contextmanager
def in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a private in-memory DuckDB, in UTC, that keeps the order of rows."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"preserve_insertion_order": True})
    try:
        set_up(connection, Path(tempfile.gettempdir(), f"baton-{secrets.token_hex(8)}"))
        yield connection
    finally:
        connection.close()


@contextmanager
def spill_folder(root: Path) -> Iterator[Path]:
    """Yield a spill folder of this process, in the data folder if it is writable. DuckDB makes it when needed."""
    with ExitStack() as stack:
        try:
            place = staging.spill_folder(root, stack.enter_context(staging.at_work(root)))
        except OSError:
            place = _elsewhere(os.getpid())
        yield place


@cache
def _elsewhere(process: int) -> Path:
    return Path(tempfile.gettempdir(), f"baton-{process}-{secrets.token_hex(8)}")


@contextmanager
def readable(warehouse: Path) -> Iterator[None]:
    """Convert DuckDB's errors to InputError (damaged file or not a database) and WorkError (not enough memory)."""
    import duckdb

    damaged = (duckdb.IOException, duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise WorkError(f"reading {warehouse} needs more memory than is free: {first_line(error)}") from error
    except damaged as error:
        problem = f"{warehouse} cannot be opened or is damaged: {first_line(error)}"
        raise InputError(f"{problem}; run `baton ingest` to rebuild it from the lake") from error


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message, or the error's name if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
