"""Look up a job by the id, or a user by the name, that a person typed. Imports DuckDB alone: a wrong id fails at once.

Texts are quoted by `traces.store.quoting.sql_text` and are no parameters: for those DuckDB imports pandas, which
takes half a second.
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

MOST_NAMED = 5  # ids in a refusal
# How an id may be meant, the first that finds anything: as printed, the whole array, the raw id, our key.
_MEANT = ("job_id", "CAST(array_job_id AS VARCHAR)", "CAST(job_id_raw AS VARCHAR)", "job_key")

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Named:
    """One job of the warehouse."""

    cluster: str
    job_key: str
    older: tuple[str, ...] = ()  # keys of older jobs of that cluster that had the same id: Slurm uses ids again


def find_job(data: DataFolder, wanted: str, cluster: str | None = None) -> Named:
    """The job of that id: as the log prints it (123, 123_7, 123+1), its JobIDRaw, its key, or a step of it (123.batch).

    Raises InputError for an id that several clusters have, that is of an array with several tasks, or that there is
    not; the last names those that look much alike, where any does.
    """
    if cluster is not None:
        contents.check_clusters(data, [cluster])
    wanted = storable(wanted)
    with published(data) as warehouse:
        for name in dict.fromkeys((wanted, wanted.split(".")[0])):
            for meant in _MEANT:
                rows = warehouse.execute(
                    f"SELECT cluster, job_key, job_id FROM jobs WHERE {meant} = {sql_text(name)} AND {_in(cluster)} "  # noqa: S608
                    "ORDER BY submit_utc DESC NULLS LAST, job_key DESC"
                ).fetchall()
                if rows:
                    return _the_one(rows, name)
        near = _nearest(warehouse, "job_id", wanted, cluster)
    where = f"cluster {cluster!r}" if cluster else str(data.warehouse)
    raise InputError(f"no job {wanted!r} in {where}{_question(near, wanted, 'it holds no job at all')}")


def find_user(data: DataFolder, wanted: str, cluster: str | None = None) -> str:
    """The cluster in which that user has jobs. Raises InputError for several clusters, and for a name of nobody."""
    if cluster is not None:
        contents.check_clusters(data, [cluster])
    wanted = storable(wanted)
    with published(data) as warehouse:
        rows = warehouse.execute(
            f"SELECT DISTINCT cluster FROM jobs WHERE user_name = {sql_text(wanted)} AND {_in(cluster)} ORDER BY 1"  # noqa: S608
        ).fetchall()
        near = [] if rows else _nearest(warehouse, "user_name", wanted, cluster)
    if len(rows) > 1:
        raise InputError(f"user {wanted!r} has jobs in {', '.join(row[0] for row in rows)}: give --cluster")
    if not rows:
        raise InputError(f"no job of user {wanted!r}{_question(near, wanted, 'the log names no users')}")
    return str(rows[0][0])


def _in(cluster: str | None) -> str:
    return "true" if cluster is None else f"cluster = {sql_text(cluster)}"


def _the_one(rows: Rows, name: str) -> Named:
    clusters = sorted({str(row[0]) for row in rows})
    if len(clusters) > 1:
        raise InputError(f"job {name!r} is in {', '.join(clusters)}: give --cluster")
    ids = sorted({str(row[2]) for row in rows}, key=lambda text: (len(text), text))
    if len(ids) > 1:
        shown = ", ".join(repr(text) for text in ids[:MOST_NAMED])
        raise InputError(f"job {name!r} is an array of {counted(len(ids), 'task')}: name one of them: {shown}, ...")
    return Named(clusters[0], str(rows[0][1]), tuple(str(row[1]) for row in rows[1:]))


def _nearest(warehouse: DuckDBPyConnection, column: str, wanted: str, cluster: str | None) -> list[str]:
    """The three values of the column that take the fewest edits, near or not; fewer where there are no more."""
    rows = warehouse.execute(
        f"SELECT {column} FROM jobs WHERE {column} IS NOT NULL AND {_in(cluster)} GROUP BY 1 "  # noqa: S608
        f"ORDER BY levenshtein({column}, {sql_text(wanted[:100])}), 1 LIMIT 3"
    ).fetchall()
    return [str(row[0]) for row in rows]


def _question(nearest: list[str], wanted: str, if_none: str) -> str:
    """The end of a refusal: which of the nearest may be meant, nothing where none is near."""
    if not nearest:
        return f": {if_none}"
    close = difflib.get_close_matches(wanted[:100], nearest, n=3)
    near = " or ".join(repr(name) for name in nearest if name in close)
    return f": did you mean {near}?" if near else ""
