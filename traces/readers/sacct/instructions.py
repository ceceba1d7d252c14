"""Single instructions of the processor that numba has no name for, each beside the plain Python of the same meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array
from numpy.typing import NDArray


def eight(data: NDArray[np.uint8], at: int) -> np.uint64:
    """The eight bytes from `at` on, which must be there, as one number, the first the lowest."""
    return np.uint64(int.from_bytes(data[at : at + 8].tobytes(), "little"))


def fetch(data: NDArray[np.uint8], at: int) -> None:
    """Have the bytes around `at`, which must be there, brought near: they will be read soon."""


def lowest(word: np.uint64) -> int:
    """How many bits are 0 below the lowest that is 1; one must be."""
    return (int(word) & -int(word)).bit_length() - 1


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.gep(make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])


@intrinsic
def _eight(_typing: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(_address(context, builder, signature, arguments), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def _fetch(_typing: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = _address(context, builder, signature, arguments)
        builder.call(function, [place, *(ir.Constant(number, n) for n in (0, 3, 1))])  # to read, and more than once
        return context.get_dummy_value()

    return types.none(data, types.int64), generate


@intrinsic
def _lowest(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_CALLS: tuple[Any, Any, Any] = (_eight, _fetch, _lowest)  # without the argument that numba puts before the others
_call_eight, _call_fetch, _call_lowest = _CALLS


@overload(eight, strict=False)
def _of_eight(data: Any, at: Any) -> Any:
    return lambda data, at: _call_eight(data, at)


@overload(fetch, strict=False)
def _of_fetch(data: Any, at: Any) -> Any:
    return lambda data, at: _call_fetch(data, at)


@overload(lowest, strict=False)
def _of_lowest(word: Any) -> Any:
    return lambda word: _call_lowest(word)
