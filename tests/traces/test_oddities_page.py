"""docs/oddities.md is what the tests' tables make of it."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    made = runpy.run_path(str(DOCS / "generate.py"), run_name="docs.generate")["oddities"]()
    assert (DOCS / "oddities.md").read_text(encoding="utf-8") == made, "run `make docs`"
