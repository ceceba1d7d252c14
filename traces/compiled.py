"""Compiled functions and their disk cache, for whatever package has them.

Numba names its cache after the place of the file that defines a function, so another checkout compiles all of it
again, and does not see that a function imported from another file changed. Here the cache folder is named after a
digest of every source that holds compiled code of one kind: a change of any of them starts an empty one, and every
checkout of the same sources shares one. The folder lies in the user's cache directory, outside the repository; where
that cannot be written nothing is cached and each process compiles for itself. Compiling that takes long says so on
standard error.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from numba.core import event
from numba.core.caching import UserProvidedCacheLocator

_config: Any = numba.core.config  # numba fills this module at run time, so no checker knows its names
Function = TypeVar("Function", bound=Callable[..., Any])
SAID_AFTER_S = 5.0  # of compiling


class SharedLocator(UserProvidedCacheLocator):
    """Names the folder of a function's compiled form after its module, not after where the module's file lies."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        self._cache_path = os.path.join(_config.CACHE_DIR, py_func.__module__)


class _Patience(event.Listener):
    """Says that numba is compiling where that takes longer than SAID_AFTER_S, once for each outermost function."""

    def __init__(self) -> None:
        self.depth = 0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            function = event.data["dispatcher"].py_func
            self.timer = threading.Timer(SAID_AFTER_S, _say, (f"{function.__module__}.{function.__qualname__}",))
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()


def _say(name: str) -> None:
    sys.stderr.write(f"compiling {name} for this processor; it is kept, the next time takes no time\n")
    sys.stderr.flush()


event.register("numba:compile", _Patience())  # type: ignore[no-untyped-call]


def jit(function: Function, sources: Sequence[str], options: dict[str, Any], signature: str | None = None) -> Function:
    """`numba.njit` with the options, cached under the digest of the sources; at once where a signature is given.

    It runs without the interpreter's lock unless the options say otherwise, so that other threads go on beside it.
    """
    folder = cache_folder(tuple(sources))
    before = _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES  # read at decoration; other libraries keep their own
    try:
        if folder is not None:
            _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = str(folder), f"{__name__}.{SharedLocator.__name__}"
        njit: Any = numba.njit
        decorate = njit(*([signature] if signature else []), **{"cache": folder is not None, "nogil": True, **options})
        return cast(Function, decorate(function))
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


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
