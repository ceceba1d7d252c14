"""Class names are unique across the packages, so that a name in a message or a page means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("traces", "simulator", "features", "agent", "models", "reports", "assets", "pipelines")


def public_classes() -> dict[str, list[str]]:
    """Module-level classes without a leading underscore, by name, with the files that define them."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(REPOSITORY)))
    return found


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: files for name, files in public_classes().items() if len(files) > 1} == {}
