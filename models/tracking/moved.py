"""Open an MLflow store that was moved or copied, or say that its file is damaged.

MLflow stores the address of every run's artifacts in full and has no command to change it, so the addresses are
rewritten here, in one transaction. Everything else goes through MLflow's client.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
    """Raise WorkError if the file is not a SQLite database, or a damaged one. It is neither created nor written to."""
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=WAIT_S)) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    except DAMAGED as error:
        raise WorkError(f"{database}: the MLflow store cannot be read: {_one_line(error)}") from error
    if problems != ["ok"]:
        what = " ".join(" ".join(problems).split())[:MESSAGE_CHARACTERS] or "not a file"
        raise WorkError(f"{database}: the MLflow store is damaged ({what}); restore it from a copy, or move it away")
