"""The lines of a run for a person: none is lost when a step has standard error for itself."""

from __future__ import annotations

import logging
import os
import sys
from types import SimpleNamespace

import pytest

from pipelines.runs import progress


def _event(kind: str) -> logging.LogRecord:
    event = SimpleNamespace(event_type_value=kind)
    return logging.makeLogRecord({"dagster_meta": {"dagster_event": event, "step_key": "report"}, "levelno": 10})


def test_a_line_reaches_the_terminal_while_standard_error_is_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    """Dagster shows that file by a `tail` that it ends before the last line is out."""
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
    assert began == "  report ..." and ended.startswith("  report 0.0") and ended.endswith(" s")
