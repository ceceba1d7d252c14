"""Addresses of servers that cannot be used: one line, in seconds, without the password."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.deployment import FILE
from models.tracking import address, remote
from tests.conftest import REPOSITORY
from traces.errors import InputError
from traces.store.folder import DataFolder

SECRET = "hunter-2"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (f"ftp://me:{SECRET}@host/x", "MLFLOW_TRACKING_URI=ftp://host/x cannot be used: name an http"),
        ("mlruns", "MLFLOW_TRACKING_URI=mlruns cannot be used"),
        ("sqlite:////elsewhere/mlflow.db", "remove it: then the data folder keeps its own store"),
        (f"http://me:{SECRET}@", "MLFLOW_TRACKING_URI=http:// cannot be used"),
        (f"https://me:{SECRET}@host:123456", "is not an address: Port out of range"),
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db?sslpassword={SECRET}", "=postgresql://127.0.0.1:1/db: "),
    ],
)
def test_an_address_that_cannot_be_used_is_named_without_its_password(
    given: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(address._GIVEN, address.VARIABLE, given)
    with pytest.raises(InputError) as refused:
        remote.check_servers(DataFolder(Path("data")))
    assert said in str(refused.value) and SECRET not in str(refused.value) and "\n" not in str(refused.value)


def test_without_a_server_or_with_the_own_store_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataFolder(tmp_path)
    for given in ("", f"sqlite+pysqlite:///{tmp_path}/mlflow/mlflow.db"):  # what `baton mlflow-uri` prints
        monkeypatch.setitem(address._GIVEN, address.VARIABLE, given)
        assert address.tracking_server(data) is None and address.registry_key(data) == ()
        remote.check_servers(data)
    with remote.locked_across_hosts(data, "release of toy"):
        pass


def test_the_deployment_names_servers_and_a_variable_counts_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataFolder(tmp_path)
    (tmp_path / FILE).write_text(
        "[tracking]\nuri = 'https://host/mlflow'\n[locks]\npostgres = 'postgresql://me@127.0.0.1:1/db'\n"
    )
    server, locks = address.tracking_server(data), address.lock_server(data)
    assert server is not None and server.uri == "https://host/mlflow"
    assert locks is not None and locks.uri == "postgresql+psycopg2://me@127.0.0.1:1/db"
    with pytest.raises(
        InputError, match=rf"^{tmp_path}/deployment\.toml: locks\.postgres=postgresql://127\.0\.0\.1:1/db: "
    ):
        remote.check_servers(data)
    monkeypatch.setitem(address._GIVEN, address.VARIABLE, "http://other")
    assert address.tracking_label(data) == "http://other"


def test_login_and_address_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(address._GIVEN, address.VARIABLE, f"https://me:{SECRET}%40@host:5000/mlflow/")
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    server = address.tracking_server(DataFolder(tmp_path))
    assert server is not None and (server.uri, server.label) == ("https://host:5000/mlflow",) * 2
    assert (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]) == ("me", f"{SECRET}@")
    assert address.without_secrets(f"refused {SECRET}@ \n twice", server) == "refused *** twice"


def test_a_server_that_never_answers_ends_the_command_before_work_begins(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        uri = f"http://me:{SECRET}@127.0.0.1:{mute.getsockname()[1]}"
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.cli", "run", "--data", str(tmp_path / "data")],
            cwd=REPOSITORY, env={**os.environ, "MLFLOW_TRACKING_URI": uri, "no_proxy": "*"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "") and time.monotonic() - began < 60
    assert done.stderr.startswith(f"baton: MLFLOW_TRACKING_URI=http://127.0.0.1:{uri.rpartition(':')[2]}: MLflow")
    assert done.stderr.count("\n") == 1 and SECRET not in done.stderr
    assert not (tmp_path / "data" / "lake").exists()
