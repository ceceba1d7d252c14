"""Numba's `njit` for the simulator and for what calls it compiled, in one cache (`traces.compiled`)."""

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


def uncached_inline(function: Function) -> Function:
    """`kernel_inline` for a function made at run time around other compiled ones, whose own cache no key would find.

    It is compiled into its callers, and what is kept of those holds it.
    """
    return _once(_decorate(function, {"_nrt": False, "forceinline": True, "cache": False}))


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
    return compiled.jit(function, options, by=__name__)
