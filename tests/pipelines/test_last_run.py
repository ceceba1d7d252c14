"""A run with nothing new ends at once, and anything new at all is a run again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import last_run, options
from pipelines.raw_logs import STANDARD_INPUT, RawLogs, Reading
from traces.clusters import ClusterSettings
from traces.store import DataFolder

RESULT = {"report": "report.html", "comparison": [{"cost_w1": 0.25}], "decisions": {}}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """A data folder with a report, after a run on one raw log."""
    (tmp_path / "raw.psv").write_text("JobID|State\n1|COMPLETED\n")
    (tmp_path / "data" / "reports").mkdir(parents=True)
    (tmp_path / "data" / "dagster").mkdir()
    (tmp_path / "data" / "reports" / "report.html").write_text("<html>")
    made = DataFolder(tmp_path / "data")
    last_run.remember(made, "run", logs(made), Reading(), RESULT)
    return made


def logs(folder: DataFolder) -> list[RawLogs]:
    return [RawLogs(ClusterSettings("toy", nodes=4), (folder.root.parent / "raw.psv",))]


def test_nothing_new_is_answered_from_the_last_run(folder: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.dagster / "runs.db").write_text("the UI was open")
    assert last_run.result_of(folder, "run", logs(folder), Reading()) == RESULT
    assert "nothing new since" in capsys.readouterr().err
    assert last_run.result_of(folder, "analyze", logs(folder), Reading()) is None


def raw_grew(folder: DataFolder) -> None:
    (folder.root.parent / "raw.psv").write_text("JobID|State\n1|COMPLETED\n2|FAILED\n")


def raw_changed_behind_its_time(folder: DataFolder) -> None:
    _same_size_and_time(folder.root.parent / "raw.psv", "JobID|State\n7|COMPLETED\n")


def report_changed_behind_its_time(folder: DataFolder) -> None:
    _same_size_and_time(folder.reports / "report.html", "<HTML>")


def report_gone(folder: DataFolder) -> None:
    (folder.reports / "report.html").unlink()


def settings_of_the_folder(folder: DataFolder) -> None:
    folder.clusters_toml.write_text("[toy]\nnodes = 5\n")


def another_source(folder: DataFolder) -> None:
    (options.REPOSITORY / "models" / "new.py").write_text("x = 1\n")


def _same_size_and_time(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize(
    "change",
    [
        raw_grew,
        raw_changed_behind_its_time,
        report_changed_behind_its_time,
        report_gone,
        settings_of_the_folder,
        another_source,
    ],
)
def test_anything_new_is_a_run(
    change: Callable[[DataFolder], None], folder: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    for package in last_run.PACKAGES:
        (checkout / package).mkdir(parents=True)
    monkeypatch.setattr(options, "REPOSITORY", checkout)
    last_run.remember(folder, "run", logs(folder), Reading(), RESULT)
    assert last_run.result_of(folder, "run", logs(folder), Reading()) == RESULT
    change(folder)
    assert last_run.result_of(folder, "run", logs(folder), Reading()) is None


def test_other_settings_and_options_are_a_run(folder: DataFolder) -> None:
    (one,) = logs(folder)
    other = replace(one, settings=replace(one.settings, nodes=5))
    assert last_run.result_of(folder, "run", [other], Reading()) is None
    assert last_run.result_of(folder, "run", logs(folder), Reading(delimiter=";")) is None


def test_standard_input_and_damaged_notes_are_a_run(folder: DataFolder) -> None:
    piped = [RawLogs(ClusterSettings("toy"), (STANDARD_INPUT,))]
    last_run.remember(folder, "run", piped, Reading(), RESULT)
    assert last_run.result_of(folder, "run", piped, Reading()) is None
    (folder.artifacts / "last-runs" / "run.json").write_text("{")
    assert last_run.result_of(folder, "run", logs(folder), Reading()) is None
