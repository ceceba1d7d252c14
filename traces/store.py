"""Where tables lie: the data folder, the lake's derived tables, the warehouse. The only module that opens DuckDB.

The warehouse is built beside the old one and renamed over it; everyone else opens it read-only, and whoever has the
old file open keeps reading it. DuckDB lets one process write and blocks readers meanwhile, so nothing writes in place.
DuckDB and polars are imported where they are used: every command knows this module, and `--help` needs neither.
"""

from __future__ import annotations

import errno
import hashlib
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traces import connections, derived_entry, lake_entry, schema, settle, staging
from traces.connections import first_line
from traces.errors import InputError, WorkError
from traces.locks import locked
from traces.whole_file import whole_file

if TYPE_CHECKING:
    import duckdb
    import polars as pl


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit on files
LAKE = "lake"  # the lock of whoever changes the lake or builds the warehouse from it


@dataclass(frozen=True)
class DataFolder:
    """Everything that `--data DIR` moves."""

    root: Path

    @property
    def raw(self) -> Path:
        return self.root / "raw"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse.duckdb"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def dagster(self) -> Path:
        return self.root / "dagster"

    @property
    def clusters_toml(self) -> Path:
        return self.root / "clusters.toml"

    def ensure_writable(self) -> None:
        """Make the folder and write a byte in it. Raises InputError where that cannot be, WorkError on a full disk."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root) as probe:
                probe.write(b"\0")
        except OSError as error:
            if error.errno in FULL:
                raise WorkError(f"data folder {self.root} cannot be written: {error.strerror}") from error
            raise InputError(
                f"data folder {self.root} is not writable ({error.strerror}): give another with --data or BATON_DATA"
            ) from error


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
    """The frame with the table's columns in order, cast; a missing nullable column is null. Text may be categories.

    Raises WorkError for a column the table does not have, a missing required one, or a null in a required one.
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
    """A frame of no rows with the table's columns and types."""
    import polars as pl

    return pl.DataFrame(schema={column.name: _polars_types()[column.type] for column in table.columns})


def sql_text(value: str) -> str:
    """The value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_name(value: str) -> str:
    """The value as a quoted SQL identifier."""
    return '"' + value.replace('"', '""') + '"'


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a Parquet file whole or not at all. Categories become text, some rows at a time."""
    import polars as pl

    text = frame.lazy().cast({pl.Categorical: pl.String})
    with whole_file(path) as part:
        text.sink_parquet(part, compression="zstd", statistics=True)


def read_parquet(path: Path) -> pl.DataFrame:
    """All of a Parquet file of the lake. Raises WorkError where it cannot be read."""
    import polars as pl

    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise WorkError(f"{path} cannot be read ({first_line(error)}): {lake_entry.mend(path.parent)}") from error


# --- derived tables ---------------------------------------------------------------------------------------------------


def write_derived(data: DataFolder, table: schema.Table, cluster: str, frame: pl.DataFrame, fingerprint: str) -> None:
    """Write one cluster's part of a derived table; the next `build_warehouse` includes it.

    `fingerprint` names what the rows were computed from. It is written last: a run killed in between computes again.
    """
    path, frame = derived_entry.path_of(data.lake, table.name, cluster), conform(table, frame)
    with locked(data.root, LAKE):
        derived_entry.forget(path)
        write_parquet(path, frame)
        derived_entry.describe(path, table, fingerprint)


def derived_fingerprint(data: DataFolder, table_name: str, cluster: str) -> str | None:
    """What the stored part was computed from; None where there is none or it is of another schema version."""
    told = derived_entry.described(derived_entry.path_of(data.lake, table_name, cluster))
    return None if told is None else told[1]


def read_derived(data: DataFolder, table_name: str, cluster: str) -> pl.DataFrame:
    """One cluster's part of a derived table, straight from the lake.

    Raises InputError where there is none, WorkError where it cannot be read.
    """
    path = derived_entry.path_of(data.lake, table_name, cluster)
    if not path.is_file():
        raise InputError(f"no table {table_name} of cluster {cluster!r} in {data.lake}: run `baton run` first")
    return read_parquet(path)


def derived(
    data: DataFolder,
    tables: Sequence[schema.Table],
    cluster: str,
    fingerprint: str,
    compute: Callable[[], Sequence[pl.DataFrame]],
) -> tuple[list[pl.DataFrame], bool]:
    """One cluster's part of those tables, and whether it was there already, computed from what `fingerprint` names.

    Where any is not, or cannot be read, `compute` makes them all, in order, and they are written.
    """
    if all(derived_fingerprint(data, table.name, cluster) == fingerprint for table in tables):
        with suppress(InputError, WorkError):  # gone in between, or damaged
            return [read_derived(data, table.name, cluster) for table in tables], True
    for table, frame in zip(tables, compute(), strict=True):
        write_derived(data, table, cluster, frame, fingerprint)
    return [read_derived(data, table.name, cluster) for table in tables], False


def derived_tables(data: DataFolder) -> dict[str, tuple[schema.Table, list[Path]]]:
    """Every derived table of the lake with the Parquet files of its clusters (`derived_entry.all_of`)."""
    return derived_entry.all_of(data.lake)


# --- the raw files in the lake ----------------------------------------------------------------------------------------


def lake_files(data: DataFolder, cluster: str | None = None) -> list[dict[str, Any]]:
    """What `file.json` says of every raw file in the lake, its folder added as "folder", in order of the folders."""
    found = []
    for folder in lake_entry.folders(data.lake):
        if cluster in (None, folder.parent.name) and (described := lake_entry.read(folder)) is not None:
            found.append({**described, "folder": folder})
    return found


def lake_digest(data: DataFolder, cluster: str) -> str:
    """Digest of the raw files ingested for that cluster and of the rules that they were read by."""
    lines = [f"{f['sha256']} {f['fingerprint']}" for f in lake_files(data, cluster)]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of its own in memory, in UTC, that keeps the order of rows."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"preserve_insertion_order": True})
    try:
        connections.set_up(connection, Path(tempfile.gettempdir(), f"baton-{secrets.token_hex(8)}"))
        yield connection
    finally:
        connection.close()


def read(data: DataFolder, sql: str, params: Sequence[Any] = (), memory: str | None = None) -> pl.DataFrame:
    """Run one SELECT on the warehouse, read-only; `?` in it are the params, `memory` the most that DuckDB may take.

    Raises InputError where there is no warehouse or it is of another schema version.
    """
    with published(data, memory) as connection:
        return connection.execute(sql, list(params)).pl()


def batches(
    data: DataFolder, sql: str, params: Sequence[Any] = (), rows: int = 100_000, memory: str | None = None
) -> Iterator[pl.DataFrame]:
    """`read` some rows at a time, in the same order, for tables that memory does not hold; at least one frame."""
    with published(data, memory) as connection:
        reader = connection.execute(sql, list(params)).to_arrow_reader(rows)
        yield as_frame(reader.schema.empty_table())
        for batch in reader:
            yield as_frame(batch)


def as_frame(arrow: Any) -> pl.DataFrame:
    """The rows of an Arrow table or batch."""
    import polars as pl

    frame = pl.from_arrow(arrow)
    assert isinstance(frame, pl.DataFrame)
    return frame


@contextmanager
def published(data: DataFolder, memory: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """The warehouse, read-only and of this schema version; InputError where there is none."""
    if not data.warehouse.is_file():
        raise InputError(f"no warehouse at {data.warehouse}: run `baton analyze FILE...` first")
    import duckdb

    with connections.spill_folder(data.root) as spill, connections.readable(data.warehouse):
        connection = duckdb.connect(str(data.warehouse), read_only=True)
        try:
            connections.set_up(connection, spill, memory)
            found = connection.execute("SELECT version FROM schema_version").fetchone()
            if found is None or found[0] != schema.SCHEMA_VERSION:
                version = None if found is None else found[0]
                raise InputError(
                    f"{data.warehouse} has schema version {version}, this program reads {schema.SCHEMA_VERSION}: "
                    "run `baton ingest` again"
                )
            yield connection
        finally:
            connection.close()


def query(sql: str, frames: Mapping[str, pl.DataFrame | Path | str], params: Sequence[Any] = ()) -> pl.DataFrame:
    """Run one SELECT over frames and Parquet globs by their names, in a DuckDB in memory."""
    import polars as pl

    with in_memory() as connection:
        for name, frame in frames.items():
            if isinstance(frame, pl.DataFrame):
                connection.register(name, frame.to_arrow())
            else:
                source = f"read_parquet({sql_text(str(frame))}, union_by_name = true)"
                connection.execute(f"CREATE VIEW {sql_name(name)} AS SELECT * FROM {source}")  # noqa: S608
        return connection.execute(sql, list(params)).pl()


# --- the warehouse ----------------------------------------------------------------------------------------------------


def build_warehouse(data: DataFolder) -> dict[str, int]:
    """Build `warehouse.duckdb` from the lake and rename it over the old one; returns the rows of every table.

    The same job in several files is settled here (`traces.settle`). One process at a time: the lake is locked until the
    warehouse made from it has taken its place. Raises WorkError where a part of the lake is damaged or of another
    schema version, and where memory or disk do not do; the warehouse then stays as it was.
    """
    import duckdb

    data.ensure_writable()
    with locked(data.root, LAKE), staging.at_work(data.root) as name:
        staging.sweep(data.root, data.lake)
        derived_entry.sweep(data.lake)
        lake_entry.check(data.lake)
        part = data.warehouse.with_name(".warehouse.part.duckdb")
        _remove(part)
        try:
            rows = _fill(data, part, staging.spill_folder(data.root, name))
            part.replace(data.warehouse)
        except (duckdb.Error, OSError, MemoryError) as error:
            told = f"{data.warehouse} could not be built and stays as it was"
            raise WorkError(f"{told}: {_unreadable(data, error) or first_line(error)}") from error
        finally:
            _remove(part)
    return rows


def _fill(data: DataFolder, part: Path, spill: Path) -> dict[str, int]:
    """Every table of the lake into a new DuckDB file; returns the rows of each."""
    import duckdb

    connection = duckdb.connect(str(part))
    try:
        connections.set_up(connection, spill)
        connection.execute("BEGIN")
        rows = settle.fill(connection, [described["folder"] for described in lake_files(data)], derived_tables(data))
        connection.execute("CREATE TABLE schema_version (version BIGINT)")
        connection.execute("INSERT INTO schema_version VALUES (?)", [schema.SCHEMA_VERSION])
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    finally:
        connection.close()
    return rows


def _unreadable(data: DataFolder, error: BaseException) -> str | None:
    """The first Parquet file of the lake that cannot be read, and what to do; None where that is not the cause."""
    import duckdb

    if isinstance(error, (duckdb.OutOfMemoryException, OSError, MemoryError)) or ".warehouse.part" in str(error):
        return None
    raw = [path for described in lake_files(data) for path in sorted(described["folder"].glob("*.parquet"))]
    for path in [*raw, *(path for _, paths in derived_tables(data).values() for path in paths)]:
        try:
            with in_memory() as connection:
                rows = connection.execute(f"SELECT * FROM {settle.parquet(path)}")  # noqa: S608
                for _ in rows.to_arrow_reader(100_000):
                    pass
        except duckdb.Error as damage:
            return f"{path} cannot be read ({first_line(damage)}): {lake_entry.mend(path.parent)}"
    return None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)
