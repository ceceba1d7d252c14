"""Paths given by the user: made absolute, or refused with a one-line error where they cannot work."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

from traces.errors import InputError, of_system
from traces.visible import visible

MOST_TEXT_BYTES = 1 << 26
# DuckDB reads text after a ? as options of the file, and a \ in a pattern as a /. Dagster's store (through SQLAlchemy)
# reads %41 as A.
_MISREAD = re.compile(r"\?|\\|%[0-9A-Fa-f]{2}")


def resolved(path: Path) -> Path:
    """Return the absolute path with links followed. Raises InputError for a circular link."""
    try:
        return path.resolve()
    except RuntimeError:  # how pathlib reports a circular link before Python 3.13
        raise InputError(f"{path}: {os.strerror(errno.ELOOP)}: the link leads back to itself") from None


def data_root(path: Path) -> Path:
    """Return the absolute path of a data folder. Raises InputError for a path that DuckDB or Dagster cannot open."""
    root = resolved(path)
    name = str(root)
    if visible(name) != name:
        raise InputError(f"data folder {path}: its path must be UTF-8 without control characters: give another path")
    if (misread := _MISREAD.search(name)) is not None:
        raise InputError(
            f"data folder {path}: its path must not contain {misread[0]!r}, which DuckDB or Dagster would misread: "
            "give another path"
        )
    return root


def check_writable(folder: Path, what: str) -> None:
    """Make the folder and write a byte into it. An error message begins with `what`, a name for the folder.

    Raises InputError where another folder would help, and WorkError for a full disk and similar failures.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0")
    except OSError as error:
        why = f"{what} {folder}: cannot be written as a folder ({error.strerror}): give another folder"
        raise type(of_system(error))(why) from error


def bytes_of(path: Path, *, pipes: bool = True) -> bytes:
    """Read a small text file about a cluster (slurm.conf, clusters.toml), or a pipe where `pipes` allows it.

    Raises FileNotFoundError, and InputError for a device, a file over MOST_TEXT_BYTES and an unreadable file.
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
    """Return whether the path exists. Raises InputError where that is unknown: no permission, or too long a name."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return True
