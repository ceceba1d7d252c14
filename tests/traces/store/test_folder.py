"""Who may read a data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces.store import folder as module
from traces.store.folder import SHARED, DataFolder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_is_private_and_an_existing_one_stays_as_it_is(tmp_path: Path) -> None:
    new, old = DataFolder(tmp_path / "a" / "new"), DataFolder(tmp_path / "old")
    old.root.mkdir(mode=0o750)
    for data in (new, old):
        data.ensure_writable()
    assert (mode(new.root), mode(old.root), mode(tmp_path / "a")) == (0o700, 0o750, 0o755)


def test_the_default_folder_becomes_private_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEFAULT", tmp_path / "data")
    data = DataFolder(tmp_path / "data")
    data.root.mkdir(mode=0o755)
    data.ensure_writable()
    assert mode(data.root) == 0o700
    data.lake.mkdir()
    data.root.chmod(0o755)  # its user decided
    data.ensure_writable()
    assert mode(data.root) == 0o755


def test_shared_lets_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DataFolder(tmp_path / "data").ensure_writable()
    monkeypatch.setenv(SHARED, "1")
    DataFolder(tmp_path / "data").ensure_writable()
    assert mode(tmp_path / "data") == 0o755
