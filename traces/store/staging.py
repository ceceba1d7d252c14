"""Move folders of raw files into and out of the lake atomically; a run killed at any moment leaves the last good state.

A folder is written under a hidden name and then moved to its place in one step, even over an older folder. The hidden
name contains a random word that belongs to the writing process, such as `.3f2a9c0d1b4e5f60.work.0`. While the process
lives, it holds a lock on `.locks/3f2a9c0d1b4e5f60.work`; the kernel frees the lock when the process dies. `sweep`
removes folders whose lock no process holds. A process id would not work instead of the word, because the process of
another container or host would look dead.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.errors import WorkError
from traces.files import locks
from traces.store import raw_files

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <linux/fcntl.h>, <linux/fs.h>
_UNFINISHED = re.compile(r"\.(?P<name>[0-9a-f]{16})\.(work|spill)(\.\d+)?")
_at_work: dict[tuple[int, Path], tuple[str, int, int]] = {}  # (process id, data folder): name, descriptor, nesting
_guard = threading.Lock()
_numbers = itertools.count()


@contextmanager
def at_work(root: Path) -> Iterator[str]:
    """Hold a random word unique to this process, for the hidden names of its files in that data folder.

    Nested calls and other threads get the same word. Raises OSError where the folder cannot be written.
    """
    key = (os.getpid(), root.resolve())
    with _guard:
        name, descriptor, times = _at_work.get(key) or (*_named(root), 0)
        _at_work[key] = name, descriptor, times + 1
    try:
        yield name
    finally:
        with _guard:
            name, descriptor, times = _at_work.pop(key)
            if times > 1:
                _at_work[key] = name, descriptor, times - 1
            else:
                _lock_file(root, name).unlink(missing_ok=True)
                os.close(descriptor)


def _named(root: Path) -> tuple[str, int]:
    """Choose a new random word; return it and the descriptor of its locked file."""
    name = secrets.token_hex(8)
    path = _lock_file(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # another process swept the file before it was locked


def _lock_file(root: Path, name: str) -> Path:
    return root / locks.FOLDER / f"{name}.work"


@contextmanager
def workplace(root: Path, parent: Path) -> Iterator[Path]:
    """Yield a hidden path in `parent` for folders that are to be moved into `parent`; it is removed at the end."""
    with at_work(root) as name:
        place = parent / f".{name}.work.{next(_numbers)}"
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def spill_folder(root: Path, name: str) -> Path:
    """Return the spill folder of the process with that random word."""
    return root / f".{name}.spill"


def sweep(root: Path, lake: Path) -> list[str]:
    """Remove hidden files and folders that dead processes left in a data folder; return their names."""
    paths_of: dict[str, list[Path]] = {path.stem: [] for path in (root / locks.FOLDER).glob("*.work")}
    for path in (*root.glob(".*"), *lake.glob("*/.*")):
        if match := _UNFINISHED.fullmatch(path.name):
            paths_of.setdefault(match["name"], []).append(path)
    return [
        path.name
        for name, leftovers in paths_of.items()
        if _clear(_lock_file(root, name), leftovers)
        for path in leftovers
    ]


def _clear(lock: Path, leftovers: Iterable[Path]) -> bool:
    """Remove the leftovers and the lock file, unless a process holds the lock; return whether they were removed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:  # belongs to another user, whose process may be running
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in leftovers:
            shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            lock.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def publish(temporary: Path, final: Path) -> None:
    """Move a folder to its place in one step; an older folder there is swapped out and removed.

    rename(2) cannot replace a folder that is not empty; renameat2(2) with RENAME_EXCHANGE swaps the two. Raises
    WorkError where the file system supports neither.
    """
    if not final.exists():
        temporary.rename(final)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, bytes(temporary), _AT_FDCWD, bytes(final), _RENAME_EXCHANGE):
        reason = os.strerror(ctypes.get_errno())
        raise WorkError(f"{final}: cannot be replaced in one step ({reason}): delete it and ingest the file again")
    shutil.rmtree(temporary, ignore_errors=True)


def retire(folder: Path, sources: Mapping[str, str], kept: Iterable[str], place: Path) -> list[str]:
    """Remove the folders of earlier contents of files; `sources` gives each file's current digest by absolute path.

    A folder whose digest is in `kept` stays, because a file of the current run has it. A folder is first moved into
    `place` (of `workplace`) in one step. Returns the digests removed.
    """
    present, removed = set(kept), []
    for side in sorted(folder.glob(f"[!.]*/{raw_files.NAME}")):
        described = raw_files.read(side.parent)
        if described is None:
            continue
        source, digest = described.get("source"), described["sha256"]
        if sources.get(str(source), digest) != digest and digest not in present:
            place.mkdir(exist_ok=True)
            side.parent.rename(place / side.parent.name)
            removed.append(digest)
    return removed
