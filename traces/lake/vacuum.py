"""Remove old versions, and what killed pushes left, from the shared lake."""

from __future__ import annotations

import time
from typing import NamedTuple

from traces import schema
from traces.lake import tables, warehouses
from traces.lake.listing import FILES, listing
from traces.lake.shared import SharedLake
from traces.lake.tables import Part


class Vacuumed(NamedTuple):
    """Numbers of partitions that no listing has, and of files that no kept version needs."""

    partitions: int
    files: int


def vacuum(lake: SharedLake, keep_days: float | None = None) -> Vacuumed:
    """Remove what is older than `keep_days` (None: the declared time) and not needed by the newest version.

    Raises InputError before work begins, WorkError after it.
    """
    hours = round((lake.options.keep_days if keep_days is None else keep_days) * 24)
    oldest_s = time.time() - hours * 3600
    partitions = files = 0
    for name in schema.TABLES:
        counts = {file.part for file in listing(lake).files.values() if file.retired_utc is None}
        with lake.answers():
            parts = [part for part, added_s in _partitions(lake, name) if part not in counts and added_s <= oldest_s]
            tables.remove(lake, name, parts)
        partitions += len(parts)
    for name in (*schema.TABLES, FILES.name, warehouses.WAREHOUSES.name):
        with lake.answers():
            if (table := tables.opened(lake, name)) is not None:
                files += len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))
    return Vacuumed(partitions, files + _old_warehouses(lake, oldest_s))


def _partitions(lake: SharedLake, name: str) -> list[tuple[Part, float]]:
    """Return the partitions of the newest version of a table, each with the time when it was added, s since 1970."""
    if (table := tables.opened(lake, name)) is None:
        return []
    rows = table.get_add_actions(flatten=True)
    columns = {key: rows.column(f"partition.{key}").to_pylist() for key in tables.PARTITION}
    added = [ms / 1000 for ms in rows.column("modification_time").to_pylist()]
    return list(zip(map(Part, *columns.values()), added, strict=True))


def _old_warehouses(lake: SharedLake, oldest_s: float) -> int:
    """Remove the warehouses that are not the published one."""
    from pyarrow.fs import FileSelector

    current = warehouses.published_warehouse(lake)
    kept = None if current is None else current.path
    with lake.answers():
        found = lake.files.get_file_info(FileSelector(warehouses.FOLDER, allow_not_found=True))
        old = [file.path for file in found if file.path != kept and (file.mtime_ns or 0) / 1e9 <= oldest_s]
        for path in old:
            lake.files.delete_file(path)
    return len(old)
