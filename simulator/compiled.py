"""Numba's `njit` with a disk cache that can be trusted across several source files.

Numba keys its cache by the modification time of the file that defines a function and does not see that a function
imported from another file changed. Here the cache folder is named after a digest of every source that holds compiled
code, so a change of any of them starts an empty one. The folder lies in the user's cache directory, outside the
repository; where that cannot be written nothing is cached and each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import numba
import numba.core.config

_types: Any = numba.types  # untyped
_config: Any = numba.core.config  # numba fills this module at run time, so no checker knows its names
Function = TypeVar("Function", bound=Callable[..., Any])

# Relative to the folder that holds the packages.
_SLURM = (
    "ahead", "backfill", "bits", "candidates", "fairtree", "kernel", "limits", "moves", "passes", "placement",
    "preemption", "priority", "slots", "state", "waiting",
)  # fmt: skip
_CALIBRATION = ("forked", "free", "informed", "passes", "record", "recorded", "single")
_COMPILED_SOURCES = (
    "simulator/*.py",
    *(f"simulator/calibration/{name}.py" for name in _CALIBRATION),
    *(f"simulator/slurm/{name}.py" for name in _SLURM),
    "models/pairs.py",
    "features/observe.py",
    "features/tally.py",
)


@overload
def njit(function: Function) -> Function: ...
@overload
def njit(**options: Any) -> Callable[[Function], Function]: ...
def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` cached on disk, used bare or with numba's options (`parallel=True`, ...)."""
    if function is None:
        return lambda inner: _decorate(inner, options)
    return _decorate(function, options)


def kernel(function: Function) -> Function:
    """`njit` for functions that only read and write arrays given to them and make none (slices of rows included).

    Without reference counts on those arrays, at every call, the simulator is several times faster.
    """
    return _once(_decorate(function, {"_nrt": False}))


def kernel_inline(function: Function) -> Function:
    """`kernel` for the parts of a kernel: compiled into their callers."""
    return _once(_decorate(function, {"_nrt": False, "forceinline": True}))


def _once(function: Function) -> Function:
    """Compile for the type of an argument and not for its value: numba would do so anew for every constant given."""
    if _config.DISABLE_JIT:  # then `njit` hands the plain function back
        return function
    dispatcher: Any = function
    template = dispatcher.get_call_template

    def unliteral(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return template(
            tuple(_types.unliteral(argument) for argument in arguments),
            {name: _types.unliteral(argument) for name, argument in keywords.items()},
        )

    dispatcher.get_call_template = unliteral
    return function


def _decorate(function: Function, options: dict[str, Any]) -> Function:
    folder = cache_folder()
    before = _config.CACHE_DIR  # read by numba at decoration; other libraries in the process keep their own
    try:
        if folder is not None:
            _config.CACHE_DIR = str(folder)
        return cast(Function, numba.njit(**{"cache": folder is not None, **options})(function))
    finally:
        _config.CACHE_DIR = before


@cache
def cache_folder() -> Path | None:
    """The folder of compiled code for the present sources, or None where it cannot be written."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "baton" / "numba" / source_digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None


def source_digest(root: Path | None = None) -> str:
    """Digest of the names and bytes of every source with compiled code under `root` (default: this installation)."""
    root = root or Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for pattern in _COMPILED_SOURCES:
        for path in sorted(root.glob(pattern)):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]
