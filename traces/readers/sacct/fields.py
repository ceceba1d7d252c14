"""A column of an sacct dump as positions in its bytes, and its typed values, read in bulk by the compiled kernel.

Rows that the kernel cannot read are returned as such; their distinct texts go through `traces.slurm.text`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))  # of the hashes: no user's text can be made to collide


def kernel() -> ModuleType:
    """The compiled functions. Imported when first used: whoever only names the readers needs no compiler."""
    from traces.readers.sacct import kernel as sacct_kernel

    return sacct_kernel


@dataclass(frozen=True)
class Field:
    """The texts data[before[r] + 1 : end[r]] of rows r; UTF-8; blank where that is empty.

    data (bytes,) uint8; before, end (rows,) int32.
    """

    data: NDArray[np.uint8]
    before: NDArray[np.int32]
    end: NDArray[np.int32]

    @classmethod
    def of(cls, texts: pl.Series) -> Field:
        """The texts of a series, blank where null."""
        array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1].astype(np.int32)
        return cls(np.frombuffer(data or b"", np.uint8), ends[:-1] - np.int32(1), ends[1:])

    def __len__(self) -> int:
        return len(self.end)

    def take(self, rows: NDArray[np.integer[Any]]) -> Field:
        """Those rows."""
        return Field(self.data, self.before[rows], self.end[rows])

    def given(self) -> NDArray[np.bool_]:
        """Which rows are not blank."""
        return self.end - self.before > 1

    def texts(self) -> pl.Series:
        """The texts, null where blank."""
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.maximum(self.end - self.before - 1, 0), out=offsets[1:])
        copied = np.empty(offsets[-1], np.uint8)
        kernel().copy(self.data, self.before, self.end, offsets, copied)
        return _series(pa.large_string(), self.given(), offsets, copied)

    def codes(self) -> tuple[pl.Series, pl.Series]:
        """(distinct texts, null the first of them, the number among them of each row's)."""
        codes, first = np.empty(len(self), np.uint32), np.empty(len(self) + 1, np.int32)
        table = np.zeros(1 << (2 * len(self)).bit_length(), np.int32)
        next_code = kernel().code(self.data, self.before, self.end, _SEED, table, codes, first)
        distinct = self.take(first[1:next_code]).texts()
        return pl.concat([pl.Series([None], dtype=pl.String), distinct]), pl.Series(codes)

    def read(self, form: str, kind: Any = np.int64) -> tuple[pl.Series, NDArray[np.intp]]:
        """(values, null where there are none; rows with a text that the kernel is not certain of).

        `form` names the kernel's function.
        """
        values, certain = np.empty(len(self), kind), np.empty(len(self), np.bool_)
        getattr(kernel(), form)(self.data, self.before, self.end, values, certain)
        return series(values, certain & self.given()), np.flatnonzero(~certain)


def series(values: NDArray[Any], given: NDArray[np.bool_]) -> pl.Series:
    """The values as a series, null where not given."""
    return _series(pa.float64() if values.dtype == np.float64 else pa.int64(), given, values)


def _series(kind: pa.DataType, given: NDArray[np.bool_], *parts: NDArray[Any]) -> pl.Series:
    """A series of the buffers of an Arrow array, without a copy (`pa.array` would import pandas)."""
    mask = None if given.all() else pa.py_buffer(np.packbits(given, bitorder="little"))
    array = pa.Array.from_buffers(kind, len(given), [mask, *map(pa.py_buffer, parts)])
    return cast(pl.Series, pl.from_arrow(array))


def fields_of(text: pl.DataFrame) -> dict[str, Field]:
    """The fields of a frame of texts."""
    return {column.name: Field.of(column) for column in text}
