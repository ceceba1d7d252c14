"""The chain's folder: who may read it, who holds its lock, and which file is no state."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.chains import status
from agent.chains.journal import Journal
from agent.chains.state import Busy, ChainState, Folder, LinkAttempt
from agent.slurm.numbers import MOST_COUNT, UNLIMITED_S
from tests.agent.lab import chain_of

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
        {"attempts": [ONE, ONE]},
        {"attempts": [ONE | {"end_s": 10**30}]},
        {"attempts": [ONE | {"start_s": 10**17}]},
        {"attempts": [ONE | {"intended_s": -1}]},
        {"attempts": [ONE | {"link": 0}]},
        {"attempts": [ONE | {"exit_status": 70_000}]},
        {"attempts": [ONE | {"job_id": "--signal=9"}]},
        {"attempts": [ONE | {"how": "\x1b[2J"}]},
        {"attempts": [ONE | {"after": "singleton"}]},
        {"attempts": [ONE | {"reason": "x" * 10_001}]},
        {"status": "asleep"},
        {"name": "a\nb"},
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


def test_what_an_agent_may_save_is_within_the_bounds_of_what_it_reads(folder: Folder) -> None:
    """A start at the last second that Slurm can print, with the longest limit; a reason of any characters."""
    start_s = MOST_COUNT
    last = LinkAttempt(
        1000, 10_000, "a" * 40 + "-0123abcd-1000.10000", start_s, f"after:{MOST_COUNT}+525600", str(MOST_COUNT),
        start_s, start_s, start_s + UNLIMITED_S, "\x1b\udcff" * 100, False, "why", "OUT_OF_MEMORY", 65_535, True, 99,
    )  # fmt: skip
    state = replace(STATE, attempts=(last,), why="x" * 300)
    folder.save(state)
    loaded = folder.load()
    assert loaded is not None and loaded.attempts[0].end_s == last.end_s
    status.table(loaded, start_s)


@pytest.mark.timed
@pytest.mark.parametrize("name", ["state.json", ".state.json.new", "lock"])
def test_a_pipe_in_place_of_a_file_is_refused_or_replaced_and_never_waited_for(folder: Folder, name: str) -> None:
    os.mkfifo(folder.path / name)
    if name == "state.json":
        with pytest.raises(ValueError, match=r"state\.json is not a regular file"):
            folder.load()
    elif name == "lock":
        with pytest.raises(OSError, match="not a regular file"):
            folder.lock(0.0)
        assert folder.holder() == {}
    folder.save(STATE)
    assert folder.load() == STATE


def test_a_pipe_in_place_of_the_journal_is_a_problem_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "decisions.jsonl")
    problem = Journal(tmp_path / "decisions.jsonl").write(1, "0123abcd", [{"event": "note"}])
    assert problem is not None and "1 line is not written yet" in problem


def test_where_there_are_no_locks_the_error_names_the_file(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="No locks available") as caught:
        folder.lock()
    assert caught.value.filename == str(folder.path / "lock") and len(os.listdir("/proc/self/fd")) == before
    chain = chain_of(tmp_path)
    arguments = ["run", str(chain.script), "--links", "2", "--artifact", str(chain.artifact), "--state"]
    assert cli.main([*arguments, str(tmp_path / "s")]) == 2
    assert capsys.readouterr().err == f"baton-agent: {tmp_path}/s/lock: No locks available\n"


def test_a_lock_that_is_removed_while_it_is_taken_is_not_held(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock
    removed = iter([True])

    def late(fd: int, operation: int) -> None:
        flock(fd, operation)
        if next(removed, False):
            (folder.path / "lock").unlink()

    monkeypatch.setattr(fcntl, "flock", late)
    folder.lock(1.0, lambda seconds: None)
    with pytest.raises(Busy):
        Folder(folder.path).lock(0.0)
    assert folder.hold()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_lock_that_cannot_be_compared_is_kept(folder: Folder, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    folder.lock()
    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", lambda path: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
        with pytest.raises(OSError, match=os.strerror(number)):
            folder.hold()
    with pytest.raises(Busy):
        Folder(folder.path).lock(0.0)
    assert folder.hold()
