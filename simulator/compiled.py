"""Numba's `njit` for the simulator and its compiled callers, with one cache (`traces.compiled`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numba
import numba.core.config

from traces import compiled
from traces.compiled import Function

_types: Any = numba.types  # untyped
_config: Any = numba.core.config  # numba fills this module at run time, so no checker knows its names


@overload
def njit(function: Function) -> Function: ...
@overload
def njit(**options: Any) -> Callable[[Function], Function]: ...
def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Apply `numba.njit` with a cache on disk; use it bare or with numba's options (`parallel=True`, ...)."""
    if function is None:
        return lambda inner: _decorate(inner, options)
    return _decorate(function, options)


def kernel(function: Function) -> Function:
    """Apply `njit` to a function that only reads and writes given arrays and creates none (not even slices of rows).

    Without reference counting of these arrays at every call, the simulator is several times faster.
    """
    return _once(_decorate(function, {"_nrt": False}))


def kernel_inline(function: Function) -> Function:
    """Apply `kernel` to a part that several places call: it is compiled separately and into its callers."""
    return _once(_decorate(function, {"_nrt": False, "forceinline": True}))


def kernel_part(function: Function) -> Function:
    """Apply `kernel` to a step that one place calls: numba inserts its code into the caller before compiling that.

    A `kernel_inline` function is compiled separately, again in its caller, and in each caller of that. A `kernel_part`
    is compiled with the caller only, and passes no arguments there (a state is hundreds of values).
    """
    return _once(_decorate(function, {"_nrt": False, "inline": "always"}))


def uncached_part(function: Function) -> Function:
    """Apply `kernel_part` to a function generated at run time, which has no valid key for a cache of its own.

    Like a `kernel_part` it is inserted into its callers, whose cached code includes it.
    """
    return _once(_decorate(function, {"_nrt": False, "inline": "always", "cache": False}))


def _once(function: Function) -> Function:
    """Compile for the types of arguments, not their values: numba would recompile for every constant argument."""
    if _config.DISABLE_JIT:  # then `njit` returns the plain function
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
    return compiled.jit(function, options, by=__name__)
