"""Open and replace files safely: regular files only, so that no pipe makes the agent wait.

`agent.model_folder.read_file` reads them. It is there because a released model carries that module alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def open_regular(path: Path | str, flags: int, mode: int = 0o666) -> int:
    """Open a regular file without waiting and return its descriptor. Raises OSError, also for any other kind of file.

    It fits `open(..., opener=open_regular)`. `mode` is the permission of a new file, before the umask.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    except OSError:
        os.close(fd)
        raise
    return fd


def replace_file(path: Path, text: str) -> None:
    """Write a temporary file next to `path`, sync it to disk, and rename it to `path`.

    Raises OSError, which names the file. After an error the path holds the old file, or the new one, which a crash of
    the machine may still undo.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # of a killed process; a new file is never a pipe or a link
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        with _opened(path.parent) as folder:
            os.fsync(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)
