"""What a section is made of: sentences, tables and figures, still as data.

`reports.build` renders these to HTML, `reports.build.section_data` to JSON; the sections know neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from reports.format import FORMATS


@dataclass(frozen=True)
class Column:
    """One column of a table: key in the rows, heading, and how its values are printed (a key of format.FORMATS)."""

    name: str
    label: str
    kind: str = "text"

    @property
    def is_text(self) -> bool:
        """Whether its cells are text, which a browser may break and sorts by letters."""
        return self.kind in ("text", "name", "code")

    @property
    def is_interval(self) -> bool:
        """Whether its cells are intervals, [low, high]."""
        return self.kind.startswith("interval")

    @property
    def style(self) -> str:
        """The CSS classes of its cells: `n` aligns and sorts as numbers."""
        return self.kind if self.is_text else "n interval" if self.is_interval else "n"

    def show(self, row: dict[str, Any]) -> str:
        """The value as a person reads it."""
        return str(FORMATS[self.kind](row.get(self.name)))

    def sort_key(self, row: dict[str, Any]) -> str:
        """The value as the sorting script reads it: a number, or text; '' for a null, which sorts last.

        An interval sorts by its lower end.
        """
        value = row.get(self.name)
        if value is None:
            return ""
        if self.is_interval:
            return repr(float(value[0]))
        if isinstance(value, datetime | date):
            return value.isoformat()
        return self.show(row) if self.is_text else repr(float(value))


@dataclass(frozen=True)
class TableView:
    """One table: rows are dicts of raw values; `cut` rows more exist than are shown. An interval is [low, high]."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]]
    cut: int = 0

    @property
    def known_columns(self) -> tuple[Column, ...]:
        """The columns that hold something: what is empty in every row tells a person nothing."""
        return tuple(
            column for column in self.columns if any(row.get(column.name) not in (None, "") for row in self.rows)
        )

    @property
    def holds_something(self) -> bool:
        """False where there is no row, and where every number in it is 0 or unknown."""
        numbers = [row.get(column.name) for row in self.rows for column in self.columns if not column.is_text]
        has_text_alone = all(column.is_text for column in self.columns)
        return bool(self.rows) and (has_text_alone or any(value not in (None, 0) for value in numbers))


@dataclass(frozen=True)
class Figure:
    """One drawing: `svg` is trusted text made by reports.figures, `alt` says in words what it shows."""

    name: str
    title: str
    caption: str
    svg: str
    alt: str


@dataclass(frozen=True)
class Trend:
    """A number week by week, oldest first, with its scale: the days on which the first and the last week begin, and
    the smallest and the largest value as a person reads them. `words` compares the newest weeks with those before."""

    values: tuple[float, ...]
    first: str
    last: str
    low: str
    high: str
    words: str = "weekly"


@dataclass(frozen=True)
class Tile:
    """One of the summary's numbers, what it means, how it was counted (one line), and its trend where there is one."""

    label: str
    value: str
    meaning: str
    counted: str
    trend: Trend | None = None


@dataclass(frozen=True)
class Action:
    """What is recommended, what it would do, and how far to trust that; all three are for a person.

    `interval` are the ends of the 95 % interval of the effect, in `unit`; None where it has none.
    """

    do: str
    effect: str
    trust: str
    interval: list[float] | None = None
    unit: str = "s"

    @property
    def verdict(self) -> str:
        """How far to trust it, in short: the first sentence, as the end of another."""
        first = self.trust.split(". ")[0].removesuffix(".")
        return first[0].lower() + first[1:]


@dataclass
class Section:
    """One section of one cluster. `missing` says what the log does not hold, one sentence each.

    A section that does not apply to this kind of log is left out of a report, unless it is asked for by name.
    `actions` are the recommended one and what else would help, in that order.
    """

    name: str
    title: str
    sentences: list[str] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[TableView] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    applies: bool = True

    @property
    def gist(self) -> str:
        """One line for the closed fold-out."""
        return next(iter(self.sentences or self.missing), "")


def columns(*specifications: str) -> tuple[Column, ...]:
    """Columns from 'name|heading|kind' (kind defaults to text)."""
    parsed = []
    for specification in specifications:
        name, label, *kind = specification.split("|")
        parsed.append(Column(name, label, kind[0] if kind else "text"))
    return tuple(parsed)


def cut(rows: Sequence[dict[str, Any]], most: int) -> tuple[list[dict[str, Any]], int]:
    """The first `most` rows, and how many are left out."""
    return list(rows[:most]), max(0, len(rows) - most)
