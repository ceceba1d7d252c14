"""A run with nothing new ends at once, and anything new at all is a run again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands import run as cli_run
from pipelines.whole_runs import last_run
from pipelines.whole_runs.raw_logs import STANDARD_INPUT, RawLogs, Reading
from tests.pipelines.conftest import Baton, dump
from traces.cache.closure import Closures
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder

RESULT = {"report": "report.html", "comparison": [{"cost_w1": 0.25}], "decisions": {}}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """A data folder with a report, after a run on one raw log."""
    (tmp_path / "raw.psv").write_text("JobID|State\n1|COMPLETED\n")
    (tmp_path / "data" / "reports").mkdir(parents=True)
    (tmp_path / "data" / "dagster").mkdir()
    (tmp_path / "data" / "reports" / "report.html").write_text("<html>")
    (tmp_path / "data" / "lake" / "dagster").mkdir(parents=True)
    (tmp_path / "data" / "lake" / "dagster" / "jobs.parquet").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "report.html").write_text("<html>")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "elsewhere")
    made = DataFolder(tmp_path / "data")
    remember(made)
    return made


def logs(folder: DataFolder) -> list[RawLogs]:
    return [RawLogs(ClusterSettings("toy", nodes=4), (folder.root.parent / "raw.psv",))]


def remember(folder: DataFolder) -> None:
    last_run.remember(folder, "run", last_run.made_from(logs(folder), Reading()), RESULT)


def remembered(folder: DataFolder, command: str = "run", **options: Any) -> dict[str, Any] | None:
    return last_run.result_of(folder, command, last_run.made_from(logs(folder), Reading(**options)))


def test_nothing_new_is_answered_from_the_last_run(folder: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.dagster / "runs.db").write_text("the UI was open")
    assert remembered(folder) == RESULT
    assert "nothing new since" in capsys.readouterr().err
    assert remembered(folder, "analyze") is None


def raw_grew(folder: DataFolder) -> None:
    (folder.root.parent / "raw.psv").write_text("JobID|State\n1|COMPLETED\n2|FAILED\n")


def raw_changed_behind_its_time(folder: DataFolder) -> None:
    _same_size_and_time(folder.root.parent / "raw.psv", "JobID|State\n7|COMPLETED\n")


def report_changed_behind_its_time(folder: DataFolder) -> None:
    _same_size_and_time(folder.reports / "report.html", "<HTML>")


def report_gone(folder: DataFolder) -> None:
    (folder.reports / "report.html").unlink()


def report_gone_from_a_linked_folder(folder: DataFolder) -> None:
    (folder.root.parent / "elsewhere" / "report.html").unlink()


def lake_of_a_cluster_called_dagster(folder: DataFolder) -> None:
    (folder.lake / "dagster" / "jobs.parquet").write_text("more")


def settings_of_the_folder(folder: DataFolder) -> None:
    folder.clusters_toml.write_text("[toy]\nnodes = 5\n")


def another_source(folder: DataFolder) -> None:
    (folder.root.parent / "checkout" / "models" / "new.py").write_text("x = 2\n")


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
        report_gone_from_a_linked_folder,
        lake_of_a_cluster_called_dagster,
        settings_of_the_folder,
        another_source,
    ],
)
def test_anything_new_is_a_run(
    change: Callable[[DataFolder], None], folder: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    sources = {"pipelines/commands/run.py": "def run() -> None:\n    import models.new\n", "models/new.py": "x = 1\n"}
    for name, text in sources.items():
        (checkout / name).parent.mkdir(parents=True)
        (checkout / name).write_text(text)
    monkeypatch.setattr(last_run, "code_digest", lambda *roots: Closures(checkout).digest(*roots))
    remember(folder)
    assert remembered(folder) == RESULT
    change(folder)
    assert remembered(folder) is None


def test_other_settings_and_options_are_a_run(folder: DataFolder) -> None:
    (one,) = logs(folder)
    other = replace(one, settings=replace(one.settings, nodes=5))
    assert last_run.result_of(folder, "run", last_run.made_from([other], Reading())) is None
    assert remembered(folder, delimiter=";") is None


def test_standard_input_and_damaged_notes_are_a_run(folder: DataFolder) -> None:
    os.mkfifo(folder.root.parent / "pipe")
    for path in (STANDARD_INPUT, folder.root.parent / "pipe"):
        made_from = last_run.made_from([RawLogs(ClusterSettings("toy"), (path,))], Reading())
        assert made_from is None, "and the pipe was not read"
        last_run.remember(folder, "run", made_from, RESULT)
        assert last_run.result_of(folder, "run", made_from) is None
    assert remembered(folder) == RESULT
    (folder.artifacts / "last-runs" / "run.json").write_text("{")
    assert remembered(folder) is None


def test_a_link_that_leads_nowhere_is_a_file_like_others(folder: DataFolder) -> None:
    link = folder.root / "elsewhere.parquet"
    link.symlink_to(folder.root / "gone")
    (folder.root / "loop").symlink_to(folder.root / "loop")
    assert remembered(folder) is None, "it is new"
    remember(folder)
    assert remembered(folder) == RESULT
    link.unlink()
    link.symlink_to(folder.root / "gone too")
    assert remembered(folder) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda note: note.replace(b"0.25", b"0.26"),
        lambda note: note.replace(b'"report"', b'"rapport"'),
        lambda note: note[: len(note) // 2],
        lambda note: b"\xff\x00" + note,
        lambda _: b"[" * 200_000,
        lambda _: b"[]",
        lambda _: b"",
    ],
)
def test_a_damaged_note_is_none(folder: DataFolder, damage: Callable[[bytes], bytes]) -> None:
    path = folder.artifacts / "last-runs" / "run.json"
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert remembered(folder) is None


def test_a_note_that_cannot_be_written_is_said_and_nothing_is_lost(
    folder: DataFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder.artifacts / "last-runs" / "run.json"
    path.unlink()
    path.mkdir()
    remember(folder)
    path.rmdir()
    path.parent.rmdir()
    path.parent.write_text("a file where the folder was")
    remember(folder)
    first, second = capsys.readouterr().err.splitlines()
    assert "could not be recorded" in first and "is a folder" in first
    assert "could not be recorded" in second and "last-runs" in second
    assert remembered(folder) is None


@pytest.mark.parametrize("command", ["analyze", "run"])
def test_a_log_that_grows_during_the_run_is_new_to_the_next(
    command: str, baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, runs = dump(tmp_path / "raw.psv"), []

    def analyse(*arguments: object) -> None:
        runs.append(arguments)
        if len(runs) == 1:  # a row after it was read and before the command ends
            log.write_text(log.read_text() + log.read_text().splitlines()[-1].replace("106|106", "107|107") + "\n")

    monkeypatch.setattr(cli_run, "_analyse", analyse)
    monkeypatch.setattr(cli_run, "_learn", lambda *arguments: {})
    monkeypatch.setattr(cli_run, "_findings", lambda *arguments: [])
    monkeypatch.setattr(cli_run, "described", lambda *arguments: {"files": [], "report": "report.html"})
    monkeypatch.setattr(
        cli_run, "compared", lambda *arguments: {"comparison": [], "decisions": {}, "without_policies": {}}
    )
    for expected in (1, 2, 2):
        assert baton(command, log, "--data", tmp_path / "data", "--json").code == 0
        assert len(runs) == expected
