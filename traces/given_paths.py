"""Paths as people give them: made absolute, and refused in one line where nothing can come of them."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

from traces.errors import InputError, of_system
from traces.visible import visible

MOST_TEXT_BYTES = 1 << 26
# DuckDB takes what follows a ? for options of the file and a \ in a pattern for a /, Dagster's store (by way of
# SQLAlchemy) %41 for A.
_MISREAD = re.compile(r"\?|\\|%[0-9A-Fa-f]{2}")


def resolved(path: Path) -> Path:
    """The absolute path with links followed. Raises InputError where they lead round in a circle."""
    try:
        return path.resolve()
    except RuntimeError:  # what pathlib makes of it before Python 3.13
        raise InputError(f"{path}: {os.strerror(errno.ELOOP)}: the link leads back to itself") from None


def data_root(path: Path) -> Path:
    """Where a data folder lies. Raises InputError for a path that the databases in it could not be opened by."""
    root = resolved(path)
    name = str(root)
    if visible(name) != name:
        raise InputError(f"data folder {path}: its path must be UTF-8 and without control characters: give another")
    if (misread := _MISREAD.search(name)) is not None:
        raise InputError(
            f"data folder {path}: its path must be without {misread[0]!r}, which DuckDB and Dagster would read as "
            "something else: give another"
        )
    return root


def check_writable(folder: Path, what: str) -> None:
    """Make the folder and write a byte in it; `what` it is begins the message where that fails.

    Raises InputError where another folder would do, and WorkError for a full disk and the like.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0")
    except OSError as error:
        why = f"{what} {folder}: no folder that can be written ({error.strerror}): name another"
        raise type(of_system(error))(why) from error


def bytes_of(path: Path, *, pipes: bool = True) -> bytes:
    """The bytes of a small text file about a cluster (slurm.conf, clusters.toml), or of a pipe where `pipes` allows it.

    Raises FileNotFoundError, and InputError where it is a device, holds over MOST_TEXT_BYTES or cannot be read.
    """
    try:
        if path.is_char_device() or path.is_block_device() or (path.is_fifo() and not pipes):
            raise InputError(f"{path}: cannot be read: it is a device or a pipe, not a file")
        with path.open("rb") as stream:
            content = stream.read(MOST_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MOST_TEXT_BYTES:
        raise InputError(f"{path}: over {MOST_TEXT_BYTES >> 20} MiB: is it the right file?")
    return content


def exists(path: Path) -> bool:
    """Whether the path exists. Raises InputError where that cannot be determined: no permission, too long a name."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return True
