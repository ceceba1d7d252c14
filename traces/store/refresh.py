"""Rebuild the warehouse if the lake changed since it was built."""

from __future__ import annotations

from traces.cache.digests import digest
from traces.files.locks import locked
from traces.store import derived, raw_files, warehouse
from traces.store.folder import LAKE, DataFolder
from traces.store.stamps import read_stamp, write_stamp

ALL = "all-clusters"


def fingerprint(data: DataFolder) -> str:
    """Return a digest that changes with any raw file, any derived table, and the code that builds the warehouse."""
    parts = [
        (name, path.stem, derived.made_from(data, name, path.stem))
        for name, (_, paths) in derived.tables(data).items()
        for path in paths
    ]
    return digest(warehouse.made_from(data), parts)


def refresh_warehouse(data: DataFolder) -> tuple[dict[str, int], bool]:
    """Return the rows of every table, and whether the existing warehouse was already built from this lake.

    The lake is locked meanwhile, so that the stamp matches what was built. Raises WorkError if the lake is damaged.
    """
    with locked(data.root, LAKE):
        raw_files.check(data.lake)
        made_from = fingerprint(data)
        kept = read_stamp(data, "warehouse", ALL, made_from) if data.warehouse.is_file() else None
        if kept is not None:
            return kept, True
        rows = warehouse.build(data)
        write_stamp(data, "warehouse", ALL, made_from, dict(rows))
        return rows, False
