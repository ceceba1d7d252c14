"""Publish the local warehouse in the shared lake, and fetch the one that is published.

The DuckDB file is sent under its digest. The Delta table `warehouses` has one row, which names it; the row is replaced
only if nobody replaced it meanwhile, and never by a warehouse of an older version of the lake.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traces import schema
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.lake import tables
from traces.lake.listing import listing, now_utc, replaced
from traces.lake.pull import is_stale
from traces.lake.push import key_of
from traces.lake.shared import SharedLake
from traces.lake.tables import TRIES
from traces.schema import INT, TEXT, Column
from traces.store import raw_files, staging
from traces.store.folder import LAKE, DataFolder
from traces.store.refresh import ALL, refresh_warehouse
from traces.store.stamps import forget_stamp

if TYPE_CHECKING:
    from deltalake import DeltaTable

WAREHOUSES = schema.Table(
    "warehouses",
    "One row: the published warehouse",
    (
        Column("path", TEXT, "", "DuckDB file, relative to the lake"),
        Column("sha256", TEXT, "", "digest of the file"),
        Column("bytes", INT, "bytes", "size of the file"),
        Column("version", INT, "", "version of the table `files` that it was built from"),
        Column("published_utc", schema.UTC, "", "when it was published"),
    ),
)
FOLDER = "warehouse"  # of the DuckDB files in the lake


class PublishedWarehouse(NamedTuple):
    """The row of WAREHOUSES, and the table's version that has it."""

    path: str
    sha256: str
    bytes: int
    version: int
    table: DeltaTable


def published_warehouse(lake: SharedLake) -> PublishedWarehouse | None:
    """Return the published warehouse; None where there is none."""
    with lake.answers():
        table = tables.opened(lake, WAREHOUSES.name)
        rows = [] if table is None else table.to_pyarrow_table().to_pylist()
    if table is None or not rows:
        return None
    return PublishedWarehouse(rows[0]["path"], rows[0]["sha256"], rows[0]["bytes"], rows[0]["version"], table)


def publish_warehouse(lake: SharedLake, data: DataFolder) -> PublishedWarehouse:
    """Build the local warehouse if needed, and publish it.

    Raises InputError if the local lake is not the shared one, because the published warehouse is for everyone.
    """
    with locked(data.root, LAKE):
        shared = listing(lake)
        stale = [file for file in shared.files.values() if is_stale(data, file)]
        unknown = [one for one in raw_files.lake_files(data) if key_of(one) not in shared.files]
        if stale or unknown or not shared.files:
            raise InputError(
                f"{data.lake} differs from {lake.options.url}: run `baton lake push` and `baton lake pull`"
            )
        refresh_warehouse(data)
        digest = _digest(data.warehouse)
        path = f"{FOLDER}/{digest}.duckdb"
        before = published_warehouse(lake)
        if before is None or before.path != path:
            with lake.answers():
                lake.send(data.warehouse, path)
        size = data.warehouse.stat().st_size
    with lake.answers():
        tables.created(lake, WAREHOUSES.name, WAREHOUSES.meaning, WAREHOUSES.columns)
    for _ in range(TRIES):
        before = published_warehouse(lake)
        if before is not None and before.version > shared.version:
            raise WorkError(
                f"{lake.options.url} has a warehouse of version {before.version}, and this one is of version "
                f"{shared.version}: run `baton lake pull` first"
            )
        row = {"path": path, "sha256": digest, "bytes": size, "version": shared.version, "published_utc": now_utc()}
        with lake.answers():
            table = before.table if before is not None else tables.opened(lake, WAREHOUSES.name)
        assert table is not None
        if replaced(lake, table, WAREHOUSES, [row]):
            return PublishedWarehouse(path, digest, size, shared.version, table)
    raise WorkError(f"{lake.options.url}: {TRIES} others published first; try again later")


def fetch_warehouse(lake: SharedLake, data: DataFolder) -> PublishedWarehouse:
    """Put the published warehouse in the place of the local one, whole or not at all.

    The next build on this machine replaces it. Raises InputError where none is published, WorkError for a damaged one.
    """
    found = published_warehouse(lake)
    if found is None:
        raise InputError(f"{lake.options.url} has no warehouse: run `baton lake publish` on a machine with the lake")
    data.ensure_writable()
    with staging.workplace(data.root, data.root) as place:
        place.mkdir()
        part = place / "warehouse.duckdb"
        with lake.answers():
            lake.fetch(found.path, part)
        if _digest(part) != found.sha256:
            raise WorkError(f"{lake.options.url}/{found.path} is damaged: publish it again")
        with locked(data.root, LAKE):
            forget_stamp(data, "warehouse", ALL)
            part.replace(data.warehouse)
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
