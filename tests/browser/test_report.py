"""The report in a real browser, opened from the disk: it fits, it sorts, and nothing in it runs that should not.

BATON_SCREENSHOTS=DIR keeps pictures of it at each width.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from reports import format as fmt
from reports.build import build_report
from tests.conftest import skip_or_fail
from tests.reports import warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.browser
WIDTHS_PX = (390, 768, 1280)
TOP = "return document.getElementById(arguments[0]).getBoundingClientRect().top"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return warehouse.full(tmp_path_factory.mktemp("full"), jobs=400, weeks=10)


@pytest.fixture(scope="module")
def page(data: DataFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium with the report of a cluster that has everything, hostile names included."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        skip_or_fail("browser", "no chromium and chromedriver on this machine: make system")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    folder = tmp_path_factory.mktemp("report")
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


def _set(page: Any, width: int, scheme: str = "light") -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


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
@pytest.mark.parametrize("state", ["closed", "open", "filtered"])
def test_fits_the_width(page: Any, width: int, scheme: str, state: str) -> None:
    _set(page, width, scheme)
    if state == "filtered":
        _choose(page, user="<script>alert(1)</script>")
    _fold(page, is_open=state != "closed")
    try:
        _fits(page, width, f"report-{width}-{scheme}-{state}")
    finally:
        _clear(page)


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
    _set(page, 390)
    cut = page.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && e.clientWidth > 0 && !e.closest('svg') && getComputedStyle(e).overflowX === 'hidden')"
        ".map(e => e.outerHTML.slice(0, 99))"
    )
    assert cut == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_line_of_a_closed_section_is_read_to_its_end(page: Any, width: int) -> None:
    """Its end says what to do; a sentence longer than any of today's runs over several lines."""
    _set(page, width)
    _fold(page, is_open=False)
    assert page.execute_script("return document.querySelectorAll('.gist').length") == 10
    told = page.execute_script("return document.querySelector('.gist').textContent")
    page.execute_script("document.querySelector('.gist').textContent = arguments[0].repeat(9)", f"{told} ")
    cut = page.execute_script(
        "return [...document.querySelectorAll('.gist')].filter(e => e.scrollHeight > e.clientHeight + 1"
        " || e.scrollWidth > e.clientWidth + 1 || !e.offsetHeight).map(e => e.textContent)"
    )
    page.execute_script("document.querySelector('.gist').textContent = arguments[0]", told)
    assert cut == []


def test_the_first_page_ends_within_four_screens(page: Any) -> None:
    _fold(page, is_open=False)
    for width, height in ((1280, 800), (390, 844)):
        _set(page, width)
        tops = page.execute_script(
            "return [...document.querySelectorAll('details')].map(d => d.getBoundingClientRect().top + scrollY)"
        )
        assert len(tops) == 10 and tops[0] / height <= (4 if width == 1280 else 5), width
        assert page.execute_script("return document.querySelector('.advice').getBoundingClientRect().top") > 0


def test_contents_lead_to_what_they_name_and_open_it(page: Any) -> None:
    _set(page, 1280)
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


def _choose(page: Any, **values: str) -> None:
    for name, value in values.items():
        page.execute_script(
            "const s = document.querySelector(`[data-pick=${arguments[0]}]`);"
            "s.value = [...s.options].find(o => o.text === arguments[1]).value;"
            "s.dispatchEvent(new Event('change', {bubbles: true}))",
            name.rstrip("_"), value,
        )  # fmt: skip


def _clear(page: Any) -> None:
    page.execute_script("document.querySelector('.clear').click()")


@pytest.fixture
def unfiltered(page: Any) -> Iterator[Any]:
    """The page at 1280 px; whatever a test chooses of it is not chosen afterwards."""
    _set(page, 1280)
    yield page
    _clear(page)


def _tiles(page: Any, key: str) -> dict[str, Any]:
    """The filtered tiles: label -> a property of the element that holds the value."""
    return dict(
        page.execute_script(
            "return [...document.querySelectorAll('.found .tile')]"
            f".map(t => [t.children[0].innerText, t.children[1].{key}])"
        )
    )


def _sql(data: DataFolder, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(data.warehouse), read_only=True) as connection:
        return connection.execute(sql).fetchall()


STATUS = "return document.querySelector('.status').innerText"
HIDDEN = "return document.querySelector('.found').hidden"
NOT_FILTERED = (
    "return [...document.querySelectorAll('.unfiltered')].filter(b => b.checkVisibility())"
    ".map(b => b.parentNode.firstChild.textContent.trim())"
)


def test_filters_change_the_figures_and_say_what_is_filtered(unfiltered: Any, data: DataFolder) -> None:
    """Each choice against SQL on the warehouse; what is not chosen shows no second set of figures."""
    page = unfiltered
    assert page.execute_script(HIDDEN) and "all 400 jobs" in page.execute_script(STATUS)
    _choose(page, user="user07-of-the-laboratory", from_="2024-01-15", to="2024-02-12")
    ((jobs, long, gpu_hours, done),) = _sql(
        data,
        "SELECT count(*), avg((wait_s > 600)::INT), sum(gpu_time_s) / 3600, "
        "sum(gpu_time_s) FILTER (state = 'COMPLETED') / sum(gpu_time_s) FROM jobs "
        "WHERE user_name = 'user07-of-the-laboratory' AND submit_utc >= '2024-01-15' AND submit_utc < '2024-02-19'",
    )
    assert 0 < jobs < 20 and not page.execute_script(HIDDEN)
    assert page.execute_script(STATUS) == (
        f"Filtered: user user07-of-the-laboratory, 2024-01-15 up to the week of 2024-02-12. {jobs} of 400 jobs."
    )
    shown = _tiles(page, "innerText")
    assert shown["jobs"] == str(jobs) and shown["over 10 minutes"] == f"{100 * long:.1f} %"
    assert float(shown["GPU hours"].replace(",", "")) == pytest.approx(gpu_hours, rel=0.01)
    assert shown["completed"] == f"{100 * done:.1f} %"
    counted = page.execute_script("return [...document.querySelectorAll('.found .counted')].map(c => c.innerText)")
    assert len(counted) == len(shown) and all(words.startswith("How this was counted: ") for words in counted)
    _clear(page)
    assert page.execute_script(HIDDEN) and "all 400 jobs" in page.execute_script(STATUS)


def test_filtered_percentiles_are_those_of_the_jobs(unfiltered: Any, data: DataFolder) -> None:
    """To the digit, as DuckDB interpolates: each partition, week and half of the users."""
    choices = [("part", "partition", "gpu"), ("part", "partition", "gpu-long")]
    choices += [("user", "user_name", f"user{number:02d}-of-the-laboratory") for number in range(0, 30, 2)]
    for pick, column, value in choices:
        _choose(unfiltered, **{pick: value})
        (expected,) = _sql(
            data, f"SELECT quantile_cont(wait_s, 0.5), quantile_cont(wait_s, 0.95) FROM jobs WHERE {column} = '{value}'"
        )
        shown = _tiles(unfiltered, "dataset.v")
        found = [shown["median wait"], shown["95th percentile of the wait"]]
        assert [float(text) for text in found] == pytest.approx(list(expected), abs=1e-6), value
        _clear(unfiltered)
    weeks = _sql(
        data, "SELECT date_trunc('week', submit_utc)::DATE::VARCHAR, quantile_cont(wait_s, 0.95) FROM jobs GROUP BY 1"
    )
    for week, expected_s in weeks:
        _choose(unfiltered, from_=week, to=week)
        assert float(_tiles(unfiltered, "dataset.v")["95th percentile of the wait"]) == pytest.approx(
            expected_s, abs=1e-6
        )


def test_users_are_listed_by_what_they_waited(page: Any, data: DataFolder) -> None:
    names = page.execute_script("return [...document.querySelectorAll('[data-pick=user] option')].map(o => o.text)")
    rows = _sql(data, "SELECT user_name FROM jobs GROUP BY 1 ORDER BY sum(wait_s) DESC")
    assert names[0] == "all 38, by hours waited" and [name for name in names[1:] if name.startswith("user")] == [
        name for (name,) in rows if name.startswith("user")
    ]


def test_what_is_not_filtered_is_marked_and_what_can_be_is_replaced(unfiltered: Any, data: DataFolder) -> None:
    """Sections, figures, tables, advice and the one tile that these numbers do not hold; nothing without a filter."""
    page = unfiltered
    assert page.execute_script(NOT_FILTERED) == []
    _choose(page, part="gpu-long")
    marked = page.execute_script(NOT_FILTERED)
    sections = page.execute_script(
        "return [...document.querySelectorAll('h2')].map(h => h.firstChild.textContent.trim())"
    )
    assert set(sections[1:]) <= set(marked) and "allocated" in marked
    assert "Waits by user: the longest in sum" not in marked and "Waits by GPUs asked for" in marked
    shown = page.execute_script(
        "return [...document.querySelectorAll('.summary .tile')].filter(t => t.checkVisibility())"
        ".map(t => t.dataset.tile)"
    )
    assert shown == ["allocated"]
    assert not page.execute_script("return document.querySelector('[data-figure=waited]').checkVisibility()")


def test_tables_of_the_page_are_filtered(unfiltered: Any, data: DataFolder) -> None:
    """Waits by user, of one partition: each row against SQL. Show all again brings back the table as it was."""
    page = unfiltered
    _choose(page, part="gpu-long")
    rows = page.execute_script(
        "return [...document.querySelectorAll('table[data-table=by_user_name]')].map(t => t.closest('figure'))"
        ".flatMap(f => [...f.querySelectorAll('.instead tbody tr')])"
        ".map(r => [...r.cells].map(c => c.dataset.v ?? c.innerText))"
    )
    expected = _sql(
        data,
        "SELECT user_name, count(wait_s), count(*) FILTER (NOT (start_utc IS NOT NULL OR run_s > 0)), "
        "quantile_cont(wait_s, 0.5), avg(wait_s), quantile_cont(wait_s, 0.9), quantile_cont(wait_s, 0.95), "
        "quantile_cont(wait_s, 0.99), avg((wait_s > 600)::INT), sum(wait_s) FROM jobs "
        "WHERE partition = 'gpu-long' GROUP BY 1 ORDER BY sum(wait_s) DESC NULLS LAST LIMIT 25",
    )
    assert len(rows) == 25
    for row, (name, *values) in zip(rows, expected, strict=True):
        assert row[0] == name and [float(value) for value in row[1:]] == pytest.approx(values, abs=1e-6)
    whole = "document.querySelector('table[data-table=by_user_name]').checkVisibility()"
    assert not page.execute_script(f"return {whole}")
    _clear(page)
    assert page.execute_script(f"return {whole}")
    assert not page.execute_script("return document.querySelector('.instead').checkVisibility()")


def test_from_the_table_to_a_user_to_a_job_to_what_explain_says(unfiltered: Any, data: DataFolder) -> None:
    page = unfiltered
    _choose(page, part="gpu-long")
    assert "Choose a user" in page.execute_script("return document.querySelector('.found .jobs').innerText")
    assert page.execute_script("return document.querySelectorAll('.ranked tbody tr').length") == 6
    user = page.execute_script("const b = document.querySelector('.ranked .pick'); b.click(); return b.innerText")
    assert page.execute_script(STATUS).startswith(f"Filtered: user {user}, partition gpu-long.")
    jobs = page.execute_script(
        "return [...document.querySelectorAll('.found details.job')].map(d => { d.open = true; return d.innerText; })"
    )
    expected = _sql(
        data, f"SELECT job_id, wait_s FROM jobs WHERE user_name = '{user}' ORDER BY wait_s DESC NULLS LAST LIMIT 5"
    )
    assert len(jobs) == 5
    for text, (job, wait_s) in zip(jobs, expected, strict=True):
        assert text.startswith(f"job {job} waited {fmt.duration(wait_s)}, submitted ")
        assert "Waited for:" in text and f"baton explain --cluster=gpu-lab {job}" in text
    assert (
        f"job {expected[0][0]} of {user} on cluster gpu-lab" in jobs[0]
        and "ahead of it when it was submitted" in jobs[0]
    )


def test_hostile_names_stay_text_in_the_filters(unfiltered: Any) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    names = unfiltered.execute_script(
        "return [...document.querySelectorAll('[data-pick=user] option')].map(o => o.text)"
    )
    for name in [name for name in names[1:] if not name.startswith("user")]:
        _choose(unfiltered, user=name)
        unfiltered.execute_script("document.querySelectorAll('.found details').forEach(d => { d.open = true; })")
        assert f"user {name}" in unfiltered.execute_script("return document.querySelector('.status').textContent")
        tags = unfiltered.execute_script(
            "return [...document.querySelectorAll('.found img, .found script, .found h1, .found a')].length"
        )
        assert tags == 0
    with pytest.raises(NoAlertPresentException):
        unfiltered.switch_to.alert.accept()
    assert unfiltered.get_log("browser") == []


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
        _set(page, 1280, scheme)
        colours.append(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 254)", "rgb(24, 27, 32)"]
