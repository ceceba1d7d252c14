"""Render the declared tables (docs/columns.md) and the declared features of `observe` as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from features.observe import DECLARED
from traces.schema import SCHEMA_VERSION, Table

UNITS = {"_node_h": "node-h", "_nodes": "nodes", "_jobs": "jobs", "_h": "h"}  # by the ending of a feature's name


def render(sections: Mapping[str, Iterable[Table]]) -> str:
    """Render one Markdown page with a heading per section (title -> its tables) and a table of columns per table."""
    lines = [
        "# Column dictionary",
        "",
        f"Generated from the code by `make docs`; schema version {SCHEMA_VERSION}. Every table but those of the",
        "[shared lake](lake.md) is in `warehouse.duckdb`, with these meanings as comments. Times are naive UTC; a null",
        "means that the log does not record the value.",
    ]
    for title, tables in sections.items():
        lines += ["", f"## {title}"]
        for table in tables:
            lines += _table(table)
    return "\n".join(lines) + "\n"


def observation_table() -> list[str]:
    """Render the features of `observe`, one row each: position, name and meaning, bounds, unit."""
    lines = ["| Num | Observation | Min | Max | Unit |", "|---|---|---|---|---|"]
    for number, (name, one) in enumerate(DECLARED.items()):
        low, high = (bound if isinstance(bound, str) else f"{bound:g}" for bound in (one.low, one.high))
        unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "1")
        lines.append(f"| {number} | {name}: {_cell(one.meaning)} | {low} | {high} | {unit} |")
    return lines


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
