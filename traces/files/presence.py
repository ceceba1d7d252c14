"""Whether any process is at work in a folder, so that what a killed one has left behind is removed only when none is.

Each process at work holds a shared flock(2) on a hidden file of the folder; whoever wants to clear up tries for an
exclusive one. The kernel frees the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = ".at-work"


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """While in here this process counts as being at work in the folder. Waits while somebody clears up."""
    with (folder / FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def nobody_at_work(folder: Path) -> Iterator[bool]:
    """Whether nobody is at work in the folder; if so, nobody can begin to be while in here."""
    with (folder / FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
