"""Every number of the first page of the report on four real logs equals what SQL makes of the raw text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from features import queueing, utilization
from reports.build import section_data
from tests.features.test_hand_checked import LOGS as SETTINGS
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
            "waiting_user", "waiting_users_share", "waited", "waiting_users_jobs", "=16", "size_mean", "mean_wait",
            "hour", "hour_end", "hour_mean", "mean_wait",
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
        "who": ["waiting_users_share", "waited", "waiting_users_jobs", "waiting_pools_share"],
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
# What is named on the page beside its numbers.
NAMES = {"a100": {"size": "size"}, "pozidriv": {"who": "waiting_user", "why": "holder", "do": "waiting_user"}}

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
    value = step = 0.0
    for digits, unit in parts:
        factor = 0.01 if unit == "%" else _UNITS.get(unit, 1)
        value += float(digits.replace(",", "")) * factor
        step = 10.0 ** -len(digits.partition(".")[2]) * factor
    if parts[-1][1] == "d" or (len(parts) == 1 and parts[0][1] == "h"):
        step = 60 if parts[-1][1] == "h" else 3600  # a zero that is left out
    return abs(value - figure) <= step / 2 * (1 + 1e-9) + (30 if step == 3600 else 0)  # days are rounded from minutes


class Page(NamedTuple):
    """The section `summary` of one log, its lines by name, and the causes of its waiting, largest first."""

    lines: dict[str, str]
    tiles: dict[str, str]
    counted: dict[str, str]
    actions: list[dict[str, Any]]
    causes: list[dict[str, Any]]

    def figure(self, raw: Raw, log: str, name: str) -> float | str | None:
        """A figure of PAGE."""
        if name.startswith("="):
            return name[1:]
        kind, _, rank = name.partition("_")
        if rank.isdigit():
            column = {"cause": "share", "jobs": "jobs", "users": "users_share"}[kind]
            return self.causes[int(rank) - 1][column]  # type: ignore[no-any-return]
        return raw.figure(log, name)


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
    section = section_data(data, settings.name, "summary")
    lines = {"lead": section["lead"], **dict(zip(("who", "why", "do"), section["sentences"], strict=True))}
    return Page(lines, section["numbers"], section["counted"], section["actions"], causes)


@pytest.mark.parametrize("line", ["lead", "who", "why", "do"])
def test_every_number_of_a_line_is_that_of_the_raw_text(line: str, log: str, page: Page, raw: Raw) -> None:
    printed, names = numbers(page.lines[line]), PAGE[log][line]
    wrong = {
        name: (text, figure)
        for name, text in zip(names, printed, strict=True)
        if not agrees(text, figure := page.figure(raw, log, name))
    }
    assert not wrong, page.lines[line]


@pytest.mark.parametrize("tile", TILES)
def test_every_tile_is_that_of_the_raw_text(tile: str, log: str, page: Page, raw: Raw) -> None:
    figure = raw.figure(log, TILES[tile])
    assert agrees(page.tiles[tile], figure), (page.tiles[tile], figure)


def test_the_page_has_no_other_tile(page: Page) -> None:
    assert list(page.tiles) == list(TILES)


def test_how_the_tiles_were_counted_names_the_jobs_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    for tile in ("median wait", "95th percentile of the wait"):
        assert agrees(numbers(page.counted[tile])[0], raw.figure(log, "started")), page.counted[tile]
    assert agrees(numbers(page.counted["completed"])[0], raw.figure(log, "known_ends")), page.counted["completed"]


def test_causes_add_up_to_the_waiting_of_the_raw_text(log: str, page: Page, raw: Raw) -> None:
    assert sum(cause["seconds"] for cause in page.causes) == raw.figure(log, "waited")
