"""Locks of a data folder: between processes, between threads, nested, and after the death of who held one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from traces.errors import WorkError
from traces.files import locks
from traces.files.locks import locked

REPOSITORY = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from traces.files.locks import locked
with locked(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(root: Path, purpose: str = "lake", *more: str) -> subprocess.Popen[str]:
    """A process that holds the lock until it gets a line, or dies."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root), purpose, *more], cwd=REPOSITORY, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_the_second_waits_and_says_once_for_whom(tmp_path: Path) -> None:
    first, said = holder(tmp_path), list[str]()

    def let_go(line: str) -> None:
        said.append(line)
        assert first.stdin
        first.stdin.write("\n")
        first.stdin.close()

    with locked(tmp_path, "lake", say=let_go):
        assert first.wait(10) == 0, "it had to be out before this one was in"
    (line,) = said
    assert line.startswith(f"waiting for the lake of {tmp_path}: process {first.pid} (")
    assert line.endswith(" UTC")


def test_a_wait_may_be_bounded(tmp_path: Path) -> None:
    first = holder(tmp_path)
    try:
        found = pytest.raises(WorkError, match=rf"lake of .* is not free after 0.3 s: process {first.pid} ")
        with found, locked(tmp_path, "lake", wait_s=0.3, say=lambda _: None):
            pytest.fail("two at once")
    finally:
        end(first)


def test_the_dead_hold_nothing(tmp_path: Path) -> None:
    first = holder(tmp_path)
    began, said = time.monotonic(), list[str]()

    def kill(line: str) -> None:
        said.append(line)
        end(first)

    with locked(tmp_path, "lake", say=kill):
        assert time.monotonic() - began < 5
    with locked(tmp_path, "lake", wait_s=0, say=said.append):
        pass
    assert len(said) == 1, "free again, so nothing to wait for"


def test_a_child_of_the_dead_holds_nothing(tmp_path: Path) -> None:
    held = HOLD.replace("sys.stdin.readline()", "import os, time; child = os.fork() or time.sleep(60); os._exit(0)")
    script = held.replace("os._exit(0)", "print(child, flush=True); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), "lake"], cwd=REPOSITORY, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    child = int(process.stdout.readline())
    end(process)
    try:
        with locked(tmp_path, "lake", wait_s=5, say=lambda _: None):
            os.kill(child, 0)  # it still lives
    finally:
        os.kill(child, 9)


def test_nested_in_one_thread_and_apart_between_two(tmp_path: Path) -> None:
    order: list[str] = []
    waits = threading.Event()

    def other() -> None:
        with locked(tmp_path, "lake", say=lambda _: waits.set()):
            order.append("other")

    (tmp_path / "link").symlink_to(tmp_path)
    with locked(tmp_path, "lake", say=order.append):
        with locked(tmp_path / "link", "lake", wait_s=1, say=order.append):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


def test_another_purpose_and_another_folder_are_free(tmp_path: Path) -> None:
    first = holder(tmp_path / "a")
    try:
        for folder, purpose in (("a", "release"), ("b", "lake")):
            with locked(tmp_path / folder, purpose, wait_s=0, say=pytest.fail):
                pass
    finally:
        end(first)


def test_what_the_holder_is_called_does_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    first, said = holder(tmp_path, "lake", "\x1b[31m\n", "x" * 1000), list[str]()
    try:
        with pytest.raises(WorkError), locked(tmp_path, "lake", wait_s=0, say=said.append):
            pytest.fail("two at once")
    finally:
        end(first)
    assert said[0].isprintable() and "\\x1b[31m\\n" in said[0]
    assert len(said[0]) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("content", ["", "null", '{"pid": 1}', "\x00" * 10])
def test_a_lock_file_that_says_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "lock"
    path.write_text(content)
    assert locks._holder(path) == "another process holds it"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / locks.FOLDER).write_text("a file in the way")
    with pytest.raises(WorkError, match=r"/\.locks/lake: cannot be locked \(.*\)"), locked(tmp_path, "lake"):
        pytest.fail("locked nothing")
