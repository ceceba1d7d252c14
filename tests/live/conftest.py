"""One real Slurm of each version for all the live tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agent.check import TESTED
from tests.live.slurm import WHOLE, Slurm


@pytest.fixture(scope="session", params=TESTED)
def version(request: pytest.FixtureRequest) -> str:
    """The version of Slurm; of the tests that ask for it, all run on one version before the first runs on the next."""
    return str(request.param)


@pytest.fixture(scope="session")
def slurm(version: str) -> Iterator[Slurm]:
    """A running cluster; skipped (or failed, under BATON_REQUIRE) where none can be started."""
    with Slurm.running(WHOLE if os.environ.get("BATON_LIVE") == "full" else None, version=version) as cluster:
        yield cluster
