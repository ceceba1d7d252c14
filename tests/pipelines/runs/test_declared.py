"""A DAGSTER_HOME of the user's own is used as it is; one that Baton made stays that of its data folder."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from pipelines.runs import declared, home, killed
from traces.errors import InputError
from traces.store.folder import DataFolder

OWN = "telemetry:\n  enabled: false\n# mine\n"


def test_a_users_home_is_kept_and_only_own_runs_are_called_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, mine = DataFolder(tmp_path / "data"), tmp_path / "mine"
    mine.mkdir()
    (mine / "dagster.yaml").write_text(OWN)
    monkeypatch.setenv("DAGSTER_HOME", str(mine))
    assert home.prepared_home(data) == mine == declared.declared_home(data)
    monkeypatch.setattr(killed, "time", SimpleNamespace(time=lambda: time.time() + killed.GRACE_S + 1))

    @dg.job
    def whole() -> None: ...

    with home.instance_of(data) as instance:
        instance.create_run_for_job(whole, status=dg.DagsterRunStatus.STARTED, tags=declared.run_tags(data))
        other = instance.create_run_for_job(whole, status=dg.DagsterRunStatus.STARTED, tags={declared.DATA_TAG: "b:/x"})
    with home.instance_of(data) as instance:
        status = {run.run_id: run.status for run in instance.get_runs()}
    assert status.pop(other.run_id) == dg.DagsterRunStatus.STARTED
    assert list(status.values()) == [dg.DagsterRunStatus.FAILURE]
    assert (mine / "dagster.yaml").read_text() == OWN and not (data.dagster / "dagster.yaml").exists()


def test_a_home_that_baton_made_or_one_without_configuration_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, other = DataFolder(tmp_path / "data"), tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(other))
    assert declared.declared_home(data) is None
    (other / "dagster.yaml").write_text(OWN)
    (other / declared.READY).touch()
    assert declared.declared_home(data) is None and declared.run_tags(data) == {}


def test_an_instance_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dagster.yaml").write_text("storage:\n  nowhere: {}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"^DAGSTER_HOME=.*: its Dagster instance cannot be used: .*nowhere"):
        home.instance_of(DataFolder(tmp_path / "data"))
