"""Settings of every DuckDB connection (UTC, memory, spill folder), and its errors in one line.

A DuckDB in memory is opened here, the warehouse's file in `traces.store.warehouse`.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import InputError, WorkError
from traces.store import memory, staging
from traces.store.quoting import sql_text

if TYPE_CHECKING:
    import duckdb


def set_up(connection: duckdb.DuckDBPyConnection, spill: Path, limit: str | None = None) -> None:
    """UTC, no progress bar, a limit on memory (`traces.store.memory`, if none is given), and a folder for the rest.

    Connections of one process to one file share limit and folder: those of the first stand unless a limit is given.
    They are set as literals: for a parameter DuckDB imports pandas, half a second.
    """
    connection.execute("SET TimeZone='UTC'")
    connection.execute("SET enable_progress_bar=false")  # under `python -c` DuckDB draws one on standard output
    is_first = connection.execute("SELECT current_setting('temp_directory')").fetchone() != (str(spill),)
    if is_first:
        connection.execute(f"SET temp_directory = {sql_text(str(spill))}")
    if is_first or limit is not None:
        connection.execute(f"SET memory_limit = {sql_text(limit or f'{memory.duckdb_limit()}B')}")


@contextmanager
def in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of its own in memory, in UTC, that keeps the order of rows."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"preserve_insertion_order": True})
    try:
        set_up(connection, Path(tempfile.gettempdir(), f"baton-{secrets.token_hex(8)}"))
        yield connection
    finally:
        connection.close()


@contextmanager
def spill_folder(root: Path) -> Iterator[Path]:
    """A spill folder of this process, in the data folder if that can be written. DuckDB makes it when it needs it."""
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
    """Turn DuckDB's errors into InputError (file damaged or no database) and WorkError (not enough memory)."""
    import duckdb

    damaged = (duckdb.IOException, duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise WorkError(f"reading {warehouse} takes more memory than is free: {first_line(error)}") from error
    except damaged as error:
        problem = f"{warehouse} cannot be opened, or is damaged: {first_line(error)}"
        raise InputError(f"{problem}; `baton ingest` makes it anew from the lake") from error


def first_line(error: BaseException) -> str:
    """What the error says, or else its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]
