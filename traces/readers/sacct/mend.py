"""Repair records that user text broke: sacct does not escape, so a job name may hold the delimiter or a line break.

A broken record is repaired if the forms of all its other columns allow only one reading; otherwise it is rejected as a
whole. This slow path runs only for lines that are not clean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from traces.arrays import Int64s
from traces.readers.common import Reject, shown
from traces.readers.sacct import columns as sacct_columns
from traces.readers.sacct.layout import Layout

CUT, BROKEN = "cut short", "the delimiter or a line break in user text"
# User text that no figure depends on: it is left blank where two readings of a broken record differ in it.
_LENIENT = sacct_columns.USER_TEXT & sacct_columns.PRINTED.keys() - {"JobName", "Reason"}
MOST_LINES = 50  # that one record may span
MOST_EXCESS = 200  # delimiters in the user text of one record
MOST_FORGED = 8  # lines inside a broken record that look whole; user text holds no more
NEIGHBOURS = 4  # clean lines before and after a record whose ids are compared with its own
LEAST_RISING, MOST_ODD = 0.8, 0.1  # shares; of the real dumps of the tests at least 0.82, and at most 0.04
MOST_TRIED = 50_000  # columns tried before a record is given up, so that a hostile file cannot take unbounded time


Endings = dict[tuple[str, ...], tuple[str, ...]]  # the values that are read -> the fields


class Doubt(Enum):
    """Which record is not trusted if one that is cut short is followed by a line that looks like another."""

    SECOND = 1  # it is text of the first
    BOTH = 2  # it may be text of the first, or the first may be cut short


class Mender:
    """Repairs or rejects, in order, the lines of a block that are not clean.

    `line(n)` is the text of line n (0-based); `clean` (lines,) marks the lines that are whole records. If the last
    column is user text, lines that begin no record continue the record before them, unless `goes_on` is false.

    Results of `run`:

    - `mended`: first line -> columns of a repaired record
    - `taken`: clean lines that turned out to be inside a record
    - `tails`: text that continues the last column of a clean line
    - `rejects`: the remaining lines (0-based)
    - `joined`: all lines of records that were repaired, or rejected as one
    """

    def __init__(
        self, line: Callable[[int], str], clean: NDArray[np.bool_], layout: Layout, *, goes_on: bool = True
    ) -> None:
        self.layout = layout
        self.line = line
        self.clean = clean
        self.taken: set[int] = set()
        self.tails: dict[int, str] = {}
        self.joined: set[int] = set()
        self.mended: dict[int, list[str]] = {}
        self.rejects: list[Reject] = []
        self.tried = 0  # columns tried for the current record
        ids = [layout.columns.index(name) for name in ("JobID", "JobIDRaw") if name in layout.columns]
        first_text = layout.user_text[0] if layout.user_text else len(layout.columns)
        self.goes_on = goes_on and layout.columns[-1] in sacct_columns.USER_TEXT and not layout.trailing
        self.id_column = min(ids)
        self.identified = max(min(ids) + 1, first_text)  # leading columns that identify the start of a record

    def run(self) -> None:
        """Repair or reject all lines that are not clean, from the first to the last."""
        done = -1
        owner = -1  # line of the record that ended on the previous line; a fragment may belong to its last column
        for at in np.flatnonzero(~self.clean).tolist():
            if at <= done:
                continue
            after_clean = at > 0 and bool(self.clean[at - 1])
            if self.starts(self.line(at)):
                done, owner = self._record(at)
                continue
            done, goes_on = at, after_clean or (owner >= 0 and at - 1 == done)
            if self._is_broken_record(at):
                owner = -1
                self._reject(at, self.line(at))
                continue
            done = self._fragment(at, lambda n: not self._is_broken_record(n))
            if self.goes_on and goes_on and done - at < MOST_LINES:
                owner = at - 1 if after_clean else owner
                if self._text(at, done).strip():
                    self._append(owner, "\n" + self._text(at, done))
                continue
            owner = -1
            if done - at < MOST_LINES:
                self._reject(at, self._text(at, done))
                continue
            for line in range(at, done + 1):
                self._reject(line, self.line(line))

    def _is_broken_record(self, line: int) -> bool:
        """Return whether the line has at least half the columns of a record, too many for the rest of a job name."""
        return self.line(line).count(self.layout.delimiter) * 2 >= len(self.layout.columns)

    def _text(self, first: int, last: int) -> str:
        return "\n".join(self.line(n) for n in range(first, last + 1))

    def _append(self, owner: int, tail: str) -> None:
        if self.clean[owner]:
            self.tails[owner] = self.tails.get(owner, "") + tail
        else:
            self.mended[owner][-1] += tail

    def _record(self, at: int) -> tuple[int, int]:
        """Repair or reject the record that starts here; return (its last line, its first line if repaired else -1)."""
        text = ""
        self.tried = 0
        found: tuple[int, list[list[str]]] | None = None  # the last line at which the record may end, its readings
        doubted: list[int] = []  # lines inside that look like records
        for end in range(at, min(at + MOST_LINES, len(self.clean))):
            before, text = text, self.line(end) if end == at else f"{text}\n{self.line(end)}"
            if end > at and self._looks_like_record(end):
                is_over = self._has_all_columns(before) and not doubted
                doubt = None if is_over else self._doubt(at, end)
                if doubt and (doubt is Doubt.SECOND or self._readings(text)):
                    doubted.append(end)
                if doubt is not Doubt.SECOND and self.clean[end]:
                    continue  # a name may contain a line that looks whole
                if doubt is not Doubt.SECOND:
                    break  # this is the next record, which is broken too
            if len(self._clean_lines(at, end)) > MOST_FORGED:
                break
            ways = self._readings(text)
            if ways:
                found = end, ways
                if not (doubted and self._goes_on_inside(at, end + 1)):
                    break
        if found:
            end, ways = found
            self._join(at, end)
            if len(ways) == 1:
                self.mended[at] = ways[0]
                return end, at
            text = self._text(at, end)
            self.rejects.append(Reject(at, f"{reason(self.layout, text)}; {self._difference(*ways)}", text))
            return end, -1
        if doubted:
            return self._reject_both(at, doubted[0])
        last = self._fragment(at)
        self._reject(at, self._text(at, last))
        return last, -1

    def _goes_on_inside(self, at: int, line: int) -> bool:
        """Return whether the record of line `at`, which holds what looks like a record, may go on on that line."""
        if line >= len(self.clean):
            return False
        return not self._looks_like_record(line) or not self._is_in_order(at, line)

    def _clean_lines(self, first: int, last: int) -> list[int]:
        return [n for n in range(first, last + 1) if self.clean[n]]

    def _join(self, first: int, last: int) -> None:
        """Take the lines from first to last as one record."""
        self.taken.update(self._clean_lines(first, last))
        self.joined.update(range(first, last + 1))

    def _reject_both(self, at: int, end: int) -> tuple[int, int]:
        """Reject a record together with the one that may begin inside its text; return as `_record` does."""
        self._join(at, end)
        one, other = self._number(at), self._number(end)
        why = f"record {other} may be text of record {one}, which is otherwise {CUT}"
        self.rejects.append(Reject(at, why, self._text(at, end)))
        return end, -1

    def _looks_like_record(self, line: int) -> bool:
        return bool(self.clean[line]) or self.starts(self.line(line))

    def _has_all_columns(self, text: str) -> bool:
        return text.count(self.layout.delimiter) + 1 >= len(self.layout.columns)

    def _doubt(self, at: int, end: int) -> Doubt | None:
        """Judge the record that seems to begin on line `end`, after the record of line `at`, which is cut short.

        User text may hold such a line, and a file may hold a record that is cut short. Two facts tell them apart: text
        breaks only in a column of user text, and sacct prints ids mostly in order.
        """
        if not self._looks_like_record(end):
            return None
        if not self.clean[end] and len(self._readings(self.line(end))) != 1:
            return Doubt.SECOND  # its columns are no record's
        parts = self.line(at).split(self.layout.delimiter)
        in_text = self.layout.columns[min(len(parts), len(self.layout.columns)) - 1] in sacct_columns.USER_TEXT
        in_order = self._is_in_order(at, end)
        if in_text:
            return Doubt.BOTH if in_order else Doubt.SECOND
        return None if in_order else Doubt.BOTH

    def _is_in_order(self, at: int, end: int) -> bool:
        """Return whether the id of line `end` fits the ids of the records around lines `at` to `end`.

        It does not if it is outside their range, or if it breaks an order that the id of line `at` keeps. Clean lines
        after a line that is not clean do not count, because they may be user text too.
        """
        earlier = self._numbers(at - MOST_LINES, at - 1)[-NEIGHBOURS:]
        later = self._numbers(end + 1, end + MOST_LINES)[:NEIGHBOURS]
        number = self._number(end)
        if not min([*earlier, *later], default=number) <= number <= max(later, default=number):
            return False
        least, most = (earlier or [0])[-1], min(later, default=number)
        return least <= number <= most or not least <= self._number(at) <= most

    def _numbers(self, first: int, last: int) -> list[int]:
        """Return the ids on the clean lines from first to last that follow a clean line."""
        lines = self._clean_lines(max(first, 0), min(last, len(self.clean) - 1))
        return [self._number(n) for n in lines if n == 0 or self.clean[n - 1]]

    def _number(self, line: int) -> int:
        """Return the number of the id on a line that looks like a record; 0 if the line ends before it."""
        parts = self.line(line).split(self.layout.delimiter)
        fields: list[str] | None = parts
        if not self.clean[line]:
            excess = min(max(len(parts) - self.identified, 0), MOST_EXCESS)
            fields = next(self._ways(parts, 0, 0, excess, self.identified), None) if excess else parts
        digits = re.match("[0-9]+", (fields or [])[self.id_column]) if len(fields or []) > self.id_column else None
        return int(digits[0]) if digits else 0

    def _fragment(self, at: int, too: Callable[[int], bool] = lambda _line: True) -> int:
        """Return the last of the lines from here that are neither clean nor start a record, and that satisfy `too`."""
        end, lines = at, len(self.clean)
        while end + 1 < lines and not self.clean[end + 1] and too(end + 1) and not self.starts(self.line(end + 1)):
            end += 1
        return end

    def starts(self, raw: str) -> bool:
        """Return whether a record can start here: the columns up to the id and the first user text have their forms."""
        parts = raw.split(self.layout.delimiter)
        if not any(parts):
            return False
        if len(parts) == 1 and self.layout.columns[0] not in ("JobID", "JobIDRaw"):
            return False  # a single word could be any text, if the first column is not the id
        if len(parts) < self.identified:  # broken early: all parts except the last, which is cut, must fit
            named = zip(self.layout.columns, parts[:-1] or parts, strict=False)
            return all(fits_column(name, value, strict=True) for name, value in named)
        spent, self.tried = self.tried, 0
        excess = min(len(parts) - self.identified, MOST_EXCESS)
        first_way = next(self._ways(parts, 0, 0, excess, self.identified), None)
        self.tried = spent
        return first_way is not None

    def _readings(self, text: str) -> list[list[str]]:
        """Return the possible readings of the text as columns of valid form, at most two.

        Readings that differ only in columns that are not read (comments, paths) count as one. So do readings that
        differ in the requested features or the command line, which then become blank; neither affects how the job
        ended.
        """
        parts = text.split(self.layout.delimiter)
        if self.layout.trailing and parts.pop() != "":
            return []
        excess = len(parts) - len(self.layout.columns)
        if excess < 0 or excess > MOST_EXCESS:
            return []
        readings = self._endings(parts, 0, 0, excess, {})
        return [list(fields) for fields in readings.values()] if self.tried <= MOST_TRIED else []  # given up

    def _difference(self, one: list[str], other: list[str]) -> str:
        """Say in which column two readings differ first, among those that are read."""
        named = zip(self.layout.columns, one, other, strict=True)
        name, a, b = next(named for named in named if named[0] in sacct_columns.READ and named[1] != named[2])
        return f"it may be read in several ways: {name} is {shown(a)} or {shown(b)}"

    def _endings(
        self, parts: list[str], column: int, at: int, excess: int, known: dict[tuple[int, int], Endings]
    ) -> Endings:
        """Return at most two readings of the parts from `at` on as the columns from `column` on, by the values read.

        `excess` delimiters belong to user text. `known` holds the results for (column, at), which determine `excess`.
        """
        if column == len(self.layout.columns):
            return {(): ()} if excess == 0 else {}
        if (column, at) in known:
            return known[column, at]
        name, found = self.layout.columns[column], Endings()
        is_key = name in sacct_columns.READ and name not in _LENIENT
        for more in range(excess + 1 if name in sacct_columns.USER_TEXT else 1):
            self.tried += 1
            if self.tried > MOST_TRIED or len(found) > 1:
                break
            value = self.layout.delimiter.join(parts[at : at + 1 + more])
            if not fits_column(name, value, strict=True):
                continue
            for read, rest in self._endings(parts, column + 1, at + 1 + more, excess - more, known).items():
                key, fields = ((value, *read) if is_key else read), (value, *rest)
                before = found.setdefault(key, fields)
                if before != fields:
                    found[key] = self._agreed(column, before, fields)
        known[column, at] = found
        return found

    def _agreed(self, column: int, one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
        """Return the first of two readings from `column` on; a lenient column in which they differ is blank."""
        names = self.layout.columns[column:]
        return tuple("" if name in _LENIENT and a != b else a for name, a, b in zip(names, one, other, strict=True))

    def _ways(self, parts: list[str], column: int, at: int, excess: int, end: int) -> Iterator[list[str]]:
        """Yield every assignment of the parts from `at` on to the columns from `column` to `end`.

        `excess` delimiters belong to user text. If `end` is not the last column, parts may be left over.
        """
        if column == end:
            if excess == 0 or end < len(self.layout.columns):
                yield []
            return
        name = self.layout.columns[column]
        for more in range(excess + 1 if name in sacct_columns.USER_TEXT else 1):
            self.tried += 1
            if self.tried > MOST_TRIED:
                return
            value = self.layout.delimiter.join(parts[at : at + 1 + more])
            if fits_column(name, value, strict=True):
                for rest in self._ways(parts, column + 1, at + 1 + more, excess - more, end):
                    yield [value, *rest]

    def _reject(self, line: int, text: str) -> None:
        if text.strip():
            self.rejects.append(Reject(line, reason(self.layout, text), text))


def fits_column(name: str, value: str, strict: bool = False) -> bool:
    """Return whether the text is valid in that column; `strict` also checks columns that are not read."""
    form = sacct_columns.form(name)
    try:
        if form is not None:
            form(value)
        if strict:
            sacct_columns.check_usual(name, value)
    except ValueError:
        return False
    return True


def reason(layout: Layout, text: str) -> str:
    """Return why the text is not a record of the layout."""
    parts = text.split(layout.delimiter)
    width = len(layout.columns) + layout.trailing
    if len(parts) != width:
        what = CUT if len(parts) < width else BROKEN
        return f"{len(parts)} fields instead of {width}: {what}"
    odd = sacct_columns.odd_value(zip(layout.columns, parts, strict=False))
    return odd or f"{BROKEN} allows several readings"


def out_of_order(orders: Sequence[Int64s]) -> NDArray[np.bool_]:
    """Return which lines are out of order, (lines,), judged by several numbers of each line at once.

    orders: one array (lines,) a number, such as the job id, that rises from line to line in an ordered dump. A line is
    out of order if each of its numbers is. A number is out of order if it lies above, or below, all of the NEIGHBOURS
    different numbers on each side, although those rise across it. Repeated numbers count once: a job and its steps.

    No line is reported among the first and last NEIGHBOURS numbers, nor in a dump that is not ordered: one in which the
    neighbours rise around less than the share LEAST_RISING of the lines, or in which over MOST_ODD would be reported.
    """
    result = np.ones(len(orders[0]), np.bool_)
    for numbers in orders:
        begins = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))  # runs of equal numbers: a job and its steps
        if len(begins) <= 2 * NEIGHBOURS:
            return np.zeros(len(numbers), np.bool_)
        around = np.lib.stride_tricks.sliding_window_view(numbers[begins], 2 * NEIGHBOURS + 1)
        number, others = around[:, NEIGHBOURS], np.delete(around, NEIGHBOURS, axis=1)
        beyond = np.flatnonzero((number > others.max(axis=1)) | (number < others.min(axis=1)))
        earlier, later = others[beyond, :NEIGHBOURS], others[beyond, NEIGHBOURS:]
        odd = beyond[np.median(earlier, axis=1) <= np.median(later, axis=1)]
        runs = np.zeros(len(begins), np.bool_)
        if (around[:, 0] <= around[:, -1]).mean() >= LEAST_RISING and len(odd) <= MOST_ODD * len(around):
            runs[NEIGHBOURS + odd] = True
        result &= np.repeat(runs, np.diff(begins, append=len(numbers)))
    return result


def remedy(reject: Reject) -> str:
    """Return advice for a dump without a valid record; '' if the reject has the right columns but an invalid value."""
    if CUT not in reject.reason and BROKEN not in reject.reason:
        return ""
    return (
        ": a field contains a delimiter or line break, the file is cut, or the header belongs to another dump; dump "
        "again with sacct -P --delimiter '^|^', or with --json"
    )
