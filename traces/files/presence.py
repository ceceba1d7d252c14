"""Detect whether a process is working in a folder, so that leftovers of killed processes are removed only when safe.

Each working process holds a shared flock(2) on a hidden file of the folder. A process that cleans up tries to take an
exclusive lock. The kernel frees the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = ".at-work"


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Mark this process as working in the folder inside the block. Waits while another process cleans up."""
    with (folder / FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def nobody_at_work(folder: Path) -> Iterator[bool]:
    """Yield whether no process is working in the folder. If so, none can begin to inside the block."""
    with (folder / FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
