"""Every page is in the index, and no link of any page leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs.pages import anchors, links, pages

INDEX = REPOSITORY / "docs" / "README.md"


def test_every_page_is_in_the_index() -> None:
    listed = {(INDEX.parent / target.split("#")[0]).resolve() for target in links(INDEX)}
    there = {page.resolve() for page in (REPOSITORY / "docs").rglob("*.md")} - {INDEX.resolve()}
    assert len(there) > 10
    missing = sorted(str(page.relative_to(REPOSITORY)) for page in there - listed)
    assert not missing, f"name these pages in docs/README.md: {missing}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_resolve(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}, and there is no {there}"
        assert REPOSITORY in (there, *there.parents), f"{target} leads out of the repository"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {there.name} has no heading #{anchor}: {anchors(there)}"
