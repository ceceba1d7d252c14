"""Fixtures that every test package shares."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from traces.files.locks import locked

REPOSITORY = Path(__file__).resolve().parents[1]
REQUIRED = frozenset(filter(None, os.environ.get("BATON_REQUIRE", "").split(",")))

# Tests work in stores and instances of their own, whatever the shell of the developer names.
for name in ("MLFLOW_TRACKING_URI", "BATON_LOCKS", "DAGSTER_HOME"):
    os.environ.pop(name, None)

# A deadline on one example fails tests when other workers hold the cores.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

# Files of minutes, the longest first. Two workers take whole files in this order (`--no-loadscope-reorder`): left to
# itself xdist begins with the files of most tests, and one worker is alone at the end with a file of one long test.
LONGEST = (
    "tests/pipelines/test_road.py", "tests/models/study/test_causal_fit.py", "tests/pipelines/test_pipeline.py",
    "tests/test_readme.py", "tests/live/test_ingest.py", "tests/live/test_agent.py",
    "tests/pipelines/test_life.py", "tests/models/release/test_at_once.py",
    "tests/models/provisioning/policies/test_reference.py", "tests/pipelines/test_made_again.py",
    "tests/live/test_fidelity.py", "tests/deploy/test_stack.py",
    "tests/live/test_agent_sight.py", "tests/browser/test_dagster_ui.py", "tests/assets/test_code_versions.py",
    "tests/live/test_reasons.py", "tests/examples/test_frameworks.py", "tests/live/test_tutorial.py",
    "tests/browser/test_mlflow_ui.py", "tests/models/provisioning/test_policies.py",
    "tests/traces/store/test_killed.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of LONGEST first; all others stay in the order in which they were found."""
    rank = {str(REPOSITORY / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))


def skip_or_fail(what: str, reason: str) -> NoReturn:
    """Skip for want of `what` (slurm, browser), unless BATON_REQUIRE names it: then its absence is a failure."""
    if what in REQUIRED:
        pytest.fail(f"BATON_REQUIRE={what}: {reason}")
    pytest.skip(reason)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Call `make` on a new folder once for all workers of this run, and return this worker's own copy of the folder."""
    own = factory.mktemp(name)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        make(own)
        return own
    shared = factory.getbasetemp().parent / "made-once"
    with locked(shared, name):
        if not (shared / name).is_dir():
            part = shared / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)  # of a worker that failed
            part.mkdir()
            make(part)
            part.rename(shared / name)
    return shutil.copytree(shared / name, own, dirs_exist_ok=True)


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
