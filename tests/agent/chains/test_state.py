"""The chain's folder: who may read it, who holds its lock, and which file is no state."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.chains.state import Busy, ChainState, Folder, LinkAttempt

STATE = ChainState(
    "0123abcd", "train", "/job.sh", 3, (LinkAttempt(1, 1, "train-0123abcd-1.1", 5, job_id="7", start_s=9),)
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "chains" / "of me" / "train")
    made.make()
    return made


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_folder_is_made_with_all_above_it_for_its_user_alone(folder: Folder) -> None:
    folder.make()  # again
    folder.lock()
    folder.unlock()
    assert (mode(folder.path), mode(folder.for_jobs), mode(folder.path / "lock")) == (0o700, 0o700, 0o600)


def test_what_is_saved_is_read_again(folder: Folder) -> None:
    assert folder.load() is None
    folder.save(STATE)
    assert folder.load() == STATE
    assert sorted(path.name for path in folder.path.iterdir()) == ["chain", "state.json"]


def test_a_state_is_on_disk_before_it_takes_the_place_of_the_old_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the folder's entry is, when `save` returns."""
    done: list[str] = []
    rename = os.replace

    def replaced(source: Path, target: Path) -> None:
        done.append("replace")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(
        os, "fsync", lambda fd: done.append("file" if os.path.isfile(f"/proc/self/fd/{fd}") else "folder")
    )
    folder.save(STATE)
    assert done == ["file", "replace", "folder"]


def test_a_state_that_cannot_be_written_leaves_the_old_one(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.save(STATE)

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        folder.save(replace(STATE, status="done"))
    assert folder.load() == STATE
    assert sorted(path.name for path in folder.path.iterdir()) == ["chain", "state.json"]


def test_who_finds_the_lock_taken_waits_so_long_and_leaves_nothing_open(folder: Folder) -> None:
    folder.lock()
    other, waits, before = Folder(folder.path), list[float](), len(os.listdir("/proc/self/fd"))
    with pytest.raises(Busy, match=f"another agent keeps this chain: process {os.getpid()} on"):
        other.lock(1.0, waits.append)
    assert sum(waits) == 1.0
    assert len(os.listdir("/proc/self/fd")) == before
    folder.unlock()
    folder.unlock()  # once is enough
    other.lock(0.0, waits.append)
    assert sum(waits) == 1.0
    other.unlock()


def test_a_lock_that_is_given_back_meanwhile_is_taken(folder: Folder) -> None:
    folder.lock()
    other = Folder(folder.path)
    other.lock(5.0, lambda seconds: folder.unlock())
    with pytest.raises(Busy):
        folder.lock(0.0)
    other.unlock()


ONE: dict[str, Any] = {"link": 1, "number": 1, "name": "train-0123abcd-1.1", "intended_s": 5}


def test_a_state_that_is_nested_without_end_is_refused(folder: Folder) -> None:
    folder.make()
    folder.file.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="invalid state of a chain"):
        folder.load()


def test_a_lock_on_a_full_disk_holds_and_says_of_nobody(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, content: bytes, at: int) -> int:
        raise OSError(28, "No space left on device")

    folder.make()
    monkeypatch.setattr("os.pwrite", full)
    folder.lock()
    with pytest.raises(Busy, match=r"another agent keeps this chain$"):
        Folder(folder.path).lock(0.0)
    folder.unlock()


@pytest.mark.parametrize(
    "changes",
    [
        {"state_version": 2},
        {"chain": "0123ABCD"},
        {"chain": "0123abcd0"},
        {"links": "3"},
        {"links": True},
        {"unknown": 1},
        {"attempts": [ONE | {"name": "a name"}]},
        {"attempts": [ONE | {"name": ""}]},
        {"attempts": [ONE | {"name": "x" * 81}]},
        {"attempts": [ONE | {"start_s": "9"}]},
        {"attempts": [ONE | {"is_pending": 1}]},
        {"attempts": [{"link": 1}]},
        {"attempts": [7]},
    ],
)
def test_what_is_no_state_is_refused_in_one_line(folder: Folder, changes: dict[str, Any]) -> None:
    kept = {
        "state_version": 1,
        "chain": "0123abcd",
        "name": "train",
        "script": "/job.sh",
        "links": 3,
        "attempts": [ONE],
    }
    folder.file.write_text(json.dumps(kept))
    assert folder.load() is not None
    folder.file.write_text(json.dumps(kept | changes))
    with pytest.raises(ValueError, match=r"state\.json: invalid state of a chain: ") as error:
        folder.load()
    assert "\n" not in str(error.value)
