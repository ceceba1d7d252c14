"""The embedded numbers of the filters: they add up to the tables, stay small, and hold no name that is hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from reports.sections import explore
from reports.sections.explore import CLASS_RATIO, EXACT_S, embedded
from reports.source import Names, Source
from tests.reports import warehouse
from traces.store.folder import DataFolder


def _content(source: Source) -> dict[str, Any]:
    text = embedded(source)
    assert text is not None and not {"<", ">", "&"} & set(text)
    content: dict[str, Any] = json.loads(text)
    return content


def _cells(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"user": content["users"][user], "partition": content["partitions"][part], "period": period,
         "classes": dict(zip(classes[::2], classes[1::2], strict=True)),
         **dict(zip(content["sums"], sums, strict=True))}
        for user, part, period, sums, classes in content["cells"]
    ]  # fmt: skip


def test_cells_add_up_to_the_jobs_of_each_user(full_data: DataFolder) -> None:
    content = _content(Source(full_data, "gpu-lab"))
    cells = _cells(content)
    with duckdb.connect(str(full_data.warehouse), read_only=True) as connection:
        found = connection.execute(
            "SELECT count(*), count(*) FILTER (start_utc IS NOT NULL OR run_s > 0), "
            "count(*) FILTER (wait_s > 600), sum(wait_s), sum(gpu_time_s) FROM jobs "
            "WHERE user_name = 'user07-of-the-laboratory' AND partition = 'gpu-long'"
        ).fetchone()
        days = connection.execute("SELECT count(DISTINCT date_trunc('week', submit_utc)) FROM jobs").fetchone()
    mine = [cell for cell in cells if cell["user"] == "user07-of-the-laboratory" and cell["partition"] == "gpu-long"]
    sums = tuple(sum(cell[name] for cell in mine) for name in ("jobs", "ran", "long", "wait_s", "gpu_time_s"))
    assert sums == found and found is not None and found[0] > 0
    assert days == (len(content["periods"]),) and content["step"] == "week"
    for cell in cells:
        assert sum(cell["classes"].values()) == cell["waited"]
        causes = sum(cell[cause["sum"]] for cause in content["causes"])
        assert causes in (0, cell["wait_s"])


def test_classes_hold_the_waits_to_two_percent(tmp_path: Path) -> None:
    for wait in (0, 59, 60, 61, 600, 86_400, 3_000_000):
        (cell,) = _cells(_content(Source(warehouse.one_job(tmp_path / str(wait), wait_s=wait), "tiny")))
        (number,) = cell["classes"]
        begins = number if number < EXACT_S else EXACT_S * CLASS_RATIO ** (number - EXACT_S)
        assert begins <= wait * (1 + 1e-9) and wait <= max(begins, begins * CLASS_RATIO)


def test_hidden_names_are_hidden_here_too(full_data: DataFolder) -> None:
    content = _content(Source(full_data, "gpu-lab", Names(b"k" * 32)))
    assert all(name.startswith("user-") for name in content["users"]) and len(content["users"]) == 38


def test_what_is_too_much_is_summed_further(full_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _content(Source(full_data, "gpu-lab"))
    monkeypatch.setattr(explore, "MOST_NAMES", 40)
    monkeypatch.setattr(explore, "MOST_BYTES", 4_000)
    small = _content(Source(full_data, "gpu-lab"))
    assert len(json.dumps(small)) < len(json.dumps(whole))
    assert small["users"][-1] == "the other 28" and len(small["users"]) == 11 and small["step"] == "month"
    for name in ("jobs", "wait_s", "gpu_time_s"):
        assert sum(cell[name] for cell in _cells(small)) == sum(cell[name] for cell in _cells(whole))


def test_a_log_without_jobs_has_no_filters(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    warehouse.write(data, warehouse.empty_tables())
    assert embedded(Source(data, "void")) is None
