"""An MLflow store whose folder was moved or copied: the paths inside it are made those of the present place.

MLflow stores the address of every run's artifacts in full and has no command to change it. The addresses are read and
written with SQL, in one transaction; nothing outside of the folder that the store was made in is touched.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from traces.errors import WorkError

# Where MLflow keeps an address under the experiment's artifact location: table, column.
ADDRESSES = (
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("logged_models", "artifact_location"),
    ("experiments", "artifact_location"),
)
WAIT_S = 30


def follow(database: Path, experiment: str, artifacts: str) -> bool:
    """Makes `artifacts` (a URI) the place of the experiment's artifacts. Returns whether anything had to change.

    Does nothing where there is no store or no such experiment yet. Raises WorkError where the store was moved and
    cannot be written to.
    """
    if not database.is_file():
        return False
    with closing(sqlite3.connect(database, timeout=WAIT_S)) as connection:
        before = _location(connection, experiment)
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
                f"{database} holds runs whose artifacts were at {before} and are now at {artifacts}, but cannot be "
                f"corrected: {error}; make it writable"
            ) from error
    return True


def _location(connection: sqlite3.Connection, experiment: str) -> str | None:
    """The artifact location of that experiment; None where the store has none of that name, or no tables yet."""
    try:
        row = connection.execute("SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)).fetchone()
    except sqlite3.OperationalError:
        return None
    return None if row is None else str(row[0])
