"""Runs, versions and champions on a real MLflow server that two data folders share, and locks in a real Postgres."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.artifact import Artifact
from models.release import champion, line
from models.release.log import POLICY_DECISIONS
from models.tracking import address, registered, remote, runs, store
from models.tracking import versions as tracking
from tests.browser.conftest import served
from tests.conftest import REPOSITORY, skip_or_fail
from tests.models.pair_tables import artifact
from tests.postgres import running_postgres
from traces.errors import InputError, WorkError
from traces.store.folder import DataFolder

FIRST = artifact("constant-lead", (0.0,), 0.0, policy="reactive")
BETTER = artifact("estimate-ratio", (1.0,), 1.0, policy="start-estimate")
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
CONSUMER = """
import mlflow.artifacts, pandas
model = mlflow.pyfunc.load_model("models:/baton-policy-toy@champion")
names = [one.name for one in model.metadata.get_input_schema()]
answer = model.predict(pandas.DataFrame([[0.0] * len(names)], columns=names))
mlflow.artifacts.download_artifacts("models:/baton-policy-toy@champion", dst_path="policy")
assert list(answer.columns) == ["submit", "score"], answer
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("server"), "baton", {}) as address:
        yield address


def mlflow_server(folder: Path, app: str, environment: dict[str, str]) -> AbstractContextManager[str]:
    command = ("mlflow", "server", "--app-name", app, "--workers", "1", "--host", "127.0.0.1", "--port", "{port}")
    stores = ("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "kept"))
    return served((*command, *stores), {**QUIET, **environment}, "/health")


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets a variable as the shell does before the first import."""
    return lambda variable, value: monkeypatch.setitem(address._GIVEN, variable, value)


def put(data: DataFolder, one: Artifact) -> int:
    return tracking.register(data, "toy", one, tags={"policy": "x"}, description="d", metrics={"cost": 1.0})


def test_two_data_folders_share_one_champion(url: str, tmp_path: Path, named: Callable[[str, str], None]) -> None:
    """Release, promotion, rollback and killed runs; then a consumer that has mlflow-skinny alone."""
    named(address.VARIABLE, url)
    here, there = DataFolder(tmp_path / "here"), DataFolder(tmp_path / "there")
    for data in (here, there):
        data.ensure_writable()
    assert champion.promote(here, "toy", put(here, FIRST), "the first") == 1
    assert champion.promote(there, "toy", put(there, BETTER), "it is better") == 2
    assert not any((data.mlflow / "mlflow.db").exists() for data in (here, there))
    assert registered.champion_version(here, "toy") == 1, "its copy is renewed by the next command"
    champion.fetch_champions(here, "toy")
    for data in (here, there):
        folder = registered.folder(data, "toy")
        assert registered.champion_version(data, "toy") == 2
        assert Artifact.load(folder / registered.CHAMPION).manifest["policy"] == "start-estimate"
    assert POLICY_DECISIONS.read(here, "toy")["reason"].to_list() == ["the first", "it is better"]

    opened = store.client(there)
    killed, running = (
        opened.create_run(store.experiment_id(opened), tags={store.MARK_TAG: mark}).info.run_id
        for mark in ("killed", "running")
    )
    (here.mlflow / store.OPEN_REMOTE).mkdir(exist_ok=True)
    (here.mlflow / store.OPEN_REMOTE / "killed").touch()
    store.initialise(here)
    assert [opened.get_run(one).info.status for one in (killed, running)] == ["KILLED", "RUNNING"]

    row = {"cluster": "toy", "registered_version": 1, POLICY_DECISIONS.time: datetime.now(UTC)}
    with pytest.raises(WorkError, match="version 2 of baton-policy-toy became champion during this release"):
        line.make_champion(here, POLICY_DECISIONS, row, "x", opponent=1)
    assert runs.by_cost_url(here).startswith(f"{url}/#/experiments/")
    assert consumed(tmp_path, url) == "start-estimate"
    assert champion.rollback(here, "toy") == 1
    assert tracking.versions(there, "toy") == [1, 2]
    assert consumed(tmp_path, url) == "reactive"

    named(address.VARIABLE, "")
    store.initialise(here)
    assert champion.promote(here, "toy", put(here, BETTER), "of the own store") == 1
    assert Artifact.load(registered.folder(here, "toy") / "1").manifest["policy"] == "start-estimate"


def consumed(folder: Path, url: str) -> str:
    """The policy of the champion, loaded and fetched where only mlflow-skinny, numpy and pandas are installed."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MLFLOW", "VIRTUAL_ENV", "BATON"))}
    uv, python = str(Path(sys.executable).with_name("uv")), str(folder / "venv" / "bin" / "python")
    if not Path(python).exists():
        from importlib.metadata import version

        needed = [f"{name}=={version(name)}" for name in ("mlflow-skinny", "numpy", "pandas")]
        for command in (
            [uv, "venv", "-q", "--python", sys.executable, str(folder / "venv")],
            [uv, "pip", "install", "-q", "--python", python, *needed],
        ):
            subprocess.run(command, check=True, cwd=folder, env=outside, timeout=300)
    done = subprocess.run(
        [python, "-I", "-c", CONSUMER], cwd=folder, env={**outside, **QUIET, "MLFLOW_TRACKING_URI": url},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(Artifact.load(folder / "policy" / "artifacts" / "policy").manifest["policy"])


@pytest.mark.slow
def test_without_a_login_nothing_is_read_or_promoted(
    tmp_path: Path, named: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own basic authentication."""
    if find_spec("flask_wtf") is None:
        skip_or_fail("remote", "the extra `remote` is not installed")
    password = secrets.token_hex(8)
    (tmp_path / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{tmp_path}/auth.db\n"
        f"admin_username = admin\nadmin_password = {password}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    guarded = {"MLFLOW_AUTH_CONFIG_PATH": str(tmp_path / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": password}
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    data = DataFolder(tmp_path / "data")
    data.ensure_writable()
    with mlflow_server(tmp_path, "basic-auth", guarded) as guarded_url:
        for login in ("", "admin:wrong-password@"):
            named(address.VARIABLE, guarded_url.replace("//", f"//{login}"))
            remote._check_http.cache_clear()
            with pytest.raises(InputError, match="the server refuses this login; set MLFLOW_TRACKING_USERNAME"):
                remote.check_servers(data)
            with pytest.raises(WorkError, match="MLflow store cannot be used"):
                tracking.champion(data, "toy")
        named(address.VARIABLE, guarded_url.replace("//", f"//admin:{password}@"))
        remote.check_servers(data)
        assert tracking.champion(data, "toy") is None


@pytest.fixture
def postgres() -> Iterator[str]:
    with running_postgres() as (address, _password):
        yield address


HOLD = """
import sys, time
from pathlib import Path
from models.tracking.remote import locked_across_hosts
from traces.store.folder import DataFolder
with locked_across_hosts(DataFolder(Path(sys.argv[1])), "release of toy"):
    print("held", flush=True)
    time.sleep(300)
"""


def test_of_two_hosts_one_holds_the_lock(
    postgres: str, tmp_path: Path, named: Callable[[str, str], None], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It is free when its holder is killed, may be nested, and is known to be lost when its connection is."""
    named(address.LOCKS, postgres)
    data = DataFolder(tmp_path / "here")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "there")], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "BATON_LOCKS": postgres},
    ) as other:  # fmt: skip
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        monkeypatch.setattr("time.sleep", lambda _: other.send_signal(signal.SIGKILL))
        with remote.locked_across_hosts(data, "release of toy"), remote.locked_across_hosts(data, "release of toy"):
            assert other.wait(10) == -signal.SIGKILL
            said = capsys.readouterr().err
            assert f"process {other.pid} holds it" in said and "waiting for the release of toy on postgresql" in said
            assert postgres.split(":")[2].split("@")[0] not in said
            remote.check_locks()
            with remote._connected(address.lock_server(data)) as killer:  # type: ignore[arg-type]
                from sqlalchemy import text

                killer.execute(text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"))
            with pytest.raises(WorkError, match=r"the lock on postgresql.* was lost"):
                remote.check_locks()
