"""`dagster.steps_at_once` of deployment.toml: steps in the run's own process, or each in its own."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
import pytest

from models.deployment import FILE, VARIABLE
from pipelines.runs.executor import declared_executor
from pipelines.runs.home import prepared_home
from traces.store.folder import DataFolder


def two_steps() -> dg.JobDefinition:
    @dg.op
    def first() -> int:
        return os.getpid()

    @dg.op
    def second() -> int:
        return os.getpid()

    @dg.job(executor_def=declared_executor(Path(os.environ["BATON_DATA"])))
    def both() -> None:
        first()
        second()

    return both


def test_steps_work_in_as_many_processes_as_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("BATON_DATA", str(tmp_path))
    with dg.DagsterInstance.from_config(str(prepared_home(DataFolder(tmp_path)))) as instance:
        for at_once, others in ((1, 0), (2, 2)):
            (tmp_path / FILE).write_text(f"[dagster]\nsteps_at_once = {at_once}\n")
            with dg.execute_job(dg.reconstructable(two_steps), instance) as done:
                processes = {done.output_for_node(name) for name in ("first", "second")}
            assert len(processes - {os.getpid()}) == others
