"""Compiled functions and their disk cache, for whatever package has them.

Numba names its cache after the place of the file that defines a function, so another checkout compiles all of it
again, and does not see that a function imported from another file changed. Here the cache folder of a function is named
after the digest of the import closure of the module that defines it (`traces.cache.closure`): a change in any of these
starts an empty one, and every checkout of the same code shares one. The folder lies in the user's cache directory,
outside the repository; where that cannot be written nothing is cached and each process compiles for itself. Compiling
that takes long says so on standard error.
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

_config: Any = numba.core.config  # numba fills this module at run time, so no checker knows its names
Function = TypeVar("Function", bound=Callable[..., Any])
DIGITS = 16  # of the digest, in a folder's name
SAID_AFTER_S = 5.0  # of compiling
_WORDS = {"simulator": "the simulator", "features": "the analytics", "traces": "the readers", "models": "the models"}


class SharedLocator(UserProvidedCacheLocator):
    """Names the folder of a function's compiled form after its module, not after where the module's file lies."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        self._cache_path = os.path.join(_config.CACHE_DIR, py_func.__module__)

    def get_source_stamp(self) -> str:
        """Nothing: the folder is named after the code, and two checkouts may differ in a comment."""
        return ""


class _Patience(event.Listener):
    """Says that numba is compiling where that takes longer than SAID_AFTER_S, once for each outermost function."""

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
    sys.stderr.write(f"compiling {what} for this processor: once, the result is kept\n")
    sys.stderr.flush()


event.register("numba:compile", _Patience())  # type: ignore[no-untyped-call]


def jit(function: Function, options: dict[str, Any], signature: str | None = None, by: str = __name__) -> Function:
    """`numba.njit` with the options, cached as the module says; compiled at once where a signature is given.

    `by`: the module that has the function compiled, and whose code is part of how. Compiled code runs without the
    interpreter's lock unless the options say otherwise, so that other threads go on beside it.
    """
    folder = cache_folder(function.__module__, by)
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
def cache_folder(*modules: str) -> Path | None:
    """The folder of code compiled from those modules as they are now.

    None where it cannot be written, and for modules outside of Baton's packages, of which no closure is known.
    """
    try:
        digest = code_digest(*modules)
    except ModuleNotFoundError:
        return None
    return user_cache(f"numba/{digest[:DIGITS]}")
