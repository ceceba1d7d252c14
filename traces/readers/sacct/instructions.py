"""Three processor instructions that numba does not offer: load eight bytes, prefetch, count trailing zeros.

`traces.readers.sacct.kernel` needs them to search for delimiters eight bytes at a time. An example with the line
`12|gpu|x` and the delimiter `|`:

1. `eight` loads its first eight bytes as one 64-bit number. On x86 the first byte is the lowest: bytes 31 32 7c 67 70
   75 7c 78 become 0x787c7570677c3231.
2. The kernel compares all eight bytes with `|` (7c) in a few operations on the whole number. In the result, the high
   bit of a byte is set where the byte is a `|`: 0x0080000000800000.
3. `lowest` counts the zero bits below the lowest set bit: 23. 23 // 8 = 2: the first delimiter is at byte 2.
4. Clearing that bit leaves 0x0080000000000000; `lowest` gives 55, and 55 // 8 = 6: the next is at byte 6. Then nothing
   is left, and the next eight bytes are loaded.

`fetch` computes nothing. Later passes over the dump jump from row to row, too far for the processor to predict.
Requesting the bytes of a later row early hides the latency of memory.

Each name is declared twice. The plain Python function defines the meaning, and runs where compilation is switched off.
An `intrinsic` generates the instruction in LLVM, and an `overload` makes compiled code use that intrinsic wherever it
calls the plain function. The functions do not check bounds; the caller must.
"""

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
    """Return data[at : at + 8] as one number, with the byte at `at` lowest; all eight bytes must exist."""
    return np.uint64(int.from_bytes(data[at : at + 8].tobytes(), "little"))


def fetch(data: NDArray[np.uint8], at: int) -> None:
    """Ask the processor to load the bytes around data[at], which must exist, into its cache for a later read."""


def lowest(word: np.uint64) -> int:
    """Return the position of the lowest set bit, counted from 0; `word` must not be 0."""
    return (int(word) & -int(word)).bit_length() - 1


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Generate LLVM code for the address of element arguments[1] of the array arguments[0]."""
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
        builder.call(function, [place, *(ir.Constant(number, n) for n in (0, 3, 1))])  # for reading, high locality
        return context.get_dummy_value()

    return types.none(data, types.int64), generate


@intrinsic
def _lowest(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_CALLS: tuple[Any, Any, Any] = (_eight, _fetch, _lowest)  # numba adds their first argument itself
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
