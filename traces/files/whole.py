"""Files that are written completely or not at all: first under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traces.errors import InputError, of_system


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; it is renamed to `path` if the block ends without an exception.

    A device or a pipe is not replaced: for these, `path` itself is yielded. Parent folders are made. Raises InputError
    if `path` is a folder or cannot be made, and WorkError if writing fails for another reason, such as a full disk.
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
        raise InputError(f"{path}: {error.filename} is a file, not a folder; give another path") from error
    except OSError as error:
        if error.filename in (None, str(part), str(path)):  # otherwise the error is of a file read in the block
            error.filename = str(path)
        raise of_system(error) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file completely or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def sweep(folder: Path) -> None:
    """Remove partial files of killed writers. The caller must be the only process that may write in the folder."""
    for part in folder.glob(".*.part*"):  # also matches SQLite's side files
        part.unlink(missing_ok=True)
