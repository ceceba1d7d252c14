"""Fixtures that every test package shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
REQUIRED = frozenset(filter(None, os.environ.get("BATON_REQUIRE", "").split(",")))


def skip_or_fail(what: str, reason: str) -> NoReturn:
    """Skip for want of `what` (slurm, browser), unless BATON_REQUIRE names it: then its absence is a failure."""
    if what in REQUIRED:
        pytest.fail(f"BATON_REQUIRE={what}: {reason}")
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have to say (`record_property("said", ...)`), also those of another process (xdist)."""
    for report in terminalreporter.stats.get("passed", []):
        for name, text in report.user_properties:
            if name == "said":
                terminalreporter.write_line(str(text))


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of real public traces beside the checkout; not part of the project."""
    folder = Path(os.environ.get("BATON_TRACES", REPOSITORY.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip("no real traces beside the checkout (set BATON_TRACES to their folder)")
    return folder
