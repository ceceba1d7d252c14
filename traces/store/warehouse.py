"""The warehouse: one DuckDB file with all tables, built from the lake and otherwise read-only.

It is built under a temporary name and renamed over the old file; processes that have the old file open keep reading it.
A DuckDB writer blocks all readers, so nothing writes in place. DuckDB and polars are imported where they are used,
because every command imports this module and `--help` needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from traces import schema
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.store import connections, derived, raw_files, settle, staging
from traces.store.connections import first_line, in_memory
from traces.store.folder import LAKE, DataFolder
from traces.store.frames import as_frame
from traces.store.quoting import SqlValue, parquet

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_OPEN: ContextVar[tuple[Path, duckdb.DuckDBPyConnection] | None] = ContextVar("open warehouse", default=None)


def read(data: DataFolder, sql: str, params: Sequence[SqlValue] = (), memory: str | None = None) -> pl.DataFrame:
    """Run one SELECT on the warehouse, read-only; `params` replace `?`, and `memory` limits DuckDB's memory.

    Raises InputError where there is no warehouse or it has another schema version.
    """
    with published(data, memory) as connection:
        return connections.ask(connection, sql, params).pl()


def batches(
    data: DataFolder, sql: str, params: Sequence[SqlValue] = (), rows: int = 100_000, memory: str | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the result of `read` some rows at a time, for tables that do not fit in memory; at least one frame."""
    with _connected(data, memory) as connection:  # its own, because another query on it would end the stream
        reader = connections.ask(connection, sql, params).to_arrow_reader(rows)
        yield as_frame(reader.schema.empty_table())
        for batch in reader:
            yield as_frame(batch)


@contextmanager
def published(data: DataFolder, memory: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the warehouse read-only. Raises InputError where there is none or it has another schema version.

    Within this context, and in its thread, `read` and `published` without `memory` use the same connection.
    """
    outer = _OPEN.get()
    if outer is not None and outer[0] == data.warehouse and memory is None:
        with connections.readable(data.warehouse):
            yield outer[1]
        return
    with _connected(data, memory) as connection:
        _OPEN.set((data.warehouse, connection))
        try:
            yield connection
        finally:
            _OPEN.set(outer)


@contextmanager
def _connected(data: DataFolder, memory: str | None) -> Iterator[duckdb.DuckDBPyConnection]:
    if not data.warehouse.is_file():
        raise InputError(f"no warehouse at {data.warehouse}: run `baton analyze FILE...` first")
    import duckdb

    with connections.spill_folder(data.root) as spill, connections.readable(data.warehouse):
        connection = duckdb.connect(str(data.warehouse), read_only=True)
        try:
            connections.set_up(connection, spill, memory)
            row = connection.execute("SELECT version FROM schema_version").fetchone()
            if row is None or row[0] != schema.SCHEMA_VERSION:
                version = None if row is None else row[0]
                raise InputError(
                    f"{data.warehouse} has schema version {version}, but this program reads {schema.SCHEMA_VERSION}: "
                    "run `baton ingest` again"
                )
            yield connection
        finally:
            connection.close()


def made_from(data: DataFolder, cluster: str | None = None) -> str:
    """Return the fingerprint of the canonical tables of a cluster (None: of all clusters).

    It covers the raw files, the rules of reading them, and this module's code that combines them. Results computed from
    these tables are out of date when it changes.
    """
    files = [(described["sha256"], described["fingerprint"]) for described in raw_files.lake_files(data, cluster)]
    return digest(sorted(files), code_digest(__name__))


def build(data: DataFolder) -> dict[str, int]:
    """Build `warehouse.duckdb` from the lake and rename it over the old one; return the rows of every table.

    `traces.store.settle` combines records of one job in several files. The lake stays locked until the new warehouse is
    in place. Raises WorkError if a part of the lake is damaged or has another schema version, and if memory or disk
    space run out; the old warehouse then stays unchanged.
    """
    import duckdb

    data.ensure_writable()
    with locked(data.root, LAKE), staging.at_work(data.root) as name:
        staging.sweep(data.root, data.lake)
        derived.sweep(data.lake)
        raw_files.check(data.lake)
        part = data.warehouse.with_name(".warehouse.part.duckdb")
        _remove(part)
        try:
            rows = _fill(data, part, staging.spill_folder(data.root, name))
            part.replace(data.warehouse)
        except (duckdb.Error, OSError, MemoryError) as error:
            outcome = f"{data.warehouse} could not be built and is unchanged"
            raise WorkError(f"{outcome}: {_unreadable(data, error) or first_line(error)}") from error
        finally:
            _remove(part)
    return rows


def _fill(data: DataFolder, part: Path, spill: Path) -> dict[str, int]:
    """Write every table of the lake into a new DuckDB file; return the rows of each."""
    import duckdb

    connection = duckdb.connect(str(part))
    try:
        connections.set_up(connection, spill)
        connection.execute("BEGIN")
        rows = settle.fill(
            connection, [described["folder"] for described in raw_files.lake_files(data)], derived.tables(data)
        )
        connection.execute("CREATE TABLE schema_version (version BIGINT)")
        connection.execute("INSERT INTO schema_version VALUES (?)", [schema.SCHEMA_VERSION])
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    finally:
        connection.close()
    return rows


def _unreadable(data: DataFolder, error: BaseException) -> str | None:
    """Name the first unreadable Parquet file of the lake, and what to do; None if that is not the cause."""
    import duckdb

    if isinstance(error, (duckdb.OutOfMemoryException, OSError, MemoryError)) or ".warehouse.part" in str(error):
        return None
    raw = [path for described in raw_files.lake_files(data) for path in sorted(described["folder"].glob("*.parquet"))]
    for path in [*raw, *(path for _, paths in derived.tables(data).values() for path in paths)]:
        try:
            with in_memory() as connection:
                rows = connection.execute(f"SELECT * FROM {parquet(path)}")  # noqa: S608
                for _ in rows.to_arrow_reader(100_000):
                    pass
        except duckdb.Error as damage:
            return f"{path} cannot be read ({first_line(damage)}): {raw_files.mend(path.parent)}"
    return None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)
