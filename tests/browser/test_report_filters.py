"""The filters in a real browser, against SQL: exact figures, marks on what is not filtered, the way to a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from reports import format as fmt
from tests.browser.report_page import choose, clear, set_screen, shown_report
from tests.reports import warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return warehouse.full(tmp_path_factory.mktemp("full"), jobs=400, weeks=10)


@pytest.fixture(scope="module")
def page(data: DataFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The report, every fold-out open."""
    with shown_report(data, tmp_path_factory.mktemp("report")) as shown:
        shown.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        yield shown


@pytest.fixture
def unfiltered(page: Any) -> Iterator[Any]:
    """The page at 1280 px; whatever a test chooses of it is not chosen afterwards."""
    set_screen(page, 1280)
    yield page
    clear(page)


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
    choose(page, user="user07-of-the-laboratory", from_="2024-01-15", to="2024-02-12")
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
    clear(page)
    assert page.execute_script(HIDDEN) and "all 400 jobs" in page.execute_script(STATUS)


def test_filtered_percentiles_are_those_of_the_jobs(unfiltered: Any, data: DataFolder) -> None:
    """To the digit, as DuckDB interpolates: each partition, week and half of the users."""
    choices = [("part", "partition", "gpu"), ("part", "partition", "gpu-long")]
    choices += [("user", "user_name", f"user{number:02d}-of-the-laboratory") for number in range(0, 30, 2)]
    for pick, column, value in choices:
        choose(unfiltered, **{pick: value})
        (expected,) = _sql(
            data, f"SELECT quantile_cont(wait_s, 0.5), quantile_cont(wait_s, 0.95) FROM jobs WHERE {column} = '{value}'"
        )
        shown = _tiles(unfiltered, "dataset.v")
        found = [shown["median wait"], shown["95th percentile of the wait"]]
        assert [float(text) for text in found] == pytest.approx(list(expected), abs=1e-6), value
        clear(unfiltered)
    weeks = _sql(
        data, "SELECT date_trunc('week', submit_utc)::DATE::VARCHAR, quantile_cont(wait_s, 0.95) FROM jobs GROUP BY 1"
    )
    for week, expected_s in weeks:
        choose(unfiltered, from_=week, to=week)
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
    choose(page, part="gpu-long")
    marked = page.execute_script(NOT_FILTERED)
    sections = page.execute_script(
        "return [...document.querySelectorAll('h2')].map(h => h.firstChild.textContent.trim())"
    )
    assert set(sections[1:]) <= set(marked) and "allocated" in marked
    replaced = {"Waits by user, longest total wait first", "Waits by GPUs requested", "Waits by final state"}
    assert not {*replaced, "Waits by month of submission"} & set(marked) and "How long jobs wait, by size" in marked
    shown = page.execute_script(
        "return [...document.querySelectorAll('.summary .tile')].filter(t => t.checkVisibility())"
        ".map(t => t.dataset.tile)"
    )
    assert shown == ["allocated"]
    assert not page.execute_script("return document.querySelector('[data-figure=waited]').checkVisibility()")


def test_tables_of_the_page_are_filtered(unfiltered: Any, data: DataFolder) -> None:
    """Waits by user, of one partition: each row against SQL. Show all again brings back the table as it was."""
    page = unfiltered
    choose(page, part="gpu-long")
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
    clear(page)
    assert page.execute_script(f"return {whole}")
    assert not page.execute_script("return document.querySelector('.instead').checkVisibility()")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("by_size_bucket", "CASE WHEN q.size_bucket = '>8' THEN '9' ELSE q.size_bucket END"),
        ("by_state", "q.state"),
        ("by_month", "strftime(timezone('America/Chicago', timezone('UTC', q.submit_utc)), '%Y-%m')"),
    ],
)
def test_waits_by_size_state_and_month_are_filtered(unfiltered: Any, data: DataFolder, table: str, column: str) -> None:
    """Of one partition, each row against SQL, in the order of the table of all jobs."""
    choose(unfiltered, part="gpu-long")
    rows = unfiltered.execute_script(
        f"return [...document.querySelector('table[data-table={table}]').closest('figure')"
        ".querySelectorAll('.instead tbody tr')].map(r => [...r.cells].map(c => c.dataset.v ?? c.innerText))"
    )
    expected = _sql(
        data,
        f"SELECT {column}, count(q.wait_s), count(*) FILTER (NOT q.ran), quantile_cont(q.wait_s, 0.5), avg(q.wait_s), "
        "quantile_cont(q.wait_s, 0.9), quantile_cont(q.wait_s, 0.95), quantile_cont(q.wait_s, 0.99), "
        "avg((q.wait_s > 600)::INT), sum(q.wait_s) FROM queueing_delay q "
        "WHERE q.partition = 'gpu-long' GROUP BY 1 ORDER BY 1",
    )
    assert len(rows) == len(expected) > 1
    for row, (name, *values) in zip(rows, expected, strict=True):
        assert row[0] == ">8" if name == "9" else row[0] == name
        assert [float(value) for value in row[1:]] == pytest.approx(values, abs=1e-6)


def test_from_the_table_to_a_user_to_a_job_to_what_explain_says(unfiltered: Any, data: DataFolder) -> None:
    page = unfiltered
    choose(page, part="gpu-long")
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
        choose(unfiltered, user=name)
        unfiltered.execute_script("document.querySelectorAll('.found details').forEach(d => { d.open = true; })")
        assert f"user {name}" in unfiltered.execute_script("return document.querySelector('.status').textContent")
        tags = unfiltered.execute_script(
            "return [...document.querySelectorAll('.found img, .found script, .found h1, .found a')].length"
        )
        assert tags == 0
    with pytest.raises(NoAlertPresentException):
        unfiltered.switch_to.alert.accept()
    assert unfiltered.get_log("browser") == []
