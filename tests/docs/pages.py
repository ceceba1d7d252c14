"""The Markdown pages of the repository: their links, headings, tables and diagrams."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import REPOSITORY

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```\n?", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page of the top level and of the folders that hold any; no environment, no data of a run."""
    folders = ("docs", "examples", "bench", "data/sample")
    below = [page for folder in folders for page in (REPOSITORY / folder).rglob("*.md")]
    return sorted([*REPOSITORY.glob("*.md"), *below])


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of the page's links within the repository: a path, an anchor, or both."""
    unquoted = re.sub(r"`[^`\n]*`", "", prose(page))
    return [target for target in _LINK.findall(unquoted) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """What `#...` may name on the page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def tables(page: Path) -> list[list[dict[str, str]]]:
    """The rows of each table of the page, by heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", prose(page), re.MULTILINE):
        header, _, *rows = [[c.strip() for c in line.strip("|").split(" |")] for line in block.splitlines()]
        found.append([dict(zip(header, row, strict=True)) for row in rows])
    return found


def arrows(page: Path, diagram: int) -> set[tuple[str, str]]:
    """(from, to) of every arrow of one of the page's Mermaid diagrams, counted from 0."""
    blocks = re.findall(r"^```mermaid\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\s+(\w+)(?:\[.*\])? -->(?:\|[^|]*\|)? (\w+)", blocks[diagram], re.MULTILINE))
