"""Write docs/columns.md from the tables that the code declares, docs/oddities.md from the tests' (`make docs`)."""

from __future__ import annotations

from pathlib import Path

import models.tables
import simulator.tables
from features.catalog import FEATURES
from features.dictionary import render
from tests.traces import philly_oddities, published
from traces.schema import CANONICAL, Table

COLUMNS = Path(__file__).parent / "columns.md"
ODDITIES = Path(__file__).parent / "oddities.md"


def sections() -> dict[str, tuple[Table, ...]]:
    """Every table of the warehouse, by where it comes from."""
    return {
        "Canonical tables (`traces/schema.py`)": CANONICAL,
        **{f"Analytics: {name} (`features/{name}.py`)": module.TABLES for name, module in FEATURES.items()},
        "Simulation (`simulator/tables.py`)": (simulator.tables.SIMULATED_STARTS,),
        "Policies (`models/tables.py`)": models.tables.TABLES,
    }


def oddities() -> str:
    """Every oddity of a raw log that a test holds a row of, and what becomes of it."""
    lines = [
        "# Oddities of raw logs",
        "",
        "What stands in raw logs, and what becomes of it. Each row is a test of its own: `tests/traces/published.py` "
        "(run by `test_published.py`) and `tests/traces/philly_oddities.py`. `make docs` writes this page.",
        "",
        "| format | oddity | in the log | what becomes of it |",
        "|---|---|---|---|",
    ]
    rows = [(row.format, row.name, row.lines, row.becomes) for row in (*published.ROWS, *philly_oddities.ROWS)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)]) + "\n"


def _cell(text: str, most: int = 110) -> str:
    """Text that cannot leave its cell; a long one is cut."""
    shown = " / ".join(text.split("\n"))
    return (shown if len(shown) <= most else shown[: most - 1] + "...").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    ODDITIES.write_text(oddities(), encoding="utf-8")
    COLUMNS.write_text(render(sections()), encoding="utf-8")
