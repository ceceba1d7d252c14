"""`baton lake`, and the commands that share a lake which deployment.toml declares."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from models.deployment import FILE, VARIABLE
from tests.conftest import skip_or_fail
from tests.pipelines.conftest import HEADER, ROW, Baton
from traces.store import warehouse
from traces.store.folder import DataFolder


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two data folders with one shared lake."""
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "shared").mkdir()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_text(f'[lake]\nurl = "file://{tmp_path}/shared"\n')
    return tmp_path / "one", tmp_path / "two"


def test_a_data_folder_without_a_shared_lake_says_so(baton: Baton, tmp_path: Path) -> None:
    found = baton("--data", tmp_path, "lake", "status")
    assert (found.code, found.err) == (
        2, "baton: no shared lake is declared: set url in [lake] of deployment.toml (docs/lake.md)\n",
    )  # fmt: skip


def test_two_data_folders_share_what_they_ingest(baton: Baton, two: tuple[Path, Path], tmp_path: Path) -> None:
    if find_spec("deltalake") is None:
        skip_or_fail("lake", "the extra `lake` is not installed")
    one, other = two
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join([HEADER, ROW.format(id=1, state="COMPLETED", day=1, nodes=1)]) + "\n")
    assert baton("--data", one, "ingest", dump, "--cluster", "lab").code == 0
    answer = baton("--data", other, "lake", "status")
    assert "lab: 1 file, 0 retired; 1 to pull, 0 to push; never pulled\n" in answer.out, answer
    assert baton("--data", other, "lake", "pull", "--json").json == {"version": 1, "fetched": 1, "retired": 0}
    assert "version 1: 0 files sent" in baton("--data", other, "lake", "push").out
    assert baton("--data", other, "lake", "publish", "--json").json["version"] == 1
    assert baton("--data", one, "lake", "fetch").code == 0
    assert warehouse.read(DataFolder(one), "SELECT count(*) AS jobs FROM jobs")["jobs"].item() == 1
    assert baton("--data", one, "lake", "vacuum").out == "0 partitions and 0 files removed\n"
    refused = baton("--data", one, "lake", "vacuum", "--keep", "1h")
    assert (refused.code, refused.err) == (
        2, "baton: --keep '1h' is shorter than a day: a push may still be running\n",
    )  # fmt: skip
    (tmp_path / "shared").rename(tmp_path / "away")
    unseen = baton("--data", other, "ingest", dump, "--cluster", "new")
    assert unseen.code == 2 and "there is no such folder" in unseen.err
    assert not (other / "lake/new").exists(), "refused before anything was read"
