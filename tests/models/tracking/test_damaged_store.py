"""Garbage in MLflow's database: an error of one line that names the file, and never anything else.

BATON_DAMAGES says how many databases are damaged at random (10 by default).
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from models.release import champion
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.moved import check
from tests.models.pair_tables import artifact
from traces.errors import BatonError, WorkError
from traces.store.folder import DataFolder

DAMAGES = int(os.environ.get("BATON_DAMAGES", "10"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """Two versions, the second of them champion."""
    data = DataFolder(tmp_path_factory.mktemp("whole"))
    for setting in (1.0, 2.0):
        number = tracking.register(
            data, "toy", artifact(default=setting), tags={"n": "1"}, description="d", metrics={"c": 1.0}
        )
        champion.promote(data, "toy", number, "tried")
    return data


@pytest.fixture
def data(whole: DataFolder, tmp_path: Path) -> DataFolder:
    return DataFolder(shutil.copytree(whole.root, tmp_path / "data"))


def one_line(data: DataFolder, work: Callable[[], object]) -> str:
    """What the work says when it refuses; empty where it goes well."""
    try:
        work()
    except BatonError as error:
        message = str(error)
    else:
        return ""
    assert "\n" not in message and len(message) < 1000
    return message


def noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(100_000))


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def schema(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'CREATE TABLE "experiments"', b'CREATE TABLE )experiments"'))
    assert path.read_bytes() != content


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def other_release(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0123456789ab'")


@pytest.mark.parametrize("damage", [noise, half, schema, folder, other_release])
def test_a_damaged_store_is_named(data: DataFolder, damage: Callable[[Path], None]) -> None:
    damage(mlflow_store.database(data))
    with pytest.raises(WorkError, match=r"mlflow\.db: the MLflow store ") as raised:
        mlflow_store.initialise(data)
    assert "\n" not in str(raised.value)
    for work in (
        lambda data: champion.rollback(data, "toy"),
        lambda data: tracking.versions(data, "toy"),
        lambda data: champion.promote(data, "toy", 1, "tried"),
    ):
        assert one_line(data, partial(work, data)) or damage in (folder, other_release)


def test_free_pages_that_are_not_there_are_damage(tmp_path: Path) -> None:
    """SQLite opens such a file and reads every row of it."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE experiments (name TEXT)")
    check(path)
    content = bytearray(path.read_bytes())
    content[36:40] = (7).to_bytes(4, "big")  # their number, in SQLite's header
    path.write_bytes(content)
    with pytest.raises(WorkError, match=r"store\.db: the MLflow store is damaged \(.*7"):
        check(path)


def test_whatever_is_damaged_is_told_in_one_line(whole: DataFolder, tmp_path: Path) -> None:
    """Bytes here and there: what goes well in spite of it may, and nothing but one line comes of the rest."""
    chance, refused = random.Random(20261122), 0
    for number in range(DAMAGES):
        data = DataFolder(shutil.copytree(whole.root, tmp_path / str(number)))
        path = mlflow_store.database(data)
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice((1, 30, 1000))):
            at = chance.randrange(100, len(content) - 64)
            content[at : at + 64] = chance.randbytes(64)
        path.write_bytes(content)
        for work in (
            mlflow_store.initialise,
            lambda data: champion.rollback(data, "toy"),
            lambda data: champion.promote(data, "toy", 2, "tried"),
        ):
            refused += bool(one_line(data, partial(work, data)))
    assert refused >= DAMAGES
