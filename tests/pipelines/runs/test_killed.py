"""A run whose process was killed is failed at the next start, and one that is at work is not."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from assets.shared.resources import Baton
from pipelines.runs import home, killed
from tests.conftest import REPOSITORY
from traces.files.locks import locked
from traces.store.folder import DataFolder

# `baton run` as far as it matters here: a run in this process, in the folder's instance, with the resource.
KILLED = """
import os, signal, sys
from pathlib import Path
import dagster as dg
from assets.shared.resources import Baton
from pipelines.runs.home import instance_of
from traces.store.folder import DataFolder

@dg.op(required_resource_keys={"baton"})
def work(context):
    os.kill(os.getpid(), signal.SIGKILL)

@dg.job(resource_defs={"baton": Baton(data=sys.argv[1])})
def whole():
    work()

with instance_of(DataFolder(Path(sys.argv[1]))) as instance:
    whole.execute_in_process(instance=instance)
"""


def statuses(instance: dg.DagsterInstance) -> list[str]:
    return [run.status.value for run in instance.get_runs()]


def test_a_killed_run_is_failed_and_a_live_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    data = DataFolder(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=REPOSITORY, check=False, timeout=120)
    assert done.returncode == -9
    seen: list[list[str]] = []

    with dg.DagsterInstance.from_config(str(data.dagster)) as instance:
        (dead,) = [run.run_id for run in instance.get_runs()]
        assert statuses(instance) == ["STARTED"], "Dagster takes it for running, and its queue waits for it"
        assert killed.settle(instance, data) == [], "it may be about to get its resources"
        monkeypatch.setattr(killed, "time", SimpleNamespace(time=lambda: time.time() + killed.GRACE_S + 1))

        @dg.op(required_resource_keys={"baton"})
        def work() -> None:
            assert killed.settle(instance, data) == [], "a run is at work: nobody is taken for dead"
            seen.append(statuses(instance))

        @dg.job(resource_defs={"baton": Baton(data=str(tmp_path))})
        def whole() -> None:
            work()

        assert whole.execute_in_process(instance=instance).success
        assert seen == [["STARTED", "STARTED"]]
        home.prepared_home(data)
        assert statuses(instance) == ["SUCCESS", "FAILURE"]
        failed = instance.get_run_by_id(dead)
        assert failed is not None and failed.status == dg.DagsterRunStatus.FAILURE
        with dg.build_resources({"baton": Baton(data=str(tmp_path))}, instance=instance):
            instance.create_run_for_job(whole, status=dg.DagsterRunStatus.STARTED)
            assert len(killed.settle(instance, data)) == 1, "a sensor that has the resource is no run"


def test_a_run_whose_step_has_just_ended_is_not_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps in processes of their own, nobody is at work."""
    data = DataFolder(tmp_path)

    @dg.job
    def whole() -> None: ...

    with dg.DagsterInstance.from_config(str(home.prepared_home(data))) as instance:
        run = instance.create_run_for_job(whole, status=dg.DagsterRunStatus.STARTED)
        assert killed.settle(instance, data) == [], "it has no event yet"
        instance.report_engine_event("a step began", run)
        time.sleep(2)
        instance.report_engine_event("a step ended", run)
        later_s = time.time() + killed.GRACE_S
        for now_s, dead in ((later_s - 1, []), (later_s + 1, [run.run_id])):
            monkeypatch.setattr(killed, "time", SimpleNamespace(time=lambda now_s=now_s: now_s))
            assert killed.settle(instance, data) == dead


def test_two_processes_make_the_instance_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads, which lock each other out as processes do."""
    inside, most, waits = [], [], threading.Event()

    def prepare(data: DataFolder) -> None:
        inside.append(data)
        most.append(len(inside))
        assert waits.wait(30)
        inside.remove(data)

    def lock(root: Path, purpose: str) -> AbstractContextManager[None]:
        return locked(root, purpose, say=lambda _: waits.set())

    monkeypatch.setattr(home, "_prepare", prepare)
    monkeypatch.setattr(home, "locked", lock)
    both = [threading.Thread(target=home.prepared_home, args=(DataFolder(tmp_path),)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert most == [1, 1] and waits.is_set()
