"""Names of the clusters and tables in the warehouse. Imports nothing slow but DuckDB, so a wrong name fails at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from traces.errors import InputError
from traces.store import warehouse
from traces.store.connections import ask
from traces.store.folder import DataFolder


def texts(data: DataFolder, sql: str, params: Sequence[str] = ()) -> list[str]:
    """Return the first column of a SELECT on the warehouse as texts. Raises InputError as `warehouse.read` does."""
    with warehouse.published(data) as connection:
        return [str(row[0]) for row in ask(connection, sql, params).fetchall()]


def cluster_names(data: DataFolder) -> list[str]:
    """Return the clusters with at least one raw file in the warehouse, sorted by name."""
    with warehouse.published(data):
        if "trace_files" not in table_names(data):  # a warehouse that holds no raw file
            return []
        return texts(data, "SELECT DISTINCT cluster FROM trace_files ORDER BY cluster")


def table_names(data: DataFolder) -> list[str]:
    """Return the canonical and derived tables that have a column `cluster`, sorted by name."""
    return texts(
        data, "SELECT table_name FROM information_schema.columns WHERE column_name = 'cluster' ORDER BY table_name"
    )


def check_clusters(data: DataFolder, names: Iterable[str]) -> None:
    """Raise InputError for a cluster that is not in the warehouse; the message lists those that are."""
    known = cluster_names(data)
    for name in names:
        if name not in known:
            raise InputError(
                f"unknown cluster {name!r}: {data.warehouse} holds {', '.join(known) or 'no clusters'}; "
                "ingest its raw files first"
            )


def check_tables(data: DataFolder, names: Sequence[str]) -> None:
    """Raise InputError for an empty list, and for an unknown table; the message names the most similar tables."""
    known = table_names(data)
    if not names:
        raise InputError(f"--tables names no table: known are {', '.join(known)}")
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"no table {name!r} in {data.warehouse}: {hint}")
