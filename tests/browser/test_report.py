"""The report in a real browser, opened from the disk: it fits, it sorts, and nothing in it runs that should not.

BATON_SCREENSHOTS=DIR keeps pictures of it at each width.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.build import build_report
from tests.conftest import skip_or_fail
from tests.reports import warehouse

pytestmark = pytest.mark.browser
WIDTHS_PX = (390, 768, 1280)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium with the report of a cluster that has everything, hostile names included."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        skip_or_fail("browser", "no chromium and chromedriver on this machine: make system")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    folder = tmp_path_factory.mktemp("report")
    report = build_report(warehouse.full(folder / "data", jobs=400, weeks=10), out=folder / "report.html")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(driver))
    try:
        browser.get(report.as_uri())
        yield browser
    finally:
        browser.quit()


def _set(page: Any, width: int, scheme: str = "light") -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


def test_no_error_no_dialog_and_no_request(page: Any) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    assert page.get_log("browser") == []
    with pytest.raises(NoAlertPresentException):
        page.switch_to.alert.accept()
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.execute_script("return document.scripts.length + document.images.length") == 1


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
    _set(page, 1280)
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
    _set(page, 1280)
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
def test_fits_the_width(page: Any, width: int, scheme: str) -> None:
    _set(page, width, scheme)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    wide = page.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')"
        f" && e.getBoundingClientRect().right > {width} + 0.5).map(e => e.outerHTML.slice(0, 99))"
    )
    assert wide == []
    if folder := os.environ.get("BATON_SCREENSHOTS"):
        shot = page.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (Path(folder) / f"report-{width}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))


def test_dark_is_dark(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        _set(page, 1280, scheme)
        colours.append(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 254)", "rgb(24, 27, 32)"]
