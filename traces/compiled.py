"""Compiled functions and their disk cache, shared by all packages.

Numba names its cache after the path of the file that defines a function. So another checkout compiles everything again,
and numba misses a change in a function that is imported from another file. Here the cache folder is named after a
digest of the import closure of the defining module (`traces.cache.closure`). A change in any of these modules starts an
empty cache, and all checkouts of the same code share one. The folder is in the user's cache directory, outside the
repository. Where that directory cannot be written, nothing is cached and each process compiles for itself. A message
on standard error announces a compilation that takes long.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from numba.core import event
from numba.core.caching import UserProvidedCacheLocator

from traces.cache.closure import code_digest
from traces.cache.sources import user_cache

_config: Any = numba.core.config  # numba fills this module at run time, so type checkers do not know its names
Function = TypeVar("Function", bound=Callable[..., Any])
DIGITS = 16  # digits of the digest in a folder's name
SAID_AFTER_S = 5.0  # compiling time before the message
_WORDS = {"simulator": "the simulator", "features": "the analytics", "traces": "the readers", "models": "the models"}


class SharedLocator(UserProvidedCacheLocator):
    """Cache locator that names a function's folder after its module, not after the path of the module's file."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        self._cache_path = os.path.join(_config.CACHE_DIR, py_func.__module__)

    def get_source_stamp(self) -> str:
        """Return an empty stamp: the folder is named after the code, and two checkouts may differ in a comment."""
        return ""


class _Patience(event.Listener):
    """Print a message when numba compiles for longer than SAID_AFTER_S, once for each outermost function."""

    def __init__(self) -> None:
        self.depth = 0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            function = event.data["dispatcher"].py_func
            self.timer = threading.Timer(SAID_AFTER_S, _say, (function.__module__,))
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()


def _say(module: str) -> None:
    what = _WORDS.get(module.partition(".")[0], "the program")
    sys.stderr.write(f"compiling {what} for this processor (only once; the result is cached)\n")
    sys.stderr.flush()


event.register("numba:compile", _Patience())  # type: ignore[no-untyped-call]


def jit(function: Function, options: dict[str, Any], signature: str | None = None, by: str = __name__) -> Function:
    """Compile a function with `numba.njit` and the options, cached as the module's docstring describes.

    With a signature the function is compiled at once. `by` is the module that requests the compilation; its code is
    part of the cache key. Compiled code releases the GIL unless the options say otherwise, so other threads can run.
    """
    folder = cache_folder(function.__module__, by)
    before = _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES  # restored below: other libraries use these settings too
    try:
        if folder is not None:
            _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = str(folder), f"{__name__}.{SharedLocator.__name__}"
        njit: Any = numba.njit
        decorate = njit(*([signature] if signature else []), **{"cache": folder is not None, "nogil": True, **options})
        return cast(Function, decorate(function))
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


@cache
def cache_folder(*modules: str) -> Path | None:
    """Return the cache folder for code compiled from the current version of these modules.

    None where it cannot be written, and for modules outside Baton's packages, whose closure is unknown.
    """
    try:
        digest = code_digest(*modules)
    except ModuleNotFoundError:
        return None
    return user_cache(f"numba/{digest[:DIGITS]}")
