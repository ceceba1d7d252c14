"""deploy/dagster.yaml: runs whose process or code server is killed are marked as failed, and the cluster goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
import yaml
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG

from pipelines.runs import launcher
from tests.conftest import REPOSITORY
from tests.deploy.test_stack import FOLDER, _free_port
from tests.pipelines.runs.test_killed import statuses

WITHIN_S = 60
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program of Dagster in a session of its own."""
    given = {"DAGSTER_HOME": str(tmp_path), "BATON_WAITING": str(tmp_path)}
    running: list[subprocess.Popen[bytes]] = []

    def program(*words: str) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
        with (tmp_path / "log").open("ab") as log:
            running.append(subprocess.Popen(
                command, env=os.environ | given, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True,
            ))  # fmt: skip
        return running[-1]

    yield program
    for process in running:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a server with the runs that it executes, as the end of its host does."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of deploy/dagster.yaml, in SQLite, with a quicker look at runs."""
    declared = yaml.safe_load((FOLDER / "dagster.yaml").read_text())
    del declared["storage"]
    declared["run_monitoring"]["poll_interval_seconds"] = 1
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(declared))
    with dg.DagsterInstance.from_config(str(tmp_path)) as opened:
        yield opened


@pytest.mark.slow
def test_the_next_run_of_a_cluster_starts_when_the_process_or_the_server_of_one_is_killed(
    instance: dg.DagsterInstance, start: Start, tmp_path: Path
) -> None:
    def wait(*wanted: str) -> None:
        """Wait for the statuses of the three runs of the cluster `lab`, and of the other cluster's."""
        until = time.monotonic() + WITHIN_S
        while tuple(reversed(statuses(instance))) != wanted:
            assert time.monotonic() < until, f"{statuses(instance)}\n{(tmp_path / 'log').read_text()[-3000:]}"
            time.sleep(0.2)

    port = _free_port()
    serve = ("dagster", "api", "grpc", "--host", "127.0.0.1", "--port", port, "--module-name", "tests.deploy.waiting")
    (tmp_path / "workspace.yaml").write_text(f"load_from: [{{grpc_server: {{host: 127.0.0.1, port: {port}}}}}]\n")
    server = start(*serve)
    start("dagster-daemon", "run", "--workspace", str(tmp_path / "workspace.yaml"))
    wait("STARTED", "QUEUED", "QUEUED", "STARTED")
    first = instance.get_runs()[-1]
    while not (tmp_path / first.run_id).exists():
        time.sleep(0.1)
    os.kill(int((tmp_path / first.run_id).read_text()), signal.SIGKILL)
    wait("FAILURE", "STARTED", "QUEUED", "STARTED")
    end(server)
    server = start(*serve)
    wait("FAILURE", "FAILURE", "STARTED", "FAILURE")
    (tmp_path / "go").touch()
    wait("FAILURE", "FAILURE", "SUCCESS", "FAILURE")


def test_a_silent_code_server_is_waited_for(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.job
    def whole() -> None: ...

    tags = {GRPC_INFO_TAG: f'{{"host": "127.0.0.1", "port": {_free_port()}}}'}
    run = instance.create_run_for_job(whole, status=dg.DagsterRunStatus.STARTED, tags=tags)
    own = instance.create_run_for_job(whole, status=dg.DagsterRunStatus.STARTED)
    health = instance.run_launcher.check_run_worker_health
    assert health(run).status == health(own).status == WorkerStatus.RUNNING
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + launcher.SILENT_S))
    assert str(health(run)) == f"NOT_FOUND: 'no answer of its code server for {launcher.SILENT_S} s'"
    assert health(own).status == WorkerStatus.RUNNING, "a run of the command line is not its own"
