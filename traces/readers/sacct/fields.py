"""A column of an sacct dump as positions in its bytes, and its typed values, read in bulk by the compiled kernel.

The kernel reports the rows that it cannot read; `traces.slurm.text` parses their distinct texts.
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

_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))  # random, so that users cannot construct hash collisions


def reader_kernel() -> ModuleType:
    """Return the module of compiled functions, imported at first use so that importing a reader compiles nothing."""
    from traces.readers.sacct import kernel as sacct_kernel

    return sacct_kernel


@dataclass(frozen=True)
class SacctField:
    """One column of an sacct dump: the UTF-8 text of row r is data[before[r] + 1 : end[r]]; empty means blank.

    data (bytes,) uint8; before, end (rows,) int32.
    """

    data: NDArray[np.uint8]
    before: NDArray[np.int32]
    end: NDArray[np.int32]

    @classmethod
    def of(cls, texts: pl.Series) -> SacctField:
        """Make a column from the texts of a series; a null becomes blank."""
        array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1].astype(np.int32)
        return cls(np.frombuffer(data or b"", np.uint8), ends[:-1] - np.int32(1), ends[1:])

    def __len__(self) -> int:
        return len(self.end)

    def take(self, rows: NDArray[np.integer[Any]]) -> SacctField:
        """Return the given rows."""
        return SacctField(self.data, self.before[rows], self.end[rows])

    def given(self) -> NDArray[np.bool_]:
        """Return which rows are not blank."""
        return self.end - self.before > 1

    def texts(self) -> pl.Series:
        """Return the texts, null where blank."""
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.maximum(self.end - self.before - 1, 0), out=offsets[1:])
        copied = np.empty(offsets[-1], np.uint8)
        reader_kernel().copy(self.data, self.before, self.end, offsets, copied)
        return _series(pa.large_string(), self.given(), offsets, copied)

    def sluids(self) -> pl.Series:
        """Return Slurm's unique ids of records, an s and 13 digits; null where they are blank or all 0."""
        is_set = pl.col("id").str.strip_chars_end("0").str.len_bytes() > 1
        return self.texts().to_frame("id").select(pl.when(is_set).then("id")).to_series()

    def codes(self) -> tuple[pl.Series, pl.Series]:
        """Return (distinct texts, the first of them null; the index among them of each row's text)."""
        codes, first = np.empty(len(self), np.uint32), np.empty(len(self) + 1, np.int32)
        table = np.zeros(1 << (2 * len(self)).bit_length(), np.int32)
        next_code = reader_kernel().code(self.data, self.before, self.end, _SEED, table, codes, first)
        distinct = self.take(first[1:next_code]).texts()
        return pl.concat([pl.Series([None], dtype=pl.String), distinct]), pl.Series(codes)

    def read(self, form: str, kind: Any = np.int64) -> tuple[pl.Series, NDArray[np.intp]]:
        """Return (values, null where blank or unread; rows with a text that the kernel cannot read with certainty).

        `form` names the kernel's function.
        """
        values, certain = np.empty(len(self), kind), np.empty(len(self), np.bool_)
        getattr(reader_kernel(), form)(self.data, self.before, self.end, values, certain)
        return series(values, certain & self.given()), np.flatnonzero(~certain)


def series(values: NDArray[Any], given: NDArray[np.bool_]) -> pl.Series:
    """Return the values as a series, null where not given."""
    return _series(pa.float64() if values.dtype == np.float64 else pa.int64(), given, values)


def _series(kind: pa.DataType, given: NDArray[np.bool_], *parts: NDArray[Any]) -> pl.Series:
    """Make a series from the buffers of an Arrow array without a copy (`pa.array` would import pandas)."""
    mask = None if given.all() else pa.py_buffer(np.packbits(given, bitorder="little"))
    array = pa.Array.from_buffers(kind, len(given), [mask, *map(pa.py_buffer, parts)])
    return cast(pl.Series, pl.from_arrow(array))


def fields_of(text: pl.DataFrame) -> dict[str, SacctField]:
    """Return the columns of a frame of texts, by name."""
    return {column.name: SacctField.of(column) for column in text}
