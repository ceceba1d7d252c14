"""The report in a real browser, opened from the disk: it fits, it sorts, and nothing in it runs that should not.

BATON_SCREENSHOTS=DIR keeps pictures of it at each width.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.report_page import choose, clear, set_screen, shown_report
from tests.reports import warehouse

pytestmark = pytest.mark.browser
WIDTHS_PX = (390, 768, 1280)
TOP = "return document.getElementById(arguments[0]).getBoundingClientRect().top"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The report of a cluster that has everything, hostile names included."""
    data = warehouse.full(tmp_path_factory.mktemp("full"), jobs=400, weeks=10)
    with shown_report(data, tmp_path_factory.mktemp("report")) as shown:
        yield shown


@pytest.fixture(autouse=True)
def _all_open(page: Any) -> None:
    """Every fold-out is open, as long as a test does not close it."""
    _fold(page, is_open=True)


def _fold(page: Any, *, is_open: bool) -> None:
    page.execute_script("document.querySelectorAll('details').forEach(d => { d.open = arguments[0]; })", is_open)


def test_no_error_no_dialog_and_no_request(page: Any) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    assert page.get_log("browser") == []
    with pytest.raises(NoAlertPresentException):
        page.switch_to.alert.accept()
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    scripts = page.execute_script("return [...document.scripts].map(s => s.type)")
    assert sorted(scripts) == ["", "text/plain"]
    assert page.execute_script("return document.images.length") == 0


def test_injected_script_would_not_run(page: Any) -> None:
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
        "document.body.append(s); s.remove();"
        "const d = document.createElement('p'); d.innerHTML = '<img src=x onerror=\"window.owned = 1\">';"
        "document.body.append(d); d.remove();"
    )
    assert page.execute_script("return window.owned === undefined")
    page.get_log("browser")  # the refusals, which the browser reports


def test_table_sorts_by_value_down_and_up(page: Any) -> None:
    set_screen(page, 1280)
    heading = 'table[data-table="by_user_name"] th:nth-child(5)'
    cells = (
        f"return [...document.querySelectorAll('{heading.split()[0]} tbody td:nth-child(5)')].map(c => +c.dataset.v)"
    )
    before = page.execute_script(cells)
    for word, is_down in (("descending", True), ("ascending", False)):
        page.execute_script(f"document.querySelector('{heading} button').click()")
        assert page.execute_script(f"return document.querySelector('{heading}').ariaSort") == word
        assert page.execute_script(cells) == sorted(before, reverse=is_down)


def test_text_sorts_from_a_and_empty_values_stay_last(page: Any) -> None:
    name = 'table[data-table="comparison-1-48-plain"]'
    for column, reads in ((1, "policy"), (2, "setting")):
        page.execute_script(f"document.querySelector('{name} th:nth-child({column}) button').click()")
        values = page.execute_script(
            f"return [...document.querySelectorAll('{name} tbody td:nth-child({column})')].map(c => c.dataset.v)"
        )
        if reads == "policy":
            assert values == sorted(values)
        else:
            assert values[-1] == "" and "" not in values[:-1]


def test_a_long_table_shows_its_first_rows_until_asked_for_all(page: Any) -> None:
    set_screen(page, 1280)
    name = 'table[data-table="by_user_name"]'
    shown = f"return [...document.querySelectorAll('{name} tbody tr')].filter(r => r.offsetHeight > 0).length"
    button = f"document.querySelector('{name}').closest('.scroll').nextElementSibling"
    assert page.execute_script(shown) == 10
    rows = page.execute_script(f"return document.querySelectorAll('{name} tbody tr').length")
    assert page.execute_script(f"return {button}.textContent") == f"Show all {rows} rows"
    page.execute_script(f"{button}.click()")
    assert page.execute_script(shown) == rows > 14
    assert page.execute_script(f"return {button}.ariaExpanded") == "true"
    page.execute_script(f"{button}.click()")
    assert page.execute_script(shown) == 10


@pytest.mark.parametrize("width", WIDTHS_PX)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["closed", "open", "filtered"])
def test_fits_the_width(page: Any, width: int, scheme: str, state: str) -> None:
    set_screen(page, width, scheme)
    if state == "filtered":
        choose(page, user="<script>alert(1)</script>")
    _fold(page, is_open=state != "closed")
    try:
        _fits(page, width, f"report-{width}-{scheme}-{state}")
    finally:
        clear(page)


def _fits(page: Any, width: int, name: str) -> None:
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    wide = page.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')"
        f" && e.getBoundingClientRect().right > {width} + 0.5).map(e => e.outerHTML.slice(0, 99))"
    )
    assert wide == []
    if folder := os.environ.get("BATON_SCREENSHOTS"):
        shot = page.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def test_nothing_is_cut_off_on_a_phone(page: Any) -> None:
    """What is wider than its box must scroll in it: outside of a scrolling box nothing hides what it holds."""
    set_screen(page, 390)
    cut = page.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && e.clientWidth > 0 && !e.closest('svg') && getComputedStyle(e).overflowX === 'hidden')"
        ".map(e => e.outerHTML.slice(0, 99))"
    )
    assert cut == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_line_of_a_closed_section_is_read_to_its_end(page: Any, width: int) -> None:
    """Its end says what to do; a sentence longer than any of today's runs over several lines."""
    set_screen(page, width)
    _fold(page, is_open=False)
    assert page.execute_script("return document.querySelectorAll('.gist').length") == 10
    message = page.execute_script("return document.querySelector('.gist').textContent")
    page.execute_script("document.querySelector('.gist').textContent = arguments[0].repeat(9)", f"{message} ")
    cut = page.execute_script(
        "return [...document.querySelectorAll('.gist')].filter(e => e.scrollHeight > e.clientHeight + 1"
        " || e.scrollWidth > e.clientWidth + 1 || !e.offsetHeight).map(e => e.textContent)"
    )
    page.execute_script("document.querySelector('.gist').textContent = arguments[0]", message)
    assert cut == []


def test_the_first_page_ends_within_four_screens(page: Any) -> None:
    _fold(page, is_open=False)
    for width, height in ((1280, 800), (390, 844)):
        set_screen(page, width)
        tops = page.execute_script(
            "return [...document.querySelectorAll('details')].map(d => d.getBoundingClientRect().top + scrollY)"
        )
        assert len(tops) == 10 and tops[0] / height <= (4 if width == 1280 else 5), width
        assert page.execute_script("return document.querySelector('.advice').getBoundingClientRect().top") > 0


def test_contents_lead_to_what_they_name_and_open_it(page: Any) -> None:
    set_screen(page, 1280)
    names = page.execute_script("return [...document.querySelectorAll('.contents a')].map(a => a.hash.slice(1))")
    assert len(names) == 11
    for name in names:
        _fold(page, is_open=False)
        page.execute_script(
            "scrollTo(0, 0); document.querySelector(`.contents a[href='#${arguments[0]}']`).click()", name
        )
        time.sleep(0.2)
        opened = page.execute_script("return [...document.querySelectorAll('details[open]')].map(d => d.parentNode.id)")
        assert opened == ([] if name.endswith("-summary") else [name])
        for _ in range(50):  # the page comes to rest in a while on a busy machine
            if page.execute_script(TOP, name) < 800:
                break
            time.sleep(0.1)
        assert page.execute_script(TOP, name) < 800


def test_open_all_opens_all_and_closes_them_again(page: Any) -> None:
    _fold(page, is_open=False)
    open_ = "return document.querySelectorAll('details[open]').length"
    press = "document.querySelector('.contents button').click()"
    page.execute_script(press)
    assert page.execute_script(open_) == 10
    page.execute_script(press)
    assert page.execute_script(open_) == 0


def test_paper_shows_everything(page: Any) -> None:
    _fold(page, is_open=False)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        hidden = page.execute_script(
            "return [...document.querySelectorAll('section table[data-table] tbody tr')]"
            ".filter(r => !r.checkVisibility()).length"
        )
        assert hidden == 0
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_tiles_have_a_scale_and_dates(page: Any) -> None:
    tiles = page.execute_script(
        "return [...document.querySelectorAll('.summary .tile')].map(t => [t.querySelector('.scale').innerText, "
        "t.querySelector('.dates').innerText, t.querySelector('.counted').innerText])"
    )
    assert len(tiles) == 5
    for scale, dates, counted in tiles:
        assert len(scale.split("\n")) == 2 and counted.startswith("How this was counted: ")
        assert re.fullmatch(r"2024-\d\d-\d\d\s+2024-\d\d-\d\d", dates), dates


def test_dark_is_dark(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        set_screen(page, 1280, scheme)
        colours.append(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 254)", "rgb(24, 27, 32)"]
