"""The lines of a run for a person: none is lost when a step has standard error for itself, and none names an asset."""

from __future__ import annotations

import logging
import os
import re
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines import jobs
from pipelines.definitions import build_defs
from pipelines.process.interrupts import is_ending
from pipelines.runs import progress
from pipelines.runs.words import WORDS, words_of_step
from traces.progress import Progress


def _event(kind: str, step: str = "report") -> logging.LogRecord:
    event = SimpleNamespace(event_type_value=kind)
    return logging.makeLogRecord({"dagster_meta": {"dagster_event": event, "step_key": step}, "levelno": 10})


def _at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


def test_a_line_reaches_the_terminal_while_standard_error_is_a_file(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster shows that file by a `tail` that it ends before the last line is out."""
    _at_a_terminal(monkeypatch)
    lines = progress._Lines()
    error = sys.stderr.fileno()
    kept, elsewhere = os.dup(error), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(elsewhere, error)
        lines.handle(_event("STEP_START"))
        lines.handle(_event("STEP_SUCCESS"))
    finally:
        os.dup2(kept, error)
        os.close(kept)
        os.close(elsewhere)
    began, ended = capfd.readouterr().err.splitlines()
    assert began == "  writing the report ..."
    assert re.fullmatch(r"  writing the report \d+\.\d+ s", ended)


def test_a_file_gets_a_line_now_and_then_across_short_steps_and_every_failure(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.5)
    monkeypatch.setattr(Progress, "heard_at", -1e9)  # another test's progress is none of this run
    monkeypatch.setenv("COLUMNS", "20")
    lines = progress._Lines()
    timers = []
    for step in ("trace_files", "warehouse"):
        lines.handle(_event("STEP_START", step))
        timers.append(lines.timer)
        lines.handle(_event("STEP_SUCCESS", step))
    lines.handle(_event("STEP_START", "policy_comparison"))
    assert timers[0] is timers[1] is lines.timer and capfd.readouterr().err == ""
    assert lines.timer is not None
    lines.timer.join()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("  comparing policies: 0.") and line.endswith(" s so far, 2 steps done before")
    lines.handle(_event("STEP_FAILURE", "policy_comparison"))
    assert capfd.readouterr().err.startswith("  comparing policies failed 0.")
    assert lines.timer is not None
    lines.timer.cancel()


def test_nothing_is_said_after_an_interruption(capfd: pytest.CaptureFixture[str]) -> None:
    lines = progress._Lines()
    is_ending.set()
    try:
        lines.handle(_event("STEP_FAILURE"))
    finally:
        is_ending.clear()
    assert capfd.readouterr().err == ""


def test_every_step_of_every_job_has_words_of_its_own() -> None:
    defs = build_defs()
    named = (jobs.analytics, jobs.intake, jobs.everything, jobs.what_if, jobs.queue_time)
    steps = {node.name for job in named for node in defs.resolve_job_def(job.name).graph.nodes}
    steps |= {node.name for node in jobs.tune.graph.nodes}
    assert steps == WORDS.keys()
    assert len({words_of_step(step) for step in steps}) == len(steps)
