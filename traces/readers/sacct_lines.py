"""The lines of a block of an sacct dump into rows of text.

Lines with the right number of delimiters are split in bulk; `sacct_mend` puts the others together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from traces.readers.sacct_layout import Layout

STAND_IN = "\x1f"  # for a delimiter of several bytes, while the lines are split
NEWLINE = 10
PIECE_BYTES = 1 << 17


def _text(block: bytes, layout: Layout) -> bytes:
    """The block as UTF-8, with U+FFFD where it is not, lines ended by a plain line break."""
    if layout.carriage:
        block = block.replace(b"\r\n", b"\n")
    if _is_utf8(block):
        return block
    pieces, at = [], 0
    while at < len(block):  # in pieces of whole lines, as nearly all are well and repairing one is slow
        end = block.rfind(b"\n", at, at + PIECE_BYTES) + 1 or len(block)
        piece = block[at:end]
        if not _is_utf8(piece):
            # a width counts bytes, and may cut a character in two
            broken = piece.decode("utf-8", errors="surrogateescape" if layout.widths else "replace")
            piece = broken.encode("utf-8", errors="replace")
        pieces.append(piece)
        at = end
    return b"".join(pieces)


def _is_utf8(block: bytes) -> bool:
    """As Arrow finds it: in a twentieth of the time of `bytes.decode`, which builds the text."""
    ends = pa.py_buffer(np.array([0, len(block)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass
class Lines:
    """The lines of a block. `frame`: the text of the columns that are read, null where blank, and `line` (0-based), of
    those lines (`whole`) that have the right number of columns.
    """

    data: bytes
    starts: NDArray[np.int64]  # (lines + 1,) offsets in data
    whole: NDArray[np.bool_]  # (lines,)
    frame: pl.DataFrame

    def line(self, number: int) -> str:
        """Text of a line, 0-based, without its end."""
        return self.data[self.starts[number] : self.starts[number + 1] - 1].decode("utf-8", errors="replace")


def split(data: bytes, layout: Layout) -> Lines:
    """The lines of a block and, of those with the right number of delimiters, the columns."""
    data = _text(data, layout)
    if layout.widths:
        return _fixed(data, layout)
    delimiters = len(layout.columns) - 1 + layout.trailing
    plain, mark = data, layout.delimiter
    if len(mark.encode()) == 1:
        starts, counts = plain_starts, _ = _counts(data, ord(mark))
    elif STAND_IN.encode() not in data:
        plain, mark = data.replace(mark.encode(), STAND_IN.encode()), STAND_IN
        starts = _starts(data)
        plain_starts, counts = _counts(plain, ord(mark))
    else:
        starts, mark = _starts(data), STAND_IN
        counts, plain, plain_starts = _by_hand(data, starts, layout, mark)
    whole = counts == delimiters
    frame = _columns(_kept(plain, plain_starts, whole), mark, layout, int(whole.sum()))
    frame = frame.with_columns(pl.Series("line", np.flatnonzero(whole), dtype=pl.Int64))
    if layout.trailing:
        whole[frame["line"].filter(frame["rest"].is_not_null()).to_numpy()] = False
        frame = frame.filter(pl.col("rest").is_null()).drop("rest")
    return Lines(data, starts, whole, frame)


def _starts(data: bytes) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE)
    return np.concatenate([[0], ends + 1])


def _counts(data: bytes, mark: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(starts of the lines and the end of the last, delimiters in each)."""
    starts = _starts(data)
    marks = np.frombuffer(data, np.uint8) == mark
    # sums in 8 bits are several times as fast; one that has run over shows in the total
    counts = np.add.reduceat(marks.view(np.uint8), starts[:-1], dtype=np.uint8).astype(np.int64)
    if counts.sum() != np.count_nonzero(marks):
        counts = np.add.reduceat(marks, starts[:-1], dtype=np.int64)
    return starts, counts


def _by_hand(
    data: bytes, starts: NDArray[np.int64], layout: Layout, mark: str
) -> tuple[NDArray[np.int64], bytes, NDArray[np.int64]]:
    """(delimiters of each line or -1 for one that holds the stand-in, the data with it for the delimiter, starts)."""
    delimiter, stand_in = layout.delimiter.encode(), mark.encode()
    lines = data.split(b"\n")[:-1]
    counts = np.fromiter(
        (-1 if stand_in in line else line.count(delimiter) for line in lines), dtype=np.int64, count=len(lines)
    )
    plain = b"\n".join(line.replace(delimiter, stand_in) for line in lines) + b"\n"
    return counts, plain, _starts(plain)


def _kept(data: bytes, starts: NDArray[np.int64], whole: NDArray[np.bool_]) -> bytes:
    """The whole lines alone."""
    if whole.all():
        return data
    edges = np.flatnonzero(np.diff(whole, prepend=False, append=False))
    view = memoryview(data)
    return b"".join(view[starts[a] : starts[b]] for a, b in zip(edges[::2], edges[1::2], strict=True))


def _columns(data: bytes, mark: str, layout: Layout, rows: int) -> pl.DataFrame:
    """The columns that are read; `rest` is what follows a trailing delimiter."""
    wanted = {n: layout.columns[n] for n in layout.read}
    if layout.trailing:
        wanted[len(layout.columns)] = "rest"
    if rows == 0:
        return pl.DataFrame(schema=dict.fromkeys(wanted.values(), pl.String))
    frame = pl.read_csv(
        data, has_header=False, columns=list(wanted), separator=mark, quote_char=None, infer_schema=False,
        low_memory=True,
    )  # fmt: skip
    frame.columns = list(wanted.values())
    if len(frame) != rows:
        raise AssertionError(f"{rows} lines were split into {len(frame)}")
    return frame


def _fixed(data: bytes, layout: Layout) -> Lines:
    """Lines of fixed width: a space between columns, and one at the end. A line of another length is not whole, unless
    blanks were taken off its end: then it ends with a column, which is set to the right.
    """
    starts = _starts(data)
    length = sum(layout.widths) + len(layout.widths)
    lengths = np.diff(starts) - 1
    ends = np.cumsum(np.array(layout.widths) + 1) - 1
    needed = max(n for n, name in enumerate(layout.columns) if name in _MUST_BE_WHOLE)
    whole = (lengths == length) | np.isin(lengths, ends[needed:])
    raw = pl.DataFrame({"raw": _kept(data, starts, whole).split(b"\n")[:-1]}, schema={"raw": pl.Binary})
    columns, at = [], 0
    for n, width in enumerate(layout.widths):
        if n in layout.read:
            text = pl.col("raw").bin.slice(at, width).cast(pl.String, strict=False).str.strip_chars(" ")
            columns.append(_uncut(text, layout.columns[n], width).alias(layout.columns[n]))
        at += width + 1
    frame = raw.select(columns).with_columns(pl.Series("line", np.flatnonzero(whole), dtype=pl.Int64))
    return Lines(data, starts, whole, frame)


# Columns that still tell something when they are cut: ids and times do not, and make the record unreadable.
_LEFT_CUT = frozenset({"State", "JobName", "User", "Account", "Partition", "QOS", "Group", "Cluster"})
_MUST_BE_WHOLE = frozenset({"JobID", "JobIDRaw", "Submit", "Eligible", "Start", "End", "Elapsed", "ElapsedRaw"})


def _uncut(text: pl.Expr, column: str, width: int) -> pl.Expr:
    """The text, null where blank and where sacct cut it short with a `+` (node lists, TRES): it is not known."""
    text = pl.when(text != "").then(text)
    if column in _LEFT_CUT or column in _MUST_BE_WHOLE:
        return text
    return pl.when(~(text.str.ends_with("+") & (text.str.len_bytes() >= width))).then(text)
