"""A headless Chromium for tests of pages. Nothing is downloaded: browser and driver are Debian's."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import skip_or_fail

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1000",
)


START_S, PAGE_S = 180, 90

Show = Callable[..., str]


@contextmanager
def served(command: Sequence[str], environment: Mapping[str, str], answers_at: str) -> Iterator[str]:
    """A web server of this environment's programs on a free port of the loopback; `{port}` in the command is it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name(command[0])
    server = subprocess.Popen(
        [str(program if program.exists() else shutil.which(command[0]) or program)]
        + [part.format(port=port) for part in command[1:]],
        env={**os.environ, **environment},
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(START_S):
            assert server.poll() is None, f"{command[0]} ended by itself"
            try:
                urllib.request.urlopen(url + answers_at, timeout=1)
                break
            except OSError:
                time.sleep(1)
        else:
            pytest.fail(f"{command[0]} did not answer within {START_S} s")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(90)


def opened(
    page: Any,
    url: str,
    *words: str,
    name: str,
    press: str = "",
    folder: str | None = os.environ.get("BATON_SCREENSHOTS"),
) -> str:
    """Open a page, press the buttons named, wait until all the given words are on it, and return its text.

    folder: where a picture of it is kept, as `name`.png.
    """
    page.get(url)
    find = f"[...document.querySelectorAll('button')].find(one => one.innerText.trim() === '{press}')"
    text, is_pressed = "", not press
    for _ in range(PAGE_S):
        if not is_pressed:
            is_pressed = page.execute_script(f"const found = {find}; if (found) found.click(); return !!found")
        text = page.execute_script("return document.body.innerText")
        if is_pressed and all(word in text for word in words):
            break
        time.sleep(1)
    if folder:
        time.sleep(2)  # animations
        page.save_screenshot(str(Path(folder) / f"{name}.png"))
    missing = [word for word in words if word not in text]
    assert not missing and is_pressed, f"{url} lacks {missing or press}: {text[:2000]}"
    return str(text)


@pytest.fixture
def show(chromium: Any, address: str) -> Show:
    """`opened` for the pages of one server."""
    return lambda path, *words, **options: opened(chromium, address + path, *words, **options)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A selenium driver with a profile of its own, closed at the end of the module."""
    with headless(tmp_path_factory.mktemp("profile")) as page:
        yield page


@contextmanager
def headless(profile: Path) -> Iterator[Any]:
    """A selenium driver of Debian's Chromium; the test is skipped where that is missing."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        skip_or_fail("browser", "no chromium and chromedriver on this machine: make system")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    page = Chrome(options=options, service=Service(driver))
    try:
        yield page
    finally:
        page.quit()
