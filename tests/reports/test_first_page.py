"""Every number of the first page of the report on four real logs equals what SQL makes of the raw text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from features import queueing
from features.resources import utilization
from reports.causes import CAUSES as CAUSES_IN_WORDS
from reports.layout import Section
from reports.sections.summary import TREND_WEEKS, lead, summary
from reports.source import Source
from tests.features.causes.test_hand_checked import LOGS as SETTINGS
from tests.reports.first_page_figures import CAUSES, LOGS, Raw
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

# Log -> line or tile of the page -> its numbers, in their order: figures of FROM_RAW and of `Raw.figure`, those of the
# n-th largest cause (cause_n, of it jobs_n and users_n), or a fixed text that is no figure.
PAGE: dict[str, dict[str, list[str]]] = {
    "a100": {
        "lead": ["jobs", "users", "first", "last", "nodes", "capacity", "started"],
        "who": [
            "waiting_user", "waiting_users_share", "waited", "waiting_users_jobs", "=8", "size_mean", "hour",
            "hour_end", "hour_mean", "mean_wait",
        ],
        "why": ["cause_1", "cause_2", "in_use", "capacity", "nodes", "shown_since", "holder", "holders_share"],
        "do": ["cause_1", "jobs_1"],
    },
    "theta": {
        "lead": ["jobs", "first", "last", "nodes", "started"],
        "who": ["mean_wait"],
        "why": ["cause_1", "cause_2", "in_use", "nodes"],
        "do": ["cause_1", "jobs_1"],
    },
    "pozidriv": {
        "lead": ["jobs", "users", "first", "last", "nodes", "capacity", "started"],
        "who": [
            "waiting_users_share", "waited", "waiting_users_jobs", "waiting_pools_share", "=9", "=32", "size_mean",
            "mean_wait",
        ],
        "why": ["cause_1", "users_1", "cause_2", "in_use", "capacity", "nodes", "shown_since", "holders_share"],
        "do": ["cause_1", "jobs_1", "users_1"],
    },
    "openb": {
        "lead": ["jobs", "first", "last", "nodes", "capacity", "started"],
        "who": ["=95 %", "p95_wait"],
        "why": ["cause_1", "in_use", "capacity", "nodes", "shown_since"],
        "do": ["=95 %", "p95_wait"],
    },
}  # fmt: skip
TILES = {
    "jobs": "jobs", "median wait": "median_wait", "95th percentile of the wait": "p95_wait", "allocated": "in_use",
    "completed": "completed",
}  # fmt: skip
# The further advice of a page.
ALSO = {"a100": ["cause_2", "jobs_2"], "pozidriv": ["cause_2", "jobs_2", "users_2"], "theta": ["cause_2", "jobs_2"]}
# What a line names besides its numbers.
NAMES = {
    ("a100", "who"): ["size", "zone"], ("pozidriv", "who"): ["waiting_user", "waiting_pool", "size"],
    ("pozidriv", "why"): ["waiting_user", "holder"], ("pozidriv", "do"): ["waiting_user"],
}  # fmt: skip

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_QUANTITY = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d:\d\d|\d[\d,]*(?:\.\d+)? (?:%|(?:d|h|min|s)\b)(?: \d+ (?:h|min)\b)?|\d[\d,]*(?:\.\d+)?"
)


def numbers(text: str) -> list[str]:
    """Every number of a text with its unit, dates and times of day whole."""
    return _QUANTITY.findall(text)


def agrees(printed: str, figure: float | str | None) -> bool:
    """Whether a printed quantity is `figure` to the last digit printed: s for durations, 0..1 for percentages."""
    if figure is None or isinstance(figure, str):
        return printed == (figure or "–")
    parts = re.findall(r"([\d,]+(?:\.\d+)?)(?: (%|d|h|min|s))?", printed)
    factors = [0.01 if unit == "%" else _UNITS.get(unit, 1) for _, unit in parts]
    value = sum(float(digits.replace(",", "")) * factor for (digits, _), factor in zip(parts, factors, strict=True))
    last, unit = parts[-1]
    if unit == "d" or parts[0][1] == "d":
        step = 3600.0 + 60  # hours, rounded from minutes
    elif unit == "h":
        step = 60.0
    else:
        step = factors[-1] * 10.0 ** -len(last.partition(".")[2])
    return abs(value - figure) <= step / 2 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("printed", "right", "wrong"),
    [
        ("12.3 %", 0.1234, 0.1236), ("3,225 d 8 h", 278_668_231, 278_672_000), ("2 d", 172_800, 175_000),
        ("21 h 24 min", 77_069, 77_100), ("4 h", 14_429, 14_440), ("2.1 min", 127, 130), ("4 s", 4.0, 5.0),
        ("17,975", 17_975, 17_976), ("2022-10-05", "2022-10-05", "2022-10-06"),
    ],
)  # fmt: skip
def test_a_number_agrees_to_its_last_digit(printed: str, right: float | str, wrong: float | str) -> None:
    assert agrees(printed, right)
    assert not agrees(printed, wrong)
    assert numbers(f"User ann has {printed} of it.") == [printed]


class Page(NamedTuple):
    """The section `summary` of one log, its lines by name, and the causes of its waiting, largest first."""

    lines: dict[str, str]
    section: Section
    causes: list[dict[str, Any]]

    def figure(self, raw: Raw, log: str, name: str) -> float | str | None:
        """A figure of PAGE."""
        if name.startswith("="):
            return name[1:]
        kind, _, rank = name.partition("_")
        if rank.isdigit():
            column = {"cause": "share", "jobs": "jobs", "users": "users_share"}[kind]
            return float(self.causes[int(rank) - 1][column])
        return raw.figure(log, name)

    def wrong(self, raw: Raw, log: str, text: str, names: list[str]) -> list[tuple[str, str, object]]:
        """(figure, what is printed, what is right) of each number of a text that is not the figure of that name."""
        pairs = zip(names, numbers(text), strict=True)
        found = [(name, printed, self.figure(raw, log, name)) for name, printed in pairs]
        return [one for one in found if not agrees(*one[1:])]


@pytest.fixture(scope="module")
def raw(shared_traces: Path) -> Raw:
    return Raw(shared_traces)


@pytest.fixture(scope="module", params=list(LOGS))
def log(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def page(log: str, shared_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page made of the two groups of features that it needs."""
    path, settings, fields = SETTINGS[log]
    data = DataFolder(tmp_path_factory.mktemp(log))
    ingest([shared_traces / path], cluster=settings, data=data, fields=fields)
    warehouse.build(data)
    tables = queueing.compute(data, settings) | utilization.compute(data, settings)
    with duckdb.connect(str(data.warehouse)) as connection:
        for name, frame in tables.items():
            connection.register("incoming", frame.to_arrow())
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM incoming')
            connection.unregister("incoming")
        causes = connection.execute(CAUSES).pl().to_dicts()
    source = Source(data, settings.name)
    section = summary(source)
    lines = {"lead": lead(source), **dict(zip(("who", "why", "do"), section.sentences, strict=True))}
    return Page(lines, section, causes)


def test_the_raw_text_supports_what_is_assumed_of_a_log(log: str, raw: Raw) -> None:
    missing = raw.figure(log, "missing_ends") or 0
    assert (float(missing) >= 10) == LOGS[log].is_cut
    if log in ("a100", "theta"):  # declared
        assert float(raw.figure(log, "most_nodes") or 0) <= float(raw.figure(log, "nodes") or 0)


@pytest.mark.parametrize("line", ["lead", "who", "why", "do"])
def test_every_number_of_a_line_is_that_of_the_raw_text(line: str, log: str, page: Page, raw: Raw) -> None:
    assert not page.wrong(raw, log, page.lines[line], PAGE[log][line]), page.lines[line]


def test_the_names_on_the_page_are_those_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    for (of, line), names in NAMES.items():
        for name in names if of == log else []:
            value = LOGS[log].zone if name == "zone" else raw.figure(log, name)
            assert str(value) in page.lines[line], (line, name, value)


def test_further_advice_is_about_the_second_cause(log: str, page: Page, raw: Raw) -> None:
    also = page.section.actions[1:]
    assert len(also) == (log in ALSO)
    for action in also:
        assert not page.wrong(raw, log, action.effect, ALSO[log]), action.effect


def test_every_tile_is_that_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    printed = {tile.label: tile.value for tile in page.section.tiles}
    assert list(printed) == list(TILES)
    for label, name in TILES.items():
        assert agrees(printed[label], figure := raw.figure(log, name)), (label, printed[label], figure)


def test_every_week_of_a_tile_is_that_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    """The first and the last week, which the window may cut, are left out.

    Pods that run on at the end of openb count up to the last moment of another pod, 20 minutes before the snapshot.
    """
    for tile in page.section.tiles:
        weeks = [value for value in raw.weeks(log, TILES[tile.label])[1:-1] if value is not None]
        if tile.trend is None:
            assert len(weeks) < 3, tile.label
            continue
        assert tile.trend.values == pytest.approx(weeks, rel=1e-3), tile.label
        assert agrees(tile.trend.low, min(weeks)), (tile.label, tile.trend.low)
        assert agrees(tile.trend.high, max(weeks)), (tile.label, tile.trend.high)
        change = re.search(r"weeks: ([+-]\d+) % compared with", tile.trend.words)
        if change:
            ratio = sum(weeks[-TREND_WEEKS:]) / sum(weeks[-2 * TREND_WEEKS : -TREND_WEEKS])
            assert float(change[1]) == pytest.approx(100 * (ratio - 1), abs=0.5), tile.label


def test_how_a_tile_was_counted_names_the_jobs_and_days_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    counted = {tile.label: tile.counted for tile in page.section.tiles}
    for label, name in {
        "median wait": "started",
        "95th percentile of the wait": "started",
        "completed": "known_ends",
    }.items():
        assert agrees(numbers(counted[label])[0], raw.figure(log, name)), counted[label]
    since = raw.figure(log, "shown_since")
    assert f"from {since} " in counted["allocated"] and f" to {raw.figure(log, 'shown_until')} " in counted["allocated"]
    assert ("the log lacks jobs that ended before" in counted["allocated"]) == LOGS[log].is_cut


def test_causes_add_up_to_the_waiting_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    assert sum(cause["seconds"] for cause in page.causes) == raw.figure(log, "waited")


def test_the_largest_cause_is_named_first(page: Page) -> None:
    words = {cause.column: cause.words for cause in CAUSES_IN_WORDS}
    assert f" of the waiting passed {words[page.causes[0]['cause']]}" in page.lines["why"]
