"""Names of the clusters and tables in the warehouse. Imports DuckDB alone, so that a wrong name fails at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder


def texts(data: DataFolder, sql: str, params: Sequence[str] = ()) -> list[str]:
    """The first column of a SELECT on the warehouse, text without nulls. Raises InputError as `warehouse.read` does."""
    with warehouse.published(data) as connection:
        return [str(row[0]) for row in connection.execute(sql, list(params)).fetchall()]


def cluster_names(data: DataFolder) -> list[str]:
    """Clusters of which at least one raw file is in the warehouse, in order of name."""
    return texts(data, "SELECT DISTINCT cluster FROM trace_files ORDER BY cluster")


def table_names(data: DataFolder) -> list[str]:
    """Canonical and derived tables with rows of clusters, in order of name."""
    return texts(
        data, "SELECT table_name FROM information_schema.columns WHERE column_name = 'cluster' ORDER BY table_name"
    )


def check_clusters(data: DataFolder, names: Iterable[str]) -> None:
    """Raises InputError for a cluster that the warehouse holds nothing of, listing those that it holds."""
    known = cluster_names(data)
    for name in names:
        if name not in known:
            raise InputError(
                f"unknown cluster {name!r}: {data.warehouse} holds {', '.join(known) or 'none'}; "
                "ingest its raw files first"
            )


def check_tables(data: DataFolder, names: Sequence[str]) -> None:
    """Raises InputError for no table at all, and for one that the warehouse does not have, naming the nearest."""
    known = table_names(data)
    if not names:
        raise InputError(f"--tables names no table: there are {', '.join(known)}")
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
            raise InputError(f"no table {name!r} in {data.warehouse}: {hint}")
