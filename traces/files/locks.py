"""Locks of a data folder, for work that two processes must not do at the same time.

A lock is an flock(2) on a file of `DATA/.locks`, taken with the library filelock. The kernel frees it when its holder
dies, so no lock is ever stale. The file remains and names its latest holder. Readers take no lock, because the files
that they read are replaced in one step.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from traces.errors import WorkError
from traces.progress import say as _say
from traces.visible import visible

FOLDER = ".locks"  # in the data folder
POLL_S = 0.1
_COMMAND_CHARACTERS = 200  # of the holder's command in a message


@contextlib.contextmanager
def locked(
    root: Path, purpose: str, *, wait_s: float | None = None, say: Callable[[str], None] = _say
) -> Iterator[None]:
    """Hold the lock of a data folder for a purpose ("lake", "release", ...), in one thread of one process at a time.

    A thread may nest it. If another process holds the lock, `say` gets one line with the holder and the time since.
    Then this waits for at most `wait_s` seconds (None: without limit). Raises WorkError when that time is over, and
    where the file system does not support locks.
    """
    from filelock import FileLock, Timeout

    path = root.resolve() / FOLDER / purpose
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(
            path, poll_interval=POLL_S, is_singleton=True, preserve_lock_file=True, on_acquired=_write_holder
        )
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"waiting for the {purpose} of {root}: {_holder(path)}")
            lock.acquire(timeout=-1 if wait_s is None else wait_s)
    except Timeout:
        raise WorkError(f"the {purpose} of {root} is not free after {wait_s:g} s: {_holder(path)}") from None
    except OSError as error:
        raise WorkError(f"{path}: cannot be locked ({error.strerror or error})") from error
    try:
        yield
    finally:
        lock.release()


def _write_holder(descriptor: int) -> None:
    """Write this process, its command and the time (UTC) into the lock file, for waiting processes. May fail safely."""
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "since_utc": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
    }
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _holder(path: Path) -> str:
    """Describe the holder of the lock, from its file."""
    try:
        holder = json.loads(path.read_bytes())
        pid, host, command, since = holder["pid"], holder["host"], holder["command"], holder["since_utc"]
    except (OSError, ValueError, KeyError, TypeError):
        return "another process holds it"
    where = "" if host == socket.gethostname() else f" on {host}"
    shown = command if len(command) <= _COMMAND_CHARACTERS else command[:_COMMAND_CHARACTERS] + "..."
    return visible(f"process {pid}{where} ({shown}) has held it since {since} UTC")
