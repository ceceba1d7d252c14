"""Where a cluster's part of a derived table lies in the lake, and what the JSON file beside its Parquet file says."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

from traces import schema, whole_file


def path_of(lake: Path, table_name: str, cluster: str) -> Path:
    return lake / "derived" / table_name / f"{cluster}.parquet"


def describe(path: Path, table: schema.Table, fingerprint: str) -> None:
    """Say what the Parquet file holds, and what it was computed from."""
    described = {
        "schema_version": schema.SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "name": table.name,
        "meaning": table.meaning,
        "key": table.key,
        "columns": [astuple(column) for column in table.columns],
    }
    with whole_file.whole_file(path.with_suffix(".json")) as part:
        part.write_text(json.dumps(described, indent=1), encoding="utf-8")


def forget(path: Path) -> None:
    """Before the Parquet file is replaced: of a run killed in between nothing is said."""
    path.with_suffix(".json").unlink(missing_ok=True)


def described(path: Path) -> tuple[schema.Table, str] | None:
    """How the table in that Parquet file is declared, and what it was computed from.

    None where the one or the other file is missing or anything else, or of another schema version.
    """
    try:
        told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if told["schema_version"] != schema.SCHEMA_VERSION or not path.is_file():
            return None
        columns = tuple(schema.Column(*column) for column in told["columns"])
        table = schema.Table(str(told["name"]), str(told["meaning"]), columns, tuple(told["key"]))
        return table, str(told["fingerprint"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def all_of(lake: Path) -> dict[str, tuple[schema.Table, list[Path]]]:
    """Every derived table of this schema version in the lake with the Parquet files of its clusters.

    A table is as its newest file declares it; files of other columns or of another version, and lone ones, are left
    out: their writer finds its fingerprint changed and writes them again when that cluster is next materialized.
    """
    tables: dict[str, tuple[schema.Table, list[Path]]] = {}
    paths = (lake / "derived").glob("*/[!.]*.parquet")
    for path in sorted(paths, key=lambda path: (-_written_ns(path), str(path))):
        if (told := described(path)) is None:
            continue
        newest, of_it = tables.setdefault(told[0].name, (told[0], []))
        if [(c.name, c.type) for c in newest.columns] == [(c.name, c.type) for c in told[0].columns]:
            of_it.append(path)
    return {name: (table, sorted(paths)) for name, (table, paths) in sorted(tables.items())}


def _written_ns(path: Path) -> int:
    """When the file was described; 0 where it is not, or is just being replaced."""
    try:
        return path.with_suffix(".json").stat().st_mtime_ns
    except OSError:
        return 0


def sweep(lake: Path) -> None:
    """Remove what killed writers have left half written; to be called by who alone may write."""
    for folder in (lake / "derived").glob("*/"):
        whole_file.sweep(folder)
