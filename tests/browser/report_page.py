"""The report in headless Chromium, opened from the disk, and what tests do with its filters."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reports.build import build_report
from tests.conftest import skip_or_fail
from traces.store.folder import DataFolder


@contextmanager
def shown_report(data: DataFolder, folder: Path) -> Iterator[Any]:
    """A selenium driver that shows the report of that data, its filters ready; skips where there is no Chromium."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        skip_or_fail("browser", "no chromium and chromedriver on this machine: make system")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    report = build_report(data, out=folder / "report.html")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(driver))
    try:
        browser.get(report.as_uri())
        for _ in range(100):  # the numbers behind the filters are unpacked meanwhile
            if browser.execute_script("return !document.querySelector('.explore').hidden"):
                break
            time.sleep(0.1)
        yield browser
    finally:
        browser.quit()


def set_screen(page: Any, width: int, scheme: str = "light") -> None:
    """So many pixels wide, a phone below 500, in a light or dark scheme."""
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


def choose(page: Any, **values: str) -> None:
    """Choose in the filters by what the options read: user, part, from_, to."""
    for name, value in values.items():
        page.execute_script(
            "const s = document.querySelector(`[data-pick=${arguments[0]}]`);"
            "s.value = [...s.options].find(o => o.text === arguments[1]).value;"
            "s.dispatchEvent(new Event('change', {bubbles: true}))",
            name.rstrip("_"), value,
        )  # fmt: skip


def clear(page: Any) -> None:
    """Show all again."""
    page.execute_script("document.querySelector('.clear').click()")
