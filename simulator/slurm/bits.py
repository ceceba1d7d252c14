"""Sets of nodes as words of 64 bits in int64 arrays: the two machine instructions that numba does not offer by itself.

Node i is bit i % 64 of word i // 64. Words are signed, because numba turns a mixture of int64 and uint64 into floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

WORD = 64


def _count_bits(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


def _lowest_bit(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


count_bits = cast(Callable[[int], int], intrinsic(_count_bits))  # number of bits set in an int64
lowest_bit = cast(Callable[[int], int], intrinsic(_lowest_bit))  # position of the lowest bit of an int64 that is not 0


def as_words(sets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows of booleans, shape (rows, nodes), as rows of words, shape (rows, ceil(nodes / 64)), int64."""
    rows, nodes = sets.shape
    padded = np.zeros((rows, max(1, -(-nodes // WORD)) * WORD), bool)
    padded[:, :nodes] = sets
    return np.packbits(padded, axis=1, bitorder="little").view("<i8").astype(np.int64)
