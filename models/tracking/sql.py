"""Query MLflow's database with SQL: to follow a moved store, and for small look-ups without importing mlflow.

MLflow stores the address of every run's artifacts in full and has no command to change it. If the folder was moved or
copied, the addresses are rewritten in one transaction. Importing mlflow takes four seconds of processor time, so
look-ups needed in every run (such as the champion) are made here. The tables are those of the pinned release of MLflow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from traces.errors import WorkError

# Columns in which MLflow stores an address under the experiment's artifact location: table, column.
ADDRESSES = (
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("logged_models", "artifact_location"),
    ("experiments", "artifact_location"),
)
WAIT_S = 30
MESSAGE_CHARACTERS = 300
DAMAGED = (sqlite3.Error, UnicodeDecodeError)  # raised when reading a damaged file


def follow(database: Path, experiment: str, artifacts: str) -> bool:
    """Make `artifacts` (a URI) the place of the experiment's artifacts. Returns whether anything changed.

    Does nothing without a store or without such an experiment. Raises WorkError if the file is not a database, or if
    the store was moved and cannot be written to.
    """
    if not database.is_file():
        return False
    with closing(sqlite3.connect(database, timeout=WAIT_S)) as connection:
        try:
            before = _location(connection, experiment)
        except DAMAGED as error:
            raise WorkError(f"{database}: the MLflow store cannot be read: {_one_line(error)}") from error
        if before is None or before == artifacts:
            return False
        try:
            with connection:
                for table, column in ADDRESSES:
                    connection.execute(
                        f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - names of ADDRESSES
                        f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                        (artifacts, len(before) + 1, before, len(before) + 1, f"{before}/"),
                    )
        except sqlite3.DatabaseError as error:
            raise WorkError(
                f"{database} holds runs whose artifacts were at {before} and are now at {artifacts}, but their "
                f"addresses cannot be updated: {_one_line(error)}; make the file writable"
            ) from error
    return True


def _location(connection: sqlite3.Connection, experiment: str) -> str | None:
    """The artifact location of that experiment; None if the store has no such experiment, or no tables yet."""
    try:
        row = connection.execute("SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)).fetchone()
    except sqlite3.OperationalError:
        return None
    return None if row is None else str(row[0])


def _one_line(error: Exception) -> str:
    """The error's text on one line, cut short, because SQLite quotes statements in full."""
    return " ".join(str(error).split())[:MESSAGE_CHARACTERS]


def check(database: Path) -> None:
    """Raise WorkError if the file is not a SQLite database, or a damaged one."""
    problems = [str(row[0]) for row in rows(database, "PRAGMA quick_check(1)", ())]
    if problems != ["ok"]:
        what = " ".join(" ".join(problems).split())[:MESSAGE_CHARACTERS] or "not a file"
        raise WorkError(f"{database}: the MLflow store is damaged ({what}); restore it from a copy, or move it away")


def experiment_named(database: Path, name: str) -> tuple[str, str, set[str]] | None:
    """The id of that experiment, the place of its artifacts (a URI) and the keys of its tags; None if there is none."""
    found = rows(database, "SELECT experiment_id, artifact_location FROM experiments WHERE name = ?", (name,))
    if not found:
        return None
    number, place = map(str, found[0])
    tags = rows(database, "SELECT key FROM experiment_tags WHERE experiment_id = ?", (number,))
    return number, place, {str(key) for (key,) in tags}


def any_open_run(database: Path) -> bool:
    """Whether any run is open: of a running process, or of one that was killed."""
    return bool(rows(database, "SELECT 1 FROM runs WHERE status = 'RUNNING' LIMIT 1", ()))


def parent_run(database: Path, run_id: str) -> str | None:
    """The parent of a run; None if it has none, or is not in the store."""
    parents = rows(database, "SELECT value FROM tags WHERE run_uuid = ? AND key = 'mlflow.parentRunId'", (run_id,))
    return str(parents[0][0]) if parents else None


def experiment_of(database: Path, run_id: str) -> str | None:
    """The experiment that holds a run; None if the store has no such run."""
    experiments = rows(database, "SELECT experiment_id FROM runs WHERE run_uuid = ?", (run_id,))
    return str(experiments[0][0]) if experiments else None


def aliased_version(database: Path, model: str, alias: str) -> int | None:
    """The version number of a registered model with that alias."""
    statement = "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = ?"
    named = rows(database, statement, (model, alias))
    return int(named[0][0]) if named else None


def model_version(database: Path, model: str, version: int) -> tuple[int, str, dict[str, str]] | None:
    """Number, run and tags of a registered version; None if there is none."""
    named_by = (model, str(version))  # as text, because no number is too large for that
    runs = rows(
        database,
        "SELECT run_id FROM model_versions WHERE name = ? AND version = ? AND current_stage <> 'Deleted_Internal'",
        named_by,
    )
    if not runs:
        return None
    tags = rows(database, "SELECT key, value FROM model_version_tags WHERE name = ? AND version = ?", named_by)
    return version, str(runs[0][0]), {str(key): str(value) for key, value in tags}


def version_tags(database: Path, model: str, key: str) -> set[str | None]:
    """The values of a tag among the versions of a registered model; None for versions without it."""
    statement = (
        "SELECT DISTINCT t.value FROM model_versions v LEFT JOIN model_version_tags t "
        "ON t.name = v.name AND t.version = v.version AND t.key = ? "
        "WHERE v.name = ? AND v.current_stage <> 'Deleted_Internal'"
    )
    return {None if value is None else str(value) for (value,) in rows(database, statement, (key, model))}


def rows(database: Path, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows that the statement finds; none without a store. The file is neither created nor written to.

    Raises WorkError if the file is not an MLflow store.
    """
    if not database.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=WAIT_S)) as connection:
            return connection.execute(statement, values).fetchall()
    except DAMAGED as error:
        raise WorkError(f"{database}: the MLflow store cannot be read: {_one_line(error)}") from error
