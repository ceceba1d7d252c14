"""Write docs/columns.md from the tables that the code declares (`make docs`)."""

from __future__ import annotations

from pathlib import Path

import models.tables
import simulator.tables
from features.catalog import FEATURES
from features.dictionary import render
from traces.schema import CANONICAL, Table

COLUMNS = Path(__file__).parent / "columns.md"


def sections() -> dict[str, tuple[Table, ...]]:
    """Every table of the warehouse, by where it comes from."""
    return {
        "Canonical tables (`traces/schema.py`)": CANONICAL,
        **{f"Analytics: {name} (`features/{name}.py`)": module.TABLES for name, module in FEATURES.items()},
        "Simulation (`simulator/tables.py`)": (simulator.tables.SIMULATED_STARTS,),
        "Policies (`models/tables.py`)": models.tables.TABLES,
    }


if __name__ == "__main__":
    COLUMNS.write_text(render(sections()), encoding="utf-8")
