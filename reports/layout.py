"""The parts of a report section as data: sentences, tiles, figures, tables and actions.

`reports.build.render` turns them into HTML, and `reports.build.section_data` into JSON. Sections depend on neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from reports.format import FORMATS


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: its key in the rows, its heading, and its format (a key of format.FORMATS)."""

    name: str
    label: str
    kind: str = "text"

    @property
    def is_text(self) -> bool:
        """Whether its cells are text: a browser may wrap them, and they sort alphabetically."""
        return self.kind in ("text", "name", "code")

    @property
    def is_interval(self) -> bool:
        """Whether its cells are intervals, [low, high]."""
        return self.kind.startswith("interval")

    @property
    def style(self) -> str:
        """The CSS classes of its cells; `n` aligns and sorts them as numbers."""
        return self.kind if self.is_text else "n interval" if self.is_interval else "n"

    def show(self, row: dict[str, Any]) -> str:
        """Format this column's value in `row` for a person."""
        return str(FORMATS[self.kind](row.get(self.name)))

    def sort_key(self, row: dict[str, Any]) -> str:
        """Return the value for the sorting script: a number or text, and '' for a null, which sorts last.

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
    """One table. Rows are dicts of raw values, and an interval is [low, high]. `cut` is the number of rows left out."""

    name: str
    title: str
    caption: str
    columns: tuple[TableColumn, ...]
    rows: list[dict[str, Any]]
    cut: int = 0

    @property
    def known_columns(self) -> tuple[TableColumn, ...]:
        """The columns that have a value in at least one row; the page leaves out the others."""
        return tuple(
            column for column in self.columns if any(row.get(column.name) not in (None, "") for row in self.rows)
        )

    @property
    def holds_something(self) -> bool:
        """False where the table has no rows, and where every number in it is 0 or unknown."""
        numbers = [row.get(column.name) for row in self.rows for column in self.columns if not column.is_text]
        has_text_alone = all(column.is_text for column in self.columns)
        return bool(self.rows) and (has_text_alone or any(value not in (None, 0) for value in numbers))


@dataclass(frozen=True)
class Figure:
    """One drawing: `svg` is trusted text made by reports.figures, and `alt` describes it in words."""

    name: str
    title: str
    caption: str
    svg: str
    alt: str


@dataclass(frozen=True)
class Trend:
    """A weekly series, oldest first, with its scale.

    `first` and `last` are the days on which the first and the last week begin. `low` and `high` are the smallest and
    the largest value, formatted. `words` compares the newest weeks with those before.
    """

    values: tuple[float, ...]
    first: str
    last: str
    low: str
    high: str
    words: str = "weekly"


@dataclass(frozen=True)
class Tile:
    """One number of the summary: its value, its meaning, how it was counted (one line), and its trend if any."""

    label: str
    value: str
    meaning: str
    counted: str
    trend: Trend | None = None


@dataclass(frozen=True)
class Action:
    """A recommendation, its effect, and how far to trust that effect, all in words.

    `interval` holds the ends of the 95 % interval of the effect, in `unit`; None where there is no interval.
    """

    do: str
    effect: str
    trust: str
    interval: list[float] | None = None
    unit: str = "s"

    @property
    def verdict(self) -> str:
        """The first sentence of `trust`, without its full stop and in lower case, to end another sentence."""
        first = self.trust.split(". ")[0].removesuffix(".")
        return first[0].lower() + first[1:]


@dataclass
class Section:
    """One section of one cluster's report.

    `missing` lists what the section cannot report and why, one sentence each. A section with `applies` False is left
    out of the report, unless it is requested by name. The first of `actions` is the recommended one; the others may
    also help.
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
        """The one line that a closed section shows."""
        return next(iter(self.sentences or self.missing), "")


def columns(*specifications: str) -> tuple[TableColumn, ...]:
    """Parse columns from 'name|heading|kind'; kind defaults to text."""
    parsed = []
    for specification in specifications:
        name, label, *kind = specification.split("|")
        parsed.append(TableColumn(name, label, kind[0] if kind else "text"))
    return tuple(parsed)


def cut(rows: Sequence[dict[str, Any]], most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the first `most` rows, and the number of rows left out."""
    return list(rows[:most]), max(0, len(rows) - most)
