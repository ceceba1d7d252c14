"""Derived tables of the lake: one Parquet file per cluster, and a JSON file with the table's schema and fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from traces import schema
from traces.errors import InputError, WorkError
from traces.files import whole
from traces.files.locks import locked
from traces.store.folder import LAKE, DataFolder
from traces.store.frames import conform, read_parquet, write_parquet

if TYPE_CHECKING:
    import polars as pl


def write(data: DataFolder, table: schema.Table, cluster: str, frame: pl.DataFrame, fingerprint: str) -> None:
    """Write one cluster's part of a derived table; the next `warehouse.build` includes it.

    `fingerprint` identifies the inputs and code of the rows. It is written last, so an interrupted write is repeated.
    """
    path, frame = _path(data.lake, table.name, cluster), conform(table, frame)
    with locked(data.root, LAKE):
        _forget(path)
        write_parquet(path, frame)
        _describe(path, table, fingerprint)


def made_from(data: DataFolder, table_name: str, cluster: str) -> str | None:
    """Return the fingerprint of the stored part; None if there is none or it has another schema version."""
    declared = _described(_path(data.lake, table_name, cluster))
    return None if declared is None else declared[1]


def read(data: DataFolder, table_name: str, cluster: str) -> pl.DataFrame:
    """Read one cluster's part of a derived table directly from the lake.

    Raises InputError where there is none, WorkError where it cannot be read.
    """
    path = _path(data.lake, table_name, cluster)
    if not path.is_file():
        raise InputError(f"no table {table_name} for cluster {cluster!r} in {data.lake}: run `baton run` first")
    return read_parquet(path)


def read_or_compute(
    data: DataFolder,
    tables: Sequence[schema.Table],
    cluster: str,
    fingerprint: str,
    compute: Callable[[], Sequence[pl.DataFrame]],
) -> tuple[list[pl.DataFrame], bool]:
    """Return one cluster's part of the tables with that fingerprint, and whether all of it was stored already.

    If a table is missing, outdated or unreadable, `compute` makes all of them, in order, and they are written.
    """
    if all(made_from(data, table.name, cluster) == fingerprint for table in tables):
        with suppress(InputError, WorkError):  # deleted meanwhile, or damaged
            return [read(data, table.name, cluster) for table in tables], True
    for table, frame in zip(tables, compute(), strict=True):
        write(data, table, cluster, frame, fingerprint)
    return [read(data, table.name, cluster) for table in tables], False


def tables(data: DataFolder) -> dict[str, tuple[schema.Table, list[Path]]]:
    """Return every derived table of this schema version, with the Parquet files of its clusters.

    The newest file declares the table's columns. Files with other columns, another version or no description are left
    out; their fingerprint no longer matches, so they are written again when that cluster is next materialized.
    """
    newest_of: dict[str, tuple[schema.Table, list[Path]]] = {}
    paths = (data.lake / "derived").glob("*/[!.]*.parquet")
    for path in sorted(paths, key=lambda path: (-_written_ns(path), str(path))):
        if (declared := _described(path)) is None:
            continue
        newest, newest_paths = newest_of.setdefault(declared[0].name, (declared[0], []))
        if [(c.name, c.type) for c in newest.columns] == [(c.name, c.type) for c in declared[0].columns]:
            newest_paths.append(path)
    return {name: (table, sorted(paths)) for name, (table, paths) in sorted(newest_of.items())}


def sweep(lake: Path) -> None:
    """Remove partial files of killed writers. The caller must hold the lake's lock."""
    for folder in (lake / "derived").glob("*/"):
        whole.sweep(folder)


def _path(lake: Path, table_name: str, cluster: str) -> Path:
    return lake / "derived" / table_name / f"{cluster}.parquet"


def _describe(path: Path, table: schema.Table, fingerprint: str) -> None:
    """Write the description of the Parquet file: its schema, and its fingerprint."""
    described = {
        "schema_version": schema.SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "name": table.name,
        "meaning": table.meaning,
        "key": table.key,
        "columns": [astuple(column) for column in table.columns],
    }
    with whole.whole_file(path.with_suffix(".json")) as part:
        part.write_text(json.dumps(described, indent=1), encoding="utf-8")


def _forget(path: Path) -> None:
    """Remove the description before the Parquet file is replaced.

    So a run that is killed in between leaves no description, instead of one for other rows.
    """
    path.with_suffix(".json").unlink(missing_ok=True)


def _described(path: Path) -> tuple[schema.Table, str] | None:
    """Return the declared table of a Parquet file, and its fingerprint.

    None if either file is missing or invalid, or has another schema version.
    """
    try:
        sidecar = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if sidecar["schema_version"] != schema.SCHEMA_VERSION or not path.is_file():
            return None
        columns = tuple(schema.Column(*column) for column in sidecar["columns"])
        table = schema.Table(str(sidecar["name"]), str(sidecar["meaning"]), columns, tuple(sidecar["key"]))
        return table, str(sidecar["fingerprint"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _written_ns(path: Path) -> int:
    """Return when the file's description was written; 0 if there is none, for example while it is replaced."""
    try:
        return path.with_suffix(".json").stat().st_mtime_ns
    except OSError:
        return 0
