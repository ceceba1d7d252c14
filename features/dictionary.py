"""Render the column dictionary (docs/columns.md) as Markdown from the declared tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from traces.schema import SCHEMA_VERSION, Table


def render(sections: Mapping[str, Iterable[Table]]) -> str:
    """Render one Markdown page with a heading per section (title -> its tables) and a table of columns per table."""
    lines = [
        "# Column dictionary",
        "",
        f"Generated from the code by `make docs`; schema version {SCHEMA_VERSION}. Every table is in",
        "`warehouse.duckdb`, with these meanings as comments. Times are naive UTC; a null means that the log does",
        "not record the value.",
    ]
    for title, tables in sections.items():
        lines += ["", f"## {title}"]
        for table in tables:
            lines += _table(table)
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    lines = ["", f"### {table.name}", "", _cell(table.meaning) + "."]
    if table.key:
        lines += ["", "Key: " + ", ".join(f"`{name}`" for name in table.key) + "."]
    lines += ["", "| column | type | unit | null | meaning |", "|---|---|---|---|---|"]
    for column in table.columns:
        null = "yes" if column.nullable else "no"
        lines.append(f"| `{column.name}` | {column.type} | {_cell(column.unit)} | {null} | {_cell(column.meaning)} |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
