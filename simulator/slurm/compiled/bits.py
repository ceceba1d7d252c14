"""Sets of nodes as 64-bit words in int64 arrays, with two machine instructions that numba does not offer.

Node i is bit i % 64 of word i // 64. Words are signed, because numba converts a mixture of int64 and uint64 to floats.
With the JIT off both instructions are plain Python; then a set must not use bit 63, because numpy refuses `1 << 63`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba.core.config
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from simulator.compiled import kernel_part

WORD = 64


def _count_bits(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


def _lowest_bit(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


def _plain_count(word: int) -> int:
    return (int(word) & (1 << WORD) - 1).bit_count()


def _plain_lowest(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


_config: Any = numba.core.config  # numba fills this module at run time, so type checkers do not know its names
Instruction = Callable[[int], int]
# The number of bits set in an int64, and the position of the lowest bit of an int64 that is not 0.
count_bits: Instruction = _plain_count if _config.DISABLE_JIT else cast(Instruction, intrinsic(_count_bits))
lowest_bit: Instruction = _plain_lowest if _config.DISABLE_JIT else cast(Instruction, intrinsic(_lowest_bit))


@kernel_part
def add_range(words: NDArray[np.int64], row: int, first: int, last: int) -> None:
    """Add the nodes `first` .. `last` to row `row` of `words`."""
    from_word, to_word = first >> 6, last >> 6
    for w in range(from_word, to_word + 1):
        mask = -1
        if w == from_word:
            mask <<= first & 63
        if w == to_word and last & 63 != 63:
            mask &= (1 << (last & 63) + 1) - 1
        words[row, w] |= mask


def as_words(sets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Convert rows of booleans, shape (rows, nodes), to rows of words, shape (rows, ceil(nodes / 64)), int64."""
    rows, nodes = sets.shape
    padded = np.zeros((rows, max(1, -(-nodes // WORD)) * WORD), bool)
    padded[:, :nodes] = sets
    return np.packbits(padded, axis=1, bitorder="little").view("<i8").astype(np.int64)
