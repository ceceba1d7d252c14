"""The derived tables of the lake: a Parquet file a cluster, beside it a JSON file that says what it was made from."""

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

    `fingerprint` names what the rows were computed from. It is written last: a run killed in between computes again.
    """
    path, frame = _path(data.lake, table.name, cluster), conform(table, frame)
    with locked(data.root, LAKE):
        _forget(path)
        write_parquet(path, frame)
        _describe(path, table, fingerprint)


def made_from(data: DataFolder, table_name: str, cluster: str) -> str | None:
    """What the stored part was computed from; None where there is none or it is of another schema version."""
    declared = _described(_path(data.lake, table_name, cluster))
    return None if declared is None else declared[1]


def read(data: DataFolder, table_name: str, cluster: str) -> pl.DataFrame:
    """One cluster's part of a derived table, straight from the lake.

    Raises InputError where there is none, WorkError where it cannot be read.
    """
    path = _path(data.lake, table_name, cluster)
    if not path.is_file():
        raise InputError(f"no table {table_name} of cluster {cluster!r} in {data.lake}: run `baton run` first")
    return read_parquet(path)


def read_or_compute(
    data: DataFolder,
    tables: Sequence[schema.Table],
    cluster: str,
    fingerprint: str,
    compute: Callable[[], Sequence[pl.DataFrame]],
) -> tuple[list[pl.DataFrame], bool]:
    """One cluster's part of those tables, and whether it was there already, computed from what `fingerprint` names.

    Where any is not, or cannot be read, `compute` makes them all, in order, and they are written.
    """
    if all(made_from(data, table.name, cluster) == fingerprint for table in tables):
        with suppress(InputError, WorkError):  # gone in between, or damaged
            return [read(data, table.name, cluster) for table in tables], True
    for table, frame in zip(tables, compute(), strict=True):
        write(data, table, cluster, frame, fingerprint)
    return [read(data, table.name, cluster) for table in tables], False


def tables(data: DataFolder) -> dict[str, tuple[schema.Table, list[Path]]]:
    """Every derived table of this schema version in the lake with the Parquet files of its clusters.

    A table is as its newest file declares it; files of other columns or of another version, and lone ones, are left
    out: their writer finds its fingerprint changed and writes them again when that cluster is next materialized.
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
    """Remove what killed writers have left half written; to be called by who alone may write."""
    for folder in (lake / "derived").glob("*/"):
        whole.sweep(folder)


def _path(lake: Path, table_name: str, cluster: str) -> Path:
    return lake / "derived" / table_name / f"{cluster}.parquet"


def _describe(path: Path, table: schema.Table, fingerprint: str) -> None:
    """Say what the Parquet file holds, and what it was computed from."""
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
    """Remove the description before the Parquet file is replaced: a run killed in between leaves none, and none is
    better than one of other rows."""
    path.with_suffix(".json").unlink(missing_ok=True)


def _described(path: Path) -> tuple[schema.Table, str] | None:
    """How the table in that Parquet file is declared, and what it was computed from.

    None where the one or the other file is missing or anything else, or of another schema version.
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
    """When the file was described; 0 where it is not, or is just being replaced."""
    try:
        return path.with_suffix(".json").stat().st_mtime_ns
    except OSError:
        return 0
