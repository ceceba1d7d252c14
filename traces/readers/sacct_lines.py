"""The lines of an sacct dump into records of equal width.

sacct does not escape: a job name may hold the delimiter or a line break. Clean lines are split in bulk. A record that
such text broke is put together again where the forms of all its other columns leave one way only; else it is
rejected whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from traces.errors import InputError
from traces.readers import sacct_columns
from traces.readers.common import RawFile, Reject, map_unique, shown

MOST_LINES = 50  # that one record may be spread over
MOST_EXCESS = 200  # delimiters in the user text of one record
MOST_TRIED = 50_000  # columns, before a record is given up


@dataclass(frozen=True)
class Layout:
    """Columns in order, what stands between them, whether it also ends a line, the first line of records (0-based)."""

    columns: tuple[str, ...]
    delimiter: str
    trailing: bool
    first: int

    @property
    def user_text(self) -> tuple[int, ...]:
        """Positions of the columns that hold user text."""
        return tuple(i for i, name in enumerate(self.columns) if name in sacct_columns.USER_TEXT)


def find_layout(file: RawFile, lines: Sequence[str]) -> Layout:
    """How the file is laid out, by its first lines, `--fields` and `--delimiter`. Raises InputError where none fits."""
    start = 1 if lines and re.fullmatch(r"\d+", lines[0].strip()) and len(lines) > 1 else 0
    fixed = fixed_header(lines, start)
    if fixed:
        first = start + 2
        if any("\t" in line for line in lines[first : first + 5]):
            return Layout(tuple(fixed), "\t", False, first)
        raise InputError(f"{file.path}:{first + 1}: fixed-width columns cut ids and states: dump with `sacct -P`")
    header = sacct_columns.from_header(lines[0], file.delimiter) if lines else None
    if header:
        return Layout(tuple(header[0]), header[1], header[2], 1)
    if file.fields is None:
        raise InputError(f"{file.path}:1: no sacct header: name the columns with --fields (sacct --noheader)")
    columns = tuple(sacct_columns.from_fields(file.fields))
    sample = [line for line in lines[:200] if line]
    for delimiter in (file.delimiter,) if file.delimiter else ("|", "\t", "\x1f", "^|^", ";", ","):
        counts = [line.count(delimiter) for line in sample]
        for extra, trailing in ((0, False), (1, True)):
            fits = [c == len(columns) - 1 + extra for c in counts]
            ends = not trailing or all(line.endswith(delimiter) for line, fit in zip(sample, fits, strict=True) if fit)
            if sum(fits) * 2 > len(fits) and ends:
                return Layout(columns, delimiter, trailing, 0)
    raise InputError(
        f"{file.path}:1: the lines do not have the {len(columns)} columns of --fields: check it and --delimiter"
    )


def fixed_header(lines: Sequence[str], start: int) -> list[str] | None:
    """Column names of a fixed-width header that a line of dashes follows."""
    if len(lines) < start + 2 or not re.fullmatch(r"[- ]*-{3,}[- ]*", lines[start + 1]):
        return None
    names = [sacct_columns.canonical(name) or name for name in lines[start].split()]
    return names if sum(name in sacct_columns.NAMES for name in names) >= 2 else None


@dataclass
class Records:
    """The records: `frame` has a text column for each column of the layout, `line` (1-based) and `raw`."""

    frame: pl.DataFrame
    rejects: list[Reject]


def split(lines: list[str], layout: Layout) -> Records:
    """All lines from `layout.first` on into records and rejects."""
    width = len(layout.columns)
    delimiters = width - 1 + layout.trailing
    body = pl.DataFrame({"raw": lines[layout.first :]}, schema={"raw": pl.String}).with_row_index(
        "line", layout.first + 1
    )
    header = lines[layout.first - 1] if layout.first else None
    body = body.filter(pl.col("raw") != header) if header else body  # dumps that were put together keep their headers
    fits = pl.col("raw").str.count_matches(layout.delimiter, literal=True) == delimiters
    if layout.trailing:
        fits &= pl.col("raw").str.ends_with(layout.delimiter)
    body = body.with_columns(pl.col("line").cast(pl.Int64), fits.alias("fits"))
    split_up = pl.col("raw").str.split_exact(layout.delimiter, delimiters)
    candidates = body.filter("fits").with_columns(split_up.alias("parts"))
    names = [f"field_{i}" for i in range(delimiters + 1)]
    candidates = candidates.unnest("parts").select("line", "raw", *(pl.col(n) for n in names[:width]))
    candidates.columns = ["line", "raw", *layout.columns]
    clean = _clean(candidates, layout)
    good = candidates.filter(clean)
    if len(good) == len(body):
        return Records(good, [])
    return _mend(body, good, layout)


def _clean(frame: pl.DataFrame, layout: Layout) -> pl.Series:
    """Does every column of the row have its form?"""
    clean = pl.repeat(True, len(frame), dtype=pl.Boolean, eager=True)
    for name in layout.columns:
        values = frame[name]
        form = sacct_columns.form(name)
        if name in sacct_columns.TIMES:
            pattern = f"^(?:{sacct_columns._TIME.pattern}|None|Unknown|N/A|NONE|0|4294967295|)$"
            valid = values.str.contains(pattern)
        elif name in ("JobID", "JobIDRaw"):
            valid = values.str.contains(r"^\d+(?:_(?:\d+|\[[^\]]*\]?))?(?:\+\d+)?(?:\.[A-Za-z0-9_+.]+)?$")
        elif form is None:
            continue
        else:
            valid = (
                map_unique(values, form, pl.Object)[1] if name in sacct_columns.FORMS else ~values.str.contains("\t")
            )
        clean &= valid
    return clean


def _mend(body: pl.DataFrame, good: pl.DataFrame, layout: Layout) -> Records:
    """The records of the lines that are not clean, and those that are."""
    mender = _Mender(body, set(good["line"].to_list()), layout)
    mender.run()
    if mender.taken:
        good = good.filter(~pl.col("line").is_in(list(mender.taken)))
    if mender.tails:
        last = layout.columns[-1]
        tails = pl.DataFrame({"line": list(mender.tails), "tail": list(mender.tails.values())})
        good = (
            good.join(tails.with_columns(pl.col("line").cast(pl.Int64)), on="line", how="left", maintain_order="left")
            .with_columns(
                pl.concat_str(last, pl.col("tail").fill_null("")), pl.concat_str("raw", pl.col("tail").fill_null(""))
            )
            .drop("tail")
        )
    mended = pl.DataFrame(mender.mended, schema=good.schema, orient="row")
    return Records(pl.concat([good, mended]).sort("line"), mender.rejects)


class _Mender:
    """Walks over the lines that are not clean, in order."""

    def __init__(self, body: pl.DataFrame, clean: set[int], layout: Layout) -> None:
        self.layout = layout
        self.clean = clean
        self.lines: dict[int, str] = {}
        bad = [line for line in body["line"].to_list() if line not in clean]
        near = {line + k for line in bad for k in range(MOST_LINES)}
        self.lines = {line: raw for line, raw in zip(body["line"], body["raw"], strict=True) if line in near}
        self.bad = bad
        self.taken: set[int] = set()  # clean lines that turned out to lie inside a record
        self.tails: dict[int, str] = {}  # clean line -> text that goes on in the next lines
        self.mended: list[tuple[object, ...]] = []
        self.rejects: list[Reject] = []
        self.tried = 0  # columns of the record at hand
        ids = [layout.columns.index(name) for name in ("JobID", "JobIDRaw") if name in layout.columns]
        first_text = layout.user_text[0] if layout.user_text else len(layout.columns)
        self.identified = max(min(ids) + 1, first_text)  # columns by which the start of a record is known

    def run(self) -> None:
        done = 0
        last_text = self.layout.columns[-1] in sacct_columns.USER_TEXT and not self.layout.trailing
        owner = 0  # line of the record that ended on the line before, to whose last column a fragment may belong
        for line in self.bad:
            if line <= done:
                continue
            raw = self.lines[line]
            if self._starts(raw):
                done, owner = self._record(line)
            elif last_text and (line - 1 in self.clean or (owner and line - 1 == done)):
                owner = line - 1 if line - 1 in self.clean else owner
                done = self._fragment(line)
                self._append(owner, "\n" + "\n".join(self.lines[n] for n in range(line, done + 1)))
            else:
                done, owner = self._fragment(line), 0
                text = "\n".join(self.lines[n] for n in range(line, done + 1))
                if text.strip():
                    self._reject(line, text)

    def _append(self, owner: int, tail: str) -> None:
        if owner in self.clean:
            self.tails[owner] = self.tails.get(owner, "") + tail
            return
        number = next(i for i, row in enumerate(self.mended) if row[0] == owner)
        row = self.mended[number]
        self.mended[number] = (row[0], f"{row[1]}{tail}", *row[2:-1], f"{row[-1]}{tail}")

    def _record(self, line: int) -> tuple[int, int]:
        """Mend or reject the record that starts here; (last line of it, its line if mended else 0)."""
        text = ""
        for end in range(line, line + MOST_LINES):
            raw = self.lines.get(end)
            if raw is None:
                break
            text = raw if end == line else f"{text}\n{raw}"
            if end in self.clean:
                continue  # a name may hold what looks like a whole record, but no record ends with one
            if end > line and self._starts(raw):
                break  # the next record, broken too: the one at hand must not swallow it
            fields = self._only_way(text)
            if fields is not None:
                self.mended.append((line, text, *fields))
                self.taken.update(n for n in range(line, end + 1) if n in self.clean)
                return end, line
        last = self._fragment(line)
        self._reject(line, "\n".join(self.lines[n] for n in range(line, last + 1)))
        return last, 0

    def _fragment(self, line: int) -> int:
        """Last line of the run of lines from here that neither are clean nor start a record."""
        end = line
        while end + 1 in self.lines and end + 1 not in self.clean and not self._starts(self.lines[end + 1]):
            end += 1
        return end

    def _starts(self, raw: str) -> bool:
        """Can a record start with this line: do the columns up to the id and the first user text have their forms?"""
        parts = raw.split(self.layout.delimiter)
        if not any(parts):
            return False
        if len(parts) == 1 and self.layout.columns[0] not in ("JobID", "JobIDRaw"):
            return False  # one word tells nothing where it may stand for an account
        if len(parts) < self.identified:  # broken before: what is there, except the cut last part, must fit as it is
            named = zip(self.layout.columns, parts[:-1] or parts, strict=False)
            return all(self._fits(name, value, strict=True) for name, value in named)
        self.tried = 0
        excess = min(len(parts) - self.identified, MOST_EXCESS)
        return next(self._ways(parts, 0, 0, excess, self.identified), None) is not None

    @staticmethod
    def _fits(name: str, value: str, strict: bool = False) -> bool:
        form = sacct_columns.form(name)
        try:
            if form is not None:
                form(value)
            if strict and form is not None and name not in sacct_columns.FORMS:
                sacct_columns.check_unread(name, value)
        except ValueError:
            return False
        return True

    def _only_way(self, text: str) -> list[str] | None:
        """The columns of the text, where one way only of sharing out its delimiters gives each its form.

        Ways that differ only in columns that are not read (comments, command lines) are one.
        """
        parts = text.split(self.layout.delimiter)
        if self.layout.trailing and parts.pop() != "":
            return None
        excess = len(parts) - len(self.layout.columns)
        if excess < 0 or excess > MOST_EXCESS:
            return None
        self.tried = 0
        found: dict[tuple[str, ...], list[str]] = {}
        for fields in self._ways(parts, 0, 0, excess, len(self.layout.columns)):
            named = zip(self.layout.columns, fields, strict=True)
            found.setdefault(tuple(value for name, value in named if name in sacct_columns.READ), fields)
            if len(found) > 1:
                return None
        return next(iter(found.values()), None) if self.tried <= MOST_TRIED else None

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
            if self._fits(name, value, strict=True):
                for rest in self._ways(parts, column + 1, at + 1 + more, excess - more, end):
                    yield [value, *rest]

    def _reject(self, line: int, text: str) -> None:
        self.rejects.append(Reject(line, self._reason(text), text))

    def _reason(self, text: str) -> str:
        layout = self.layout
        parts = text.split(layout.delimiter)
        width = len(layout.columns) + layout.trailing
        if len(parts) != width:
            what = "cut short" if len(parts) < width else "the delimiter or a line break in user text"
            return f"{len(parts)} fields where {width} are due: {what}"
        for name, value in zip(layout.columns, parts, strict=False):
            if not self._fits(name, value):
                return f"column {name}: {shown(value)} is not of its form"
        return "the delimiter or a line break in user text leaves several readings"
