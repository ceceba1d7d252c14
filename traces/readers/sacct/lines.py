"""Split the lines of a block of an sacct dump into columns of text.

Lines with the right number of delimiters are split in bulk; `traces.readers.sacct.mend` repairs the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from traces.readers.sacct.fields import SacctField, fields_of, reader_kernel
from traces.readers.sacct.layout import Layout

STAND_IN = b"\x1f"  # replaces a delimiter of several bytes while the lines are split
NEWLINE = 10
PIECE_BYTES = 1 << 17


def _text(data: bytes | memoryview, layout: Layout) -> bytes | memoryview:
    """Return the block as UTF-8 with plain line breaks; bytes that are not UTF-8 become U+FFFD."""
    if not layout.carriage and _is_utf8(data):
        return data
    block = bytes(data).replace(b"\r\n", b"\n") if layout.carriage else bytes(data)
    if layout.carriage and _is_utf8(block):
        return block
    pieces, at = [], 0
    while at < len(block):  # in pieces of whole lines: nearly all are valid, and repairing a piece is slow
        end = block.rfind(b"\n", at, at + PIECE_BYTES) + 1 or len(block)
        piece = block[at:end]
        if not _is_utf8(piece):
            # a fixed width counts bytes, and may cut a character in two
            broken = piece.decode("utf-8", errors="surrogateescape" if layout.widths else "replace")
            piece = broken.encode("utf-8", errors="replace")
        pieces.append(piece)
        at = end
    return b"".join(pieces)


def _is_utf8(block: bytes | memoryview) -> bool:
    """Return whether the block is UTF-8. Arrow checks in a twentieth of the time of `bytes.decode`."""
    if np.frombuffer(block, np.uint8).max(initial=0) < 128:
        return True
    ends = pa.py_buffer(np.array([0, len(block)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass
class Lines:
    """The lines of a block.

    `whole` marks the lines with the right number of columns; `numbers` (rows,) are their 0-based numbers. `fields`
    holds their columns that are read, by name. `cut` (rows,) marks, by name, the texts that a fixed width cut short and
    that are blank in `fields`.
    """

    data: bytes | memoryview
    starts: NDArray[np.int64]  # (lines + 1,) offsets in data
    whole: NDArray[np.bool_]  # (lines,)
    numbers: NDArray[np.int64]
    fields: dict[str, SacctField]
    cut: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def line(self, number: int) -> str:
        """Return the text of a line (0-based) without its line break."""
        return bytes(self.data[self.starts[number] : self.starts[number + 1] - 1]).decode("utf-8", errors="replace")


def split(data: bytes | memoryview, layout: Layout) -> Lines:
    """Find the lines of a block, and the columns of lines with the right number of delimiters."""
    data = _text(data, layout)
    if layout.widths:
        return _fixed(bytes(data), layout)
    plain, mark = data, layout.delimiter.encode()
    if len(mark) > 1:
        plain = _with_stand_in(bytes(data), mark)
    bytes_of = np.frombuffer(plain, np.uint8)
    lines, width = int(np.count_nonzero(bytes_of == NEWLINE)), len(layout.columns) + 1
    starts, whole = np.empty(lines + 1, np.int64), np.empty(lines, np.bool_)
    places = np.empty(len(plain) + lines + 2, np.int32)  # mostly too long, but unwritten pages take no memory
    one = mark[0] if len(mark) == 1 else STAND_IN[0]
    rows = reader_kernel().split(bytes_of, one, len(layout.columns), layout.trailing, places, starts, whole)
    ends = places[: rows * width].reshape(rows, width).T.copy()  # one contiguous row for each column
    fields = {layout.columns[n]: SacctField(bytes_of, ends[n], ends[n + 1]) for n in layout.read}
    return Lines(data, starts if plain is data else _starts(data), whole, np.flatnonzero(whole), fields)


def _with_stand_in(data: bytes, mark: bytes) -> bytes:
    """Replace the delimiter by STAND_IN; a line that already contains STAND_IN becomes blank."""
    if STAND_IN not in data:
        return data.replace(mark, STAND_IN)
    return b"\n".join(b"" if STAND_IN in line else line.replace(mark, STAND_IN) for line in data.split(b"\n"))


def _starts(data: bytes | memoryview) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE)
    return np.concatenate([[0], ends + 1])


def _kept(data: bytes, starts: NDArray[np.int64], whole: NDArray[np.bool_]) -> bytes:
    """Return only the whole lines."""
    if whole.all():
        return data
    edges = np.flatnonzero(np.diff(whole, prepend=False, append=False))
    view = memoryview(data)
    return b"".join(view[starts[a] : starts[b]] for a, b in zip(edges[::2], edges[1::2], strict=True))


def _fixed(data: bytes, layout: Layout) -> Lines:
    """Split lines of fixed width, with a space after every column.

    A line of another length is not whole, unless it was stripped of trailing blanks: then it ends at the end of a
    right-aligned column. User text with a line break divides a record. Consecutive lines that are not whole are joined
    if their lengths, with the line breaks, add up to that of a record; they get the number of the first.
    """
    starts = _starts(data)
    length = sum(layout.widths) + len(layout.widths)
    lengths = np.diff(starts) - 1
    ends = np.cumsum(np.array(layout.widths) + 1) - 1
    needed = max(n for n, name in enumerate(layout.columns) if name in _MUST_BE_WHOLE)
    whole = (lengths == length) | np.isin(lengths, ends[needed:])
    numbers, records = np.flatnonzero(whole), _kept(data, starts, whole).split(b"\n")[:-1]
    broken = _broken(lengths, whole, length)
    if broken:
        records += [data[starts[first] : starts[end] - 1] for first, end in broken]
        numbers = np.concatenate([numbers, [first for first, _ in broken]])
        order = np.argsort(numbers, kind="stable")
        numbers, records = numbers[order], [records[n] for n in order]
        for first, end in broken:
            whole[first:end] = True
    raw = pl.DataFrame({"raw": records}, schema={"raw": pl.Binary})
    columns, cut, at = [], {}, 0
    for n, width in enumerate(layout.widths):
        if n in layout.read:
            name = layout.columns[n]
            text = _decoded(raw.select(pl.col("raw").bin.slice(at, width))["raw"]).str.strip_chars(" ").alias(name)
            if name not in _LEFT_CUT and name not in _MUST_BE_WHOLE:
                is_cut = text.str.ends_with("+") & (text.str.len_bytes() >= width)
                cut[name] = is_cut.to_numpy()
                text = text.to_frame().select(pl.when(is_cut).then(pl.lit("")).otherwise(name).alias(name)).to_series()
            columns.append(text)
        at += width + 1
    return Lines(data, starts, whole, numbers, fields_of(pl.DataFrame(columns)), cut)


def _broken(lengths: NDArray[np.int64], whole: NDArray[np.bool_], length: int) -> list[tuple[int, int]]:
    """Return (first line, line after the last) of each record that line breaks divide. Lines count from 0."""
    found, end = [], 0
    for first in np.flatnonzero(~whole).tolist():
        if first < end:
            continue
        size, last = int(lengths[first]), first + 1
        while size < length and last < len(whole) and not whole[last]:
            size, last = size + 1 + int(lengths[last]), last + 1
        if size == length and last > first + 1:
            found.append((first, last))
            end = last
    return found


def _decoded(values: pl.Series) -> pl.Series:
    """Decode bytes to text. A shifted line may begin or end a column within a character."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        texts = [value.decode("utf-8", errors="replace") for value in values]
        return pl.Series(values.name, texts, dtype=pl.String)


# Columns that remain useful when they are cut. A cut id or time makes the record unreadable.
_LEFT_CUT = frozenset({"State", "JobName", "User", "Account", "Partition", "QOS", "Group", "Cluster"})
_MUST_BE_WHOLE = frozenset({"JobID", "JobIDRaw", "Submit", "Eligible", "Start", "End", "Elapsed", "ElapsedRaw"})
