"""Which versions the MLflow registry holds, read from its SQLite file: importing MLflow to refuse takes five seconds.

Whatever changes the registry, or needs more of a version than its number, goes through `models.tracking`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from urllib.parse import quote

from models.tracking import CHAMPION, MODEL_NAME
from traces.errors import InputError, WorkError
from traces.store import DataFolder


def versions(data: DataFolder) -> list[int]:
    """Registered versions in order; none where there is no registry yet."""
    return _numbers(
        data, "SELECT version FROM model_versions WHERE name = ? AND current_stage <> 'Deleted_Internal'", MODEL_NAME
    )


def champion_version(data: DataFolder) -> int | None:
    """The version that carries the alias `champion`."""
    sql = "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = ?"
    return next(iter(_numbers(data, sql, MODEL_NAME, CHAMPION)), None)


def check_champion(data: DataFolder) -> None:
    """Raises InputError where no version is champion."""
    if champion_version(data) is None:
        raise InputError(f"no champion is registered in {data.mlflow}; run `baton run` first, or name a policy")


def check_version(data: DataFolder, version: int) -> None:
    """Raises InputError for a version that is not registered, listing those that are."""
    if version not in (known := versions(data)):
        raise InputError(f"{MODEL_NAME} has no version {version}; registered: {', '.join(map(str, known)) or 'none'}")


def _numbers(data: DataFolder, sql: str, *params: str) -> list[int]:
    path = data.mlflow / "mlflow.db"
    if not path.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            return sorted(int(row[0]) for row in connection.execute(sql, params))
    except sqlite3.Error as error:
        raise WorkError(f"{path}: the MLflow registry cannot be read: {error}") from error
