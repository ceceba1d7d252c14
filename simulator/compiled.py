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
    """`kernel` for the parts of a kernel that several places call: compiled on their own and into their callers."""
    return _once(_decorate(function, {"_nrt": False, "forceinline": True}))


def kernel_part(function: Function) -> Function:
    """`kernel` for a step that one place calls: numba puts its code into the caller's before it compiles that.

    A `kernel_inline` function is compiled on its own first, and again in its caller and in each caller of that. This
    one is compiled with the caller only, and no arguments are handed over there (a state is hundreds of values).
    """
    return _once(_decorate(function, {"_nrt": False, "inline": "always"}))


def uncached_part(function: Function) -> Function:
    """`kernel_part` for a function made at run time around other compiled ones, whose own cache no key would find.

    It is put into its callers as a `kernel_part` is, and what is kept of those holds it.
    """
    return _once(_decorate(function, {"_nrt": False, "inline": "always", "cache": False}))


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
