"""The layout of an sacct dump: its columns, its delimiter, and the line on which its records begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from traces.counted import counted
from traces.errors import InputError
from traces.readers.common import RawFile
from traces.readers.sacct import columns as sacct_columns

MOST_BEFORE = 20  # lines searched for the header
DELIMITERS = ("|", "\t", "\x1f", "^|^", "|#", ";", ",")  # tried if there is neither a header nor --delimiter


@dataclass(frozen=True)
class Layout:
    """The layout of an sacct dump.

    `trailing`: the delimiter also ends a line. `first`: 0-based first line of records. `widths`: widths of fixed
    columns, which have no delimiter. `carriage`: lines end in CR LF.
    """

    columns: tuple[str, ...]
    delimiter: str
    trailing: bool = False
    first: int = 0
    widths: tuple[int, ...] = ()
    carriage: bool = False

    @property
    def user_text(self) -> tuple[int, ...]:
        """Return the positions of the columns that hold user text."""
        return tuple(i for i, name in enumerate(self.columns) if name in sacct_columns.USER_TEXT)

    @property
    def read(self) -> tuple[int, ...]:
        """Return the positions of the columns that are read."""
        return tuple(i for i, name in enumerate(self.columns) if name in sacct_columns.READ)


def find_layout(file: RawFile, lines: Sequence[str]) -> Layout:
    """Infer the layout from the file's first lines, `--fields` and `--delimiter`. Raises InputError if none fits.

    Other text may precede the header (a count, a command line, a warning), except with `--fields`.
    """
    for at in range(min(len(lines), 1 if file.fields else MOST_BEFORE)):
        layout = announced(lines, at, file.delimiter)
        if layout:
            return layout
    carriage = bool(lines) and lines[0].endswith("\r")
    if file.fields is None:
        raise InputError(f"{file.path}:1: no sacct header (sacct --noheader?): name the columns with --fields")
    columns = tuple(sacct_columns.from_fields(file.fields))
    sample = [line.removesuffix("\r") if carriage else line for line in lines[:200] if line]
    for delimiter in (file.delimiter,) if file.delimiter else DELIMITERS:
        counts = [line.count(delimiter) for line in sample]
        for extra, trailing in ((0, False), (1, True)):
            fits = [c == len(columns) - 1 + extra for c in counts]
            ends = not trailing or all(line.endswith(delimiter) for line, fit in zip(sample, fits, strict=True) if fit)
            if sum(fits) * 2 > len(fits) and ends:
                return Layout(columns, delimiter, trailing, 0, carriage=carriage)
    raise InputError(
        f"{file.path}:1: the lines do not have the {counted(len(columns), 'column')} of --fields: check --fields and "
        "--delimiter"
    )


def announced(lines: Sequence[str], at: int, delimiter: str | None) -> Layout | None:
    """Return the layout that a header on line `at` declares, with `first` the line after it; None without a header.

    Rows separated by tabs may follow a header of fixed width (TACC's own tool prints them so).
    """
    carriage = lines[at].endswith("\r")
    fixed = fixed_header(lines, at)
    if fixed:
        first = at + 2
        if any("\t" in line for line in lines[first : first + 5]):
            return Layout(tuple(fixed), "\t", first=first, carriage=carriage)
        widths = tuple(len(dashes) for dashes in lines[at + 1].split())
        return (
            Layout(tuple(fixed), "", first=first, widths=widths, carriage=carriage)
            if len(widths) == len(fixed)
            else None
        )
    header = sacct_columns.from_header(lines[at].removesuffix("\r"), delimiter)
    if header is None:
        return None
    columns, mark, trailing = header
    return Layout(tuple(columns), mark, trailing, at + 1, carriage=carriage)


def fixed_header(lines: Sequence[str], start: int) -> list[str] | None:
    """Return the column names of a fixed-width header, which a line of dashes follows; None without one."""
    if len(lines) < start + 2 or not re.fullmatch(r"[- ]*-{3,}[- ]*", lines[start + 1].removesuffix("\r")):
        return None
    names = [sacct_columns.canonical(name) or name for name in lines[start].split()]
    return names if sum(name in sacct_columns.NAMES for name in names) >= 2 else None
