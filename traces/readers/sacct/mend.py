"""Records that user text broke: sacct does not escape, so a job name may hold the delimiter or a line break.

A broken record is put together again where the forms of all its other columns leave one way only; else it is rejected
whole. This is the slow way, walked only where lines are not clean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from traces.readers.common import Reject
from traces.readers.sacct import columns as sacct_columns
from traces.readers.sacct.layout import Layout

CUT, BROKEN = "cut short", "the delimiter or a line break in user text"
_FEATURES = "Constraints"
MOST_LINES = 50  # that one record may be spread over
MOST_EXCESS = 200  # delimiters in the user text of one record
MOST_FORGED = 8  # whole lines inside a broken record: a text of a user holds no more
MOST_TRIED = 50_000  # columns, before a record is given up: a hostile file must not take for ever


class Mender:
    """Walks over the lines that are not clean, in order.

    `line(n)` is the text of line n (0-based), `clean` (lines,) says which lines are whole records. Afterwards `mended`
    holds (first line, columns) of records put together, `taken` the clean lines that turned out to lie inside one,
    `tails` the text that goes on after a clean line, `rejects` the rest (line 0-based), `joined` all lines of records
    put together or refused as one. Where the last column is user text, lines that begin nothing go on with the record
    before them, unless `goes_on` is false.
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
        self.tried = 0  # columns of the record at hand
        ids = [layout.columns.index(name) for name in ("JobID", "JobIDRaw") if name in layout.columns]
        first_text = layout.user_text[0] if layout.user_text else len(layout.columns)
        self.goes_on = goes_on and layout.columns[-1] in sacct_columns.USER_TEXT and not layout.trailing
        self.identified = max(min(ids) + 1, first_text)  # columns by which the start of a record is known

    def run(self) -> None:
        """Puts together the lines that a line break in a text has cut, from the first to the last."""
        done = -1
        owner = -1  # line of the record that ended on the line before, to whose last column a fragment may belong
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
        """True if the line has half the columns of a record: then it is a broken record, no rest of a job name."""
        return self.line(line).count(self.layout.delimiter) * 2 >= len(self.layout.columns)

    def _text(self, first: int, last: int) -> str:
        return "\n".join(self.line(n) for n in range(first, last + 1))

    def _append(self, owner: int, tail: str) -> None:
        if self.clean[owner]:
            self.tails[owner] = self.tails.get(owner, "") + tail
        else:
            self.mended[owner][-1] += tail

    def _record(self, at: int) -> tuple[int, int]:
        """Mend or reject the record that starts here; (last line of it, its line if mended else -1)."""
        text = ""
        self.tried = 0
        for end in range(at, min(at + MOST_LINES, len(self.clean))):
            raw = self.line(end)
            text = raw if end == at else f"{text}\n{raw}"
            if self.clean[end]:
                continue  # a name may hold what looks like a whole record, but no record ends with one
            if end > at and self.starts(raw):
                break  # the next record, broken too: the one at hand must not swallow it
            inside = [n for n in range(at, end + 1) if self.clean[n]]
            if len(inside) > MOST_FORGED:
                break
            ways = self._readings(text)
            if len(ways) == 1:
                self.mended[at] = ways[0]
                self.taken.update(inside)
                self.joined.update(range(at, end + 1))
                return end, at
            if len(ways) > 1:
                self.taken.update(inside)
                self.joined.update(range(at, end + 1))
                self._reject(at, text)
                return end, -1
        last = self._fragment(at)
        self._reject(at, self._text(at, last))
        return last, -1

    def _fragment(self, at: int, too: Callable[[int], bool] = lambda _line: True) -> int:
        """The last of the lines from here on that are neither clean nor the start of a record, and satisfy `too`."""
        end, lines = at, len(self.clean)
        while end + 1 < lines and not self.clean[end + 1] and too(end + 1) and not self.starts(self.line(end + 1)):
            end += 1
        return end

    def starts(self, raw: str) -> bool:
        """Can a record start with this line: do the columns up to the id and the first user text have their forms?"""
        parts = raw.split(self.layout.delimiter)
        if not any(parts):
            return False
        if len(parts) == 1 and self.layout.columns[0] not in ("JobID", "JobIDRaw"):
            return False  # one word tells nothing where it may stand for an account
        if len(parts) < self.identified:  # broken before: what is there, except the cut last part, must fit as it is
            named = zip(self.layout.columns, parts[:-1] or parts, strict=False)
            return all(fits(name, value, strict=True) for name, value in named)
        spent, self.tried = self.tried, 0
        excess = min(len(parts) - self.identified, MOST_EXCESS)
        first_way = next(self._ways(parts, 0, 0, excess, self.identified), None)
        self.tried = spent
        return first_way is not None

    def _readings(self, text: str) -> list[list[str]]:
        """The columns of the text for each way of sharing out its delimiters that gives each its form, two at most.

        Ways that differ only in columns that are not read (comments, command lines) are one, and so are those that
        differ in the features asked for, which are then left blank: they say nothing of what became of the job.
        """
        parts = text.split(self.layout.delimiter)
        if self.layout.trailing and parts.pop() != "":
            return []
        excess = len(parts) - len(self.layout.columns)
        if excess < 0 or excess > MOST_EXCESS:
            return []
        readings: dict[tuple[str, ...], list[str]] = {}
        for fields in self._ways(parts, 0, 0, excess, len(self.layout.columns)):
            named = zip(self.layout.columns, fields, strict=True)
            told = tuple(value for name, value in named if name in sacct_columns.READ and name != _FEATURES)
            first = readings.setdefault(told, fields)
            if _FEATURES in self.layout.columns:
                place = self.layout.columns.index(_FEATURES)
                first[place] = first[place] if first[place] == fields[place] else ""
            if len(readings) > 1:
                break
        return list(readings.values()) if self.tried <= MOST_TRIED else []

    def _ways(self, parts: list[str], column: int, at: int, excess: int, end: int) -> Iterator[list[str]]:
        """Every way in which the columns from `column` to `end` take the parts from `at` on, `excess` into user text.

        Where `end` is not the last column, parts may be left over.
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
            if fits(name, value, strict=True):
                for rest in self._ways(parts, column + 1, at + 1 + more, excess - more, end):
                    yield [value, *rest]

    def _reject(self, line: int, text: str) -> None:
        if text.strip():
            self.rejects.append(Reject(line, reason(self.layout, text), text))


def fits(name: str, value: str, strict: bool = False) -> bool:
    """Can the text stand in that column? `strict` asks of columns that are not read too."""
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
    """Why the text is no record of the layout."""
    parts = text.split(layout.delimiter)
    width = len(layout.columns) + layout.trailing
    if len(parts) != width:
        what = CUT if len(parts) < width else BROKEN
        return f"{len(parts)} fields where {width} are due: {what}"
    odd = sacct_columns.odd_value(zip(layout.columns, parts, strict=False))
    return odd or f"{BROKEN} leaves several readings"


def remedy(reject: Reject) -> str:
    """What to do about a dump none of whose lines is a record; empty where the columns are there and a value is bad."""
    if not reject.reason.endswith((CUT, BROKEN)):
        return ""
    return (
        ": a delimiter or line break stands in a field, the file is cut, or the header is that of another dump; dump "
        "it again with sacct -P --delimiter '^|^', or with --json"
    )
