"""Read the rows of a small CSV that a user writes by hand, such as profiles of models or facts about jobs.

Every error names file, line and reason. Large logs have their own readers (`traces.readers`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from traces.errors import InputError
from traces.visible import visible

_MOST_SHOWN = 60  # letters of a wrong value that a message shows


class CsvRow(NamedTuple):
    """One row of a file, and where it is."""

    file: Path
    line: int
    values: Mapping[str, str]  # column -> text without surrounding spaces; missing columns are absent

    def error(self, reason: str) -> InputError:
        """Return the error of this row."""
        return InputError(f"{visible(str(self.file))}, line {self.line}: {reason}")

    def text(self, column: str) -> str:
        """Return the value, or '' if the column is absent."""
        return self.values.get(column, "")

    def name(self, column: str) -> str:
        """Return a name. Raises InputError for an empty one and for characters that cannot be seen."""
        value = self.text(column)
        if not value or visible(value) != value:
            raise self.error(f"{column} {visible(value)[:_MOST_SHOWN]!r}: give a name of printable characters")
        return value

    def number(self, column: str, least: float = 0.0, *, above: bool = False, whole: bool = False) -> float:
        """Return a finite number of at least `least`, with `above` greater. Raises InputError for anything else."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        is_within = value > least if above else value >= least
        if not (math.isfinite(value) and is_within and (not whole or value.is_integer())):
            what = "a whole number" if whole else "a number"
            raise self.error(
                f"{column} {visible(text)[:_MOST_SHOWN]!r}: give {what} {'above' if above else 'of at least'} {least:g}"
            )
        return value


def csv_rows(file: Path, needed: Collection[str], optional: Collection[str]) -> list[CsvRow]:
    """Read all rows of a file with a heading, whose columns are in any order.

    Raises InputError for an unreadable file, an unknown or missing column, and a row of another length.
    """
    shown = visible(str(file))
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines)
            heading = [name.strip() for name in next(reader, [])]
            unknown = [name for name in heading if name not in needed and name not in optional]
            missing = [name for name in needed if name not in heading]
            if unknown or missing or len(set(heading)) < len(heading):
                what = f"unknown column {visible(unknown[0])[:_MOST_SHOWN]!r}" if unknown else "a column is named twice"
                what = f"no column {missing[0]!r}" if missing and not unknown else what
                raise InputError(f"{shown}, line 1: {what}; columns are {', '.join((*needed, *optional))}")
            found = []
            for cells in reader:
                row = CsvRow(file, reader.line_num, dict(zip(heading, map(str.strip, cells), strict=False)))
                if len(cells) != len(heading):
                    raise row.error(f"{len(cells)} values for {len(heading)} columns")
                found.append(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{shown} cannot be read: {reason}") from None
    return found
