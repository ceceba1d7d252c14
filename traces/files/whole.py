"""Files that are written whole or not at all: beside their place first, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traces.errors import InputError, of_system


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it is renamed to `path` when the block ends without an exception.

    A device or a pipe is not replaced: there `path` itself is what to write to. Folders above `path` are made. Raises
    InputError where `path` is a folder or cannot be made, and WorkError where the system gives out while it is written.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    part = None
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        yield part
        part.replace(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{path}: {error.filename} is a file, not a folder; name another place") from error
    except OSError as error:
        if error.filename in (None, str(part), str(path)):  # else it is of what was read meanwhile
            error.filename = str(path)
        raise of_system(error) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def sweep(folder: Path) -> None:
    """Remove what killed writers have left half written in the folder; to be called by who alone may write there."""
    for part in folder.glob(".*.part*"):  # with what SQLite keeps beside its files
        part.unlink(missing_ok=True)
