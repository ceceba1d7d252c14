"""A shared lake in a folder or on a real S3 server, and machines with data folders of their own."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import skip_or_fail
from tests.seaweed import BUCKET, KEYS, running_seaweed
from tests.traces.conftest import HEADER
from traces import schema
from traces.clusters import ClusterSettings
from traces.ingest import current_digests, ingest
from traces.lake.options import LakeOptions
from traces.lake.pull import Pulled, pull
from traces.lake.push import Pushed, push
from traces.lake.shared import SharedLake
from traces.store import warehouse
from traces.store.folder import DataFolder

Row = Callable[..., str]


class Machine:
    """One data folder that shares a lake."""

    def __init__(self, root: Path, lake: SharedLake) -> None:
        self.data, self.lake = DataFolder(root), lake

    def ingest(self, *paths: Path, cluster: str = "lab") -> tuple[Pushed, Pulled]:
        results = ingest(list(paths), cluster=ClusterSettings(cluster), data=self.data)
        read = {result.sha256 for result in results}
        pushed = push(self.lake, self.data, {cluster}, current_digests(results), read)
        return pushed, self.pull()

    def pull(self) -> Pulled:
        return pull(self.lake, self.data)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table of a new warehouse."""
        warehouse.build(self.data)
        return {name: warehouse.read(self.data, f"SELECT * FROM {name} ORDER BY ALL") for name in schema.TABLES}

    def keys(self) -> list[str]:
        warehouse.build(self.data)
        return warehouse.read(self.data, "SELECT job_key FROM jobs ORDER BY ALL")["job_key"].to_list()


def equal(one: Machine, other: Machine) -> bool:
    tables = other.tables()
    return all(frame.equals(tables[name]) for name, frame in one.tables().items())


def dump(path: Path, row: Row, *ids: int, **other: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADER, *(row(JobID=str(number), **other) for number in ids)]) + "\n")
    return path


@pytest.fixture(autouse=True)
def no_deltalake() -> None:
    if find_spec("deltalake") is None:
        skip_or_fail("lake", "the extra `lake` is not installed")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_seaweed(tmp_path_factory.mktemp("seaweed")) as endpoint:
        yield endpoint


@pytest.fixture(params=["folder", "s3"])
def options(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeOptions:
    if request.param == "folder":
        (tmp_path / "shared").mkdir()
        return LakeOptions(f"file://{tmp_path}/shared")
    endpoint = request.getfixturevalue("s3")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return LakeOptions(f"s3://{BUCKET}/{secrets.token_hex(4)}", endpoint)


@pytest.fixture
def shared(options: LakeOptions) -> SharedLake:
    return SharedLake(options)


@pytest.fixture
def machine(tmp_path: Path, shared: SharedLake) -> Callable[[], Machine]:
    numbers = itertools.count(1)
    return lambda: Machine(tmp_path / f"machine{next(numbers)}", shared)
