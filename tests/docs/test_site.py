"""The documentation site: it builds without a warning, holds every page, loads nothing from elsewhere, and searches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.browser.conftest import headless
from tests.conftest import REPOSITORY
from tests.docs.pages import pages

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in pages():
        path = page.relative_to(REPOSITORY)
        below = path.relative_to("docs") if path.parts[0] == "docs" else Path("repository") / path
        address = below.with_name("index.html") if below.name == "README.md" else below.with_suffix(".html")
        assert (site / address).is_file(), f"{path} is not at {address}"


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    found = {html.name: LOADED.findall(html.read_text(encoding="utf-8")) for html in site.rglob("*.html")}
    assert len(found) > 40
    assert not {name: loaded for name, loaded in found.items() if loaded}


def test_links_lead_to_pages_of_the_site(site: Path) -> None:
    text = (site / "repository" / "index.html").read_text(encoding="utf-8")
    assert 'href="../findings.html"' in text or 'href="../index.html"' in text
    assert ".md" not in "".join(re.findall(r'href="([^"]*)"', text))


@pytest.mark.browser
def test_the_search_finds_a_page_from_the_disk(site: Path, tmp_path: Path) -> None:
    with headless(tmp_path) as page:
        page.get((site / "index.html").as_uri())
        field = page.find_element("css selector", ".md-search__input")
        page.execute_script("arguments[0].focus()", field)
        field.send_keys("circular block bootstrap")
        for _ in range(60):
            found = [one.get_attribute("href") for one in page.find_elements("css selector", ".md-search-result__link")]
            if found:
                break
            time.sleep(0.5)
        assert any("decisions/0005" in address for address in found), found
        loaded = page.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
        assert all(address.startswith("file:") for address in loaded), loaded
