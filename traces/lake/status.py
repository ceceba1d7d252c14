"""Compare the local lake with the shared one."""

from __future__ import annotations

from typing import Any

from traces import schema
from traces.lake import tables
from traces.lake.listing import listing
from traces.lake.pull import is_stale, read_version
from traces.lake.push import key_of
from traces.lake.shared import SharedLake
from traces.lake.warehouses import published_warehouse
from traces.store import raw_files
from traces.store.folder import DataFolder


def status(lake: SharedLake, data: DataFolder) -> dict[str, Any]:
    """Return versions, and for each cluster the numbers of files: listed, retired, lacking here, only here."""
    shared = listing(lake)
    here = [key_of(described) for described in raw_files.lake_files(data)]
    clusters: dict[str, dict[str, Any]] = {}
    for name in sorted({*(cluster for cluster, _ in shared.files), *(cluster for cluster, _ in here)}):
        files = shared.of({name})
        noted = read_version(data, name)
        clusters[name] = {
            "files": sum(file.retired_utc is None for file in files),
            "retired": sum(file.retired_utc is not None for file in files),
            "to_pull": sum(is_stale(data, file) for file in files),
            "to_push": sum(key[0] == name and key not in shared.files for key in here),
            "local_version": None if noted is None or noted[0] != lake.options.url else noted[1],
        }
    with lake.answers():
        opened = {name: tables.opened(lake, name) for name in schema.TABLES}
    warehouse = published_warehouse(lake)
    return {
        "url": lake.options.url,
        "schema_version": schema.SCHEMA_VERSION,
        "version": shared.version,
        "clusters": clusters,
        "tables": {name: table.version() for name, table in opened.items() if table is not None},
        "warehouse": None if warehouse is None else {k: getattr(warehouse, k) for k in ("path", "bytes", "version")},
    }
