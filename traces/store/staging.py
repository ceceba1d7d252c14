"""How a raw file's folder gets into the lake and out of it: a run killed at any moment leaves the last good state.

A folder is written under a hidden name and takes its place in one step, also over an older one. The hidden name holds
a random word that belongs to the process that writes, such as `.3f2a9c0d1b4e5f60.work.0`. As long as the process
lives, it holds a lock on `.locks/3f2a9c0d1b4e5f60.work`; the kernel frees the lock when the process dies. `sweep`
removes what has the word of a lock that nobody holds. A process id in place of the word would not do: that of another
container or host looks dead from here."""

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
_at_work: dict[tuple[int, Path], tuple[str, int, int]] = {}  # (process id, data folder): name, descriptor, how often
_guard = threading.Lock()
_numbers = itertools.count()


@contextmanager
def at_work(root: Path) -> Iterator[str]:
    """Hold a random word that is this process's alone, for the hidden names of what it writes in that data folder.

    Nested, and in other threads, it is the same one. Raises OSError where the folder cannot be written.
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
    """A new random word, and the open file whose lock it holds."""
    name = secrets.token_hex(8)
    path = _lock_file(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # swept between the two


def _lock_file(root: Path, name: str) -> Path:
    return root / locks.FOLDER / f"{name}.work"


@contextmanager
def workplace(root: Path, beside: Path) -> Iterator[Path]:
    """Yield a hidden path in `beside` at which to make folders that then move into `beside`; removed at the end."""
    with at_work(root) as name:
        place = beside / f".{name}.work.{next(_numbers)}"
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def spill_folder(root: Path, name: str) -> Path:
    """Where a process at work under that name may keep what does not fit in memory."""
    return root / f".{name}.spill"


def sweep(root: Path, lake: Path) -> list[str]:
    """Remove what dead processes have left in a data folder under hidden names; returns those names."""
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
    """Remove what is left and the lock's file, unless somebody holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:  # another user's, who may well be at work
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
    """Put a folder in its place in one step; an older one there ends up under the temporary name, and is removed.

    rename(2) replaces no folder that holds something; renameat2(2) with RENAME_EXCHANGE swaps the two. Raises WorkError
    where the file system can do neither.
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
    """Remove folders of older contents of files: `sources` gives each file's present digest by its absolute path.

    A digest in `kept` stays, whatever path it was read from: another file of the same run holds it. What goes is moved
    into `place` (of `workplace`) first, in one step. Returns the digests removed.
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
