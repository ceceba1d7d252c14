"""Look up a job by id, or a user by name. Imports no heavy library except DuckDB, so that a wrong id fails at once.

Texts are quoted with `traces.store.quoting.sql_text` instead of bound as parameters, because for parameters DuckDB
imports pandas, which takes half a second.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traces.counted import counted
from traces.errors import InputError
from traces.store import contents
from traces.store.folder import DataFolder
from traces.store.quoting import sql_text
from traces.store.warehouse import published
from traces.visible import storable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_NAMED = 5  # ids listed in an error
# Columns to search for an id, in order; the first match wins: the printed id, the array, the raw id, our key.
_ID_COLUMNS = ("job_id", "CAST(array_job_id AS VARCHAR)", "CAST(job_id_raw AS VARCHAR)", "job_key")

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class FoundJob:
    """One job of the warehouse that an id identifies."""

    cluster: str
    job_key: str
    older: tuple[str, ...] = ()  # keys of older jobs of the cluster with the same id: Slurm reuses ids


def find_job(data: DataFolder, job_id: str, cluster: str | None = None) -> FoundJob:
    """Return the job with that id: as printed (123, 123_7, 123+1), a JobIDRaw, a key, or the id of a step (123.batch).

    Raises InputError for an id that several clusters have, for an array with several tasks, and for an unknown id.
    The message for an unknown id names similar ids, if there are any.
    """
    if cluster is not None:
        contents.check_clusters(data, [cluster])
    job_id = storable(job_id)
    with published(data) as warehouse:
        for name in dict.fromkeys((job_id, job_id.split(".")[0])):
            for column in _ID_COLUMNS:
                rows = warehouse.execute(
                    "SELECT cluster, job_key, job_id FROM jobs "  # noqa: S608
                    f"WHERE {column} = {sql_text(name)} AND {_cluster_condition(cluster)} "
                    "ORDER BY submit_utc DESC NULLS LAST, job_key DESC"
                ).fetchall()
                if rows:
                    return _only_job(rows, name)
        near = _nearest(warehouse, "job_id", job_id, cluster)
    where = f"cluster {cluster!r}" if cluster else str(data.warehouse)
    raise InputError(f"no job {job_id!r} in {where}{_suggestion(near, job_id, 'it holds no jobs')}")


def find_user(data: DataFolder, user: str, cluster: str | None = None) -> str:
    """Return the cluster in which that user has jobs. Raises InputError for several clusters and an unknown user."""
    if cluster is not None:
        contents.check_clusters(data, [cluster])
    user = storable(user)
    with published(data) as warehouse:
        rows = warehouse.execute(
            f"SELECT DISTINCT cluster FROM jobs WHERE user_name = {sql_text(user)} "  # noqa: S608
            f"AND {_cluster_condition(cluster)} ORDER BY 1"
        ).fetchall()
        near = [] if rows else _nearest(warehouse, "user_name", user, cluster)
    if len(rows) > 1:
        raise InputError(f"user {user!r} has jobs in {', '.join(row[0] for row in rows)}: give --cluster")
    if not rows:
        raise InputError(f"no job of user {user!r}{_suggestion(near, user, 'the log names no users')}")
    return str(rows[0][0])


def _cluster_condition(cluster: str | None) -> str:
    return "true" if cluster is None else f"cluster = {sql_text(cluster)}"


def _only_job(rows: Rows, name: str) -> FoundJob:
    clusters = sorted({str(row[0]) for row in rows})
    if len(clusters) > 1:
        raise InputError(f"job {name!r} is in the clusters {', '.join(clusters)}: give --cluster")
    ids = sorted({str(row[2]) for row in rows}, key=lambda text: (len(text), text))
    if len(ids) > 1:
        shown = ", ".join(repr(text) for text in ids[:MOST_NAMED])
        raise InputError(f"job {name!r} is an array of {counted(len(ids), 'task')}: name one of them: {shown}, ...")
    return FoundJob(clusters[0], str(rows[0][1]), tuple(str(row[1]) for row in rows[1:]))


def _nearest(warehouse: DuckDBPyConnection, column: str, name: str, cluster: str | None) -> list[str]:
    """Return up to three values of the column with the smallest edit distance to `name`, however large it is."""
    rows = warehouse.execute(
        f"SELECT {column} FROM jobs WHERE {column} IS NOT NULL AND {_cluster_condition(cluster)} GROUP BY 1 "  # noqa: S608
        f"ORDER BY levenshtein({column}, {sql_text(name[:100])}), 1 LIMIT 3"
    ).fetchall()
    return [str(row[0]) for row in rows]


def _suggestion(nearest: list[str], typed: str, if_empty: str) -> str:
    """Return the end of an error: the similar values, '' if none is similar, `if_empty` if there are no values."""
    if not nearest:
        return f": {if_empty}"
    close = difflib.get_close_matches(typed[:100], nearest, n=3)
    near = " or ".join(repr(name) for name in nearest if name in close)
    return f": did you mean {near}?" if near else ""
