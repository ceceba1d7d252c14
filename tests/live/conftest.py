"""One real Slurm for all the live tests of a process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail
from tests.live.slurm import Slurm, missing


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A running cluster; skipped (or failed, under BATON_REQUIRE=slurm) where none can be started."""
    reason = missing()
    if reason:
        skip_or_fail("slurm", reason)
    with tempfile.TemporaryDirectory(prefix="baton-slurm-") as folder:
        Path(folder).chmod(0o755)  # munge refuses a socket that others cannot reach
        cluster = Slurm(Path(folder))
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()
