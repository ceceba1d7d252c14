"""`dagster.steps_at_once` of deployment.toml: steps in the run's own process, or each in its own."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
import pytest

from models.deployment import FILE, VARIABLE, read_deployment
from pipelines.runs.executor import declared_executor
from pipelines.runs.home import prepared_home
from tests.ray_cluster import wait_for
from traces.store.folder import DataFolder


def two_steps() -> dg.JobDefinition:
    """Two steps; the first to begin waits for the other, unless they follow each other."""
    folder = Path(os.environ["BATON_DATA"])

    def begin(name: str, other: str) -> int:
        (folder / name).touch()
        if read_deployment(folder).dagster.steps_at_once > 1:
            wait_for((folder / other).exists, other)
        return os.getpid()

    @dg.op
    def first() -> int:
        return begin("first", "second")

    @dg.op
    def second() -> int:
        return begin("second", "first")

    @dg.job(executor_def=declared_executor(folder))
    def both() -> None:
        first()
        second()

    return both


def test_steps_work_in_as_many_processes_as_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("BATON_DATA", str(tmp_path))
    with dg.DagsterInstance.from_config(str(prepared_home(DataFolder(tmp_path)))) as instance:
        for at_once, others in ((2, 2), (1, 0)):
            (tmp_path / FILE).write_text(f"[dagster]\nsteps_at_once = {at_once}\n")
            with dg.execute_job(dg.reconstructable(two_steps), instance) as done:
                processes = {done.output_for_node(name) for name in ("first", "second")}
            assert len(processes - {os.getpid()}) == others
