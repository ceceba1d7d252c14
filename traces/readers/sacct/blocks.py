"""Split the bytes of an sacct dump into blocks of whole records, which can be read independently.

A block ends at a place that no record can cross, and before another header, because dumps joined with `cat` may have
different columns. A header inside a job's name does not count: the record around it is put together first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from traces.errors import InputError
from traces.readers.raw_text import LONGEST_LINE
from traces.readers.sacct import columns as sacct_columns
from traces.readers.sacct import layout as sacct_layout
from traces.readers.sacct.layout import Layout
from traces.readers.sacct.mend import MOST_FORGED, MOST_LINES, Mender, fits_column

MOST_SEEN = 2_000  # lines searched for a place to cut a block
LONGEST_HEADER = 1 << 14  # bytes
IN_EVERY_HEADER = b"JobID"  # matches JobIDRaw too


@dataclass(frozen=True)
class SacctBlock:
    """Lines of a dump, each ended by a line break, with their layout and the number of lines before them."""

    data: memoryview
    layout: Layout
    before: int


def blocks(pieces: Iterable[bytes], layout: Layout, name: str, delimiter: str | None = None) -> Iterator[SacctBlock]:
    """Yield the lines of the records in blocks that no record crosses; headers are left out or blanked.

    `delimiter` is the one given for the file. Raises InputError for a line of over LONGEST_LINE bytes.
    """
    rest = iter(pieces)
    following = next(rest, b"").removeprefix(b"\xef\xbb\xbf")
    carry, before, skip, sought = b"", 0, layout.first, 0
    while following:
        carry = carry + following if carry else following
        following = next(rest, b"")
        if not following and not carry.endswith(b"\n"):
            carry += b"\n"
        while True:
            end = carry.rfind(b"\n") + 1
            if end == 0 and len(carry) > LONGEST_LINE:
                raise InputError(f"{name}: over {LONGEST_LINE >> 20} MiB without a line break: not an sacct dump")
            begin = 0
            while skip and begin < end:
                begin, skip, before = carry.index(b"\n", begin) + 1, skip - 1, before + 1
            carry, end = carry[begin:], end - begin
            at, new = (0, None) if skip else _next_header(carry, sought, end, layout, delimiter, last=not following)
            if new is None:
                break
            if replace(new, first=layout.first) == layout:  # joined dumps with the same columns: no need to cut
                stop = at
                for _ in range(new.first):
                    stop = carry.index(b"\n", stop) + 1
                blank = b"\n".join(b" " * len(line) for line in carry[at:stop].split(b"\n"))
                carry, sought = b"".join((carry[:at], blank, carry[stop:])), stop
                continue
            if at:
                yield SacctBlock(memoryview(carry)[:at], layout, before)
            before += carry.count(b"\n", 0, at)
            carry, layout, skip, sought = carry[at:], new, new.first, 0
        # from `at` on there may be a header whose following lines are not read yet
        cut = end if not following else _cut(carry, 0, at, layout) if at else 0
        if cut == 0 and len(carry) > LONGEST_LINE:
            cut = carry.rfind(b"\n") + 1  # so many lines without a whole record: hostile text
        if cut:
            yield SacctBlock(memoryview(carry)[:cut], layout, before)  # a copy would take as long as reading
            before += carry.count(b"\n", 0, cut)
        carry, sought = carry[cut:], max(at - cut, 0)


def _cut(data: bytes, begin: int, end: int, layout: Layout) -> int:
    """Return where to end a block of the whole lines data[begin:end]: before a clean line that no record can reach.

    A record of several lines has at most MOST_LINES lines and begins with one that is not clean. So no record crosses
    the last of MOST_LINES + 1 consecutive clean lines. Returns `begin` if the last MOST_SEEN lines contain no such run;
    then the block continues.
    """
    if layout.widths:
        return end
    at, run, candidate = end, 0, begin
    for _ in range(MOST_SEEN):
        if at <= begin:
            break
        line_start = data.rfind(b"\n", begin, at - 1) + 1 or begin
        if is_clean(_text(data[line_start : at - 1]), layout):
            candidate = candidate if run else line_start
            run += 1
            if run > MOST_LINES:
                return candidate
        else:
            run = 0
        at = line_start
    return begin


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def is_clean(text: str, layout: Layout) -> bool:
    """Return whether the line is a whole record, judged by the forms of its columns."""
    if layout.widths:
        return True
    parts = (text.removesuffix("\r") if layout.carriage else text).split(layout.delimiter)
    if layout.trailing and parts.pop() != "":
        return False
    if len(parts) != len(layout.columns):
        return False
    return all(fits_column(layout.columns[n], parts[n]) for n in layout.read)


def _next_header(
    data: bytes, begin: int, end: int, layout: Layout, delimiter: str | None, *, last: bool
) -> tuple[int, Layout | None]:
    """Find the first header in the whole lines data[begin:end]; return (its place, its layout), or (end, None).

    Returns (place, None) if the lines that decide about a header are not read yet.
    """
    at = begin
    while (at := data.find(IN_EVERY_HEADER, at, end)) >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        stop = data.find(b"\n", at, end)
        at = stop
        if stop - start > LONGEST_HEADER:
            continue
        after = _lines(data, start, end)
        new = sacct_layout.announced(after[:8], 0, delimiter)
        if new is None or not (new.columns == layout.columns or sacct_columns.is_enough(new.columns)):
            continue
        if len(after) <= MOST_LINES + 2 and not last:
            return start, None
        if _is_genuine(_lines(data, max(0, start - LONGEST_HEADER), start)[-MOST_LINES:], after, layout, new):
            return start, new
    return end, None


def _lines(data: bytes, start: int, end: int) -> list[str]:
    """Return the lines of data[start:end] that are needed to judge a header."""
    return [_text(line) for line in data[start : min(end, start + (1 << 20))].split(b"\n", MOST_LINES + 3)[:-1]]


def _is_genuine(before: list[str], after: list[str], old: Layout, new: Layout) -> bool:
    """Return whether the line after[0] is a header: lines of its layout follow, and no record of the old one holds it.

    A header with other columns changes how all following lines are read. So the lines around it must be clean too, and
    more of them than user text can hold.
    """
    records = after[new.first :]
    if new.columns != old.columns:
        if sum(is_clean(line, new) for line in records) * 2 < len(records):
            return False
        if not all(is_clean(line, old) for line in before[-MOST_FORGED:]):
            return False
        if not all(is_clean(line, new) for line in records[:MOST_FORGED]):
            return False
    if old.widths or all(is_clean(line, old) for line in (*before[-MOST_FORGED:], *records[:MOST_FORGED])):
        return True
    around = [*before, *after]
    clean = np.array([is_clean(line, old) for line in around], dtype=np.bool_)
    mender = Mender(around.__getitem__, clean, old, goes_on=False)
    mender.run()
    return len(before) not in mender.joined
