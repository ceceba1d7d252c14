"""Compiled functions and their disk cache, for whatever package has them.

Numba keys its cache by the modification time of the file that defines a function and does not see that a function
imported from another file changed. Here the cache folder is named after a digest of every source that holds compiled
code of one kind, so a change of any of them starts an empty one. The folder lies in the user's cache directory, outside
the repository; where that cannot be written nothing is cached and each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config

_config: Any = numba.core.config  # numba fills this module at run time, so no checker knows its names
Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function, sources: Sequence[str], options: dict[str, Any], signature: str | None = None) -> Function:
    """`numba.njit` with the options, cached under the digest of the sources; at once where a signature is given."""
    folder = cache_folder(tuple(sources))
    before = _config.CACHE_DIR  # read by numba at decoration; other libraries in the process keep their own
    try:
        if folder is not None:
            _config.CACHE_DIR = str(folder)
        njit: Any = numba.njit
        decorate = njit(*([signature] if signature else []), **{"cache": folder is not None, **options})
        return cast(Function, decorate(function))
    finally:
        _config.CACHE_DIR = before


@cache
def cache_folder(sources: tuple[str, ...]) -> Path | None:
    """The folder of compiled code for the present sources, or None where it cannot be written."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "baton" / "numba" / source_digest(sources)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None


def source_digest(sources: Sequence[str], root: Path | None = None) -> str:
    """Digest of the names and bytes of the sources (patterns) under `root` (default: this installation)."""
    root = root or Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for pattern in sources:
        for path in sorted(root.glob(pattern)):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]
