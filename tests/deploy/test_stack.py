"""`deploy/`: what its files promise, and the commands of compose.yaml as processes of this machine."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import dump
from tests.postgres import running_postgres
from traces.store import warehouse
from traces.store.folder import DataFolder

FOLDER = REPOSITORY / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("mlflow", "code", "webserver", "daemon")
START_S = 600
HEALTH = "{ instance { daemonHealth { allDaemonStatuses { daemonType healthy required } } } }"
LOCATIONS = "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"
RUNS = "{ runsOrError { ... on Runs { results { status tags { key value } } } } }"


def test_every_service_is_pinned_checked_and_on_the_loopback_alone() -> None:
    for name, service in SERVICES.items():
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"\d+\.\d+", tag), f"{name}: {service['image']}"
        assert service["healthcheck"]["test"][0] == "CMD" and service["restart"] == "unless-stopped"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert name not in OURS or service["cap_drop"] == ["ALL"]
    assert not [name for name in ("postgres", "code") if "ports" in SERVICES[name]]


def test_no_file_holds_a_password_and_each_that_is_needed_has_a_name() -> None:
    given = set(re.findall(r"\$\{(\w+):\?\}", (FOLDER / "compose.yaml").read_text()))
    lines = (FOLDER / "baton.env.example").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == {f"{name}=" for name in given}
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert ("PASSWORD" not in name and "SECRET" not in name) or str(value).startswith("${"), name
    assert "password =" not in (FOLDER / "auth.ini").read_text()


def test_the_image_is_built_from_the_lock_and_runs_without_rights() -> None:
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    assert "--require-hashes -r requirements.lock" in "".join(lines)
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["baton"]
    for line in lines:
        if line.startswith("COPY "):
            for source in line.split()[1:-1]:
                assert (REPOSITORY / source).exists(), source


def test_the_units_start_what_the_containers_start() -> None:
    for name in OURS:
        unit = (FOLDER / "systemd" / f"baton-{name}.service").read_text()
        started = re.search(r"ExecStart=/opt/baton/\.venv/bin/(.*)", unit)
        assert started is not None
        assert started[1].replace("127.0.0.1", "0.0.0.0").split() == SERVICES[name]["command"]
    variables = {name for service in OURS for name in SERVICES[service]["environment"]}
    written = (FOLDER / "systemd" / "servers.env").read_text() + (
        FOLDER / "systemd" / "passwords.env.example"
    ).read_text()
    missing = {name for name in variables if f"\n{name}=" not in written}
    assert missing == {"MLFLOW_SERVER_ALLOWED_HOSTS"}, "the default allows the loopback"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The services as processes, on free ports: the variables of the code server."""
    with running_postgres() as (address, password):
        postgres = urlsplit(address)
        for line in (FOLDER / "databases.sql").read_text().splitlines():
            _ask(address, line)
        ports = {written: _free_port() for written in ("5000", "4000", "3000")}
        secret = {"BATON_POSTGRES_PASSWORD": password, "BATON_MLFLOW_PASSWORD": secrets.token_hex(12),
                  "BATON_MLFLOW_SECRET": secrets.token_hex(12)}  # fmt: skip
        deploy = tmp_path / "deploy"
        shutil.copytree(FOLDER, deploy)
        for folder in ("data", "artifacts", "dagster"):
            (tmp_path / "srv" / folder).mkdir(parents=True)

        def here(text: str) -> str:
            text = re.sub(r"\$\{(\w+):\?\}", lambda match: secret[match[1]], text)
            text = re.sub(r"\$\{\w+:-(.*)\}", r"\1", text)
            text = text.replace("/opt/baton/deploy", str(deploy)).replace("/srv/baton", str(tmp_path / "srv"))
            text = text.replace("mlflow:5000", f"127.0.0.1:{ports['5000']}").replace("0.0.0.0", "127.0.0.1")
            return ports.get(text, text)

        workspace = (deploy / "workspace.yaml").read_text()
        (deploy / "workspace.yaml").write_text(workspace.replace("4000", ports["4000"]))
        configuration = (deploy / "dagster.yaml").read_text().replace("5432", str(postgres.port))
        (tmp_path / "srv" / "dagster" / "dagster.yaml").write_text(configuration)
        common = {"DAGSTER_HOME": here("/srv/baton/dagster"), "BATON_DATA": here("/srv/baton/data")}
        running: list[subprocess.Popen[bytes]] = []
        variables: dict[str, dict[str, str]] = {}
        try:
            for name in OURS:
                given = {key: here(str(value)) for key, value in SERVICES[name]["environment"].items()}
                given |= {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port)}
                variables[name] = {**os.environ, **common, **given} | ({"BATON_CODE": "127.0.0.1"})
                program, *words = [here(word) for word in SERVICES[name]["command"]]
                log = (tmp_path / f"{name}.log").open("wb")
                running.append(subprocess.Popen(
                    [str(Path(sys.executable).with_name(program)), *words], env=variables[name], cwd=REPOSITORY,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                ))  # fmt: skip
                _wait_for(SERVICES[name], here, variables[name], running[-1], tmp_path / f"{name}.log")
            yield variables["code"] | {"WEBSERVER": f"http://127.0.0.1:{ports['3000']}"}
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGTERM)
            for process in reversed(running):
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait_for(
    service: dict[str, Any], here: Any, variables: dict[str, str], process: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait until the service's own health check passes."""
    _cmd, program, *words = service["healthcheck"]["test"]
    check = [str(Path(sys.executable).with_name(program)), *(here(word) for word in words)]
    check = [re.sub(r"127\.0\.0\.1:(5000|3000)", lambda match: f"127.0.0.1:{here(match[1])}", word) for word in check]
    until = time.monotonic() + START_S
    while subprocess.run(check, env=variables, cwd=REPOSITORY, capture_output=True, timeout=120).returncode != 0:
        assert process.poll() is None and time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(1)


def _ask(address: str, statement: str) -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine(address.replace("postgresql:", "postgresql+psycopg2:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def _graphql(stack: dict[str, str], query: str) -> dict[str, Any]:
    asked = Request(
        f"{stack['WEBSERVER']}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(asked, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)["data"]
    return found


def _until(found: Callable[[], Any]) -> None:
    """Wait until `found` returns nothing that is left to wait for."""
    until = time.monotonic() + START_S
    while left := found():
        assert time.monotonic() < until, left
        time.sleep(2)


@pytest.mark.slow
def test_a_team_works_with_it(stack: dict[str, str], tmp_path: Path) -> None:
    """Doctor and Dagster's daemons are well; a file makes a run, while `baton run` works on another cluster."""
    baton = [sys.executable, "-m", "pipelines.entry"]
    doctor = subprocess.run([*baton, "doctor"], env=stack, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert [line.split(":")[0].split()[-1] for line in doctor.stdout.splitlines()] == [
        "engine", "tracking", "clock", "locks", "clock", "lake", "Dagster",
    ]  # fmt: skip
    assert len(_graphql(stack, LOCATIONS)["repositoriesOrError"]["nodes"]) == 1
    _until(lambda: [
        one for one in _graphql(stack, HEALTH)["instance"]["daemonHealth"]["allDaemonStatuses"]
        if one["required"] and not one["healthy"]
    ])  # fmt: skip

    arrived = Path(stack["BATON_DATA"]) / "raw" / "lab"
    arrived.mkdir(parents=True)
    os.utime(dump(arrived / "jobs.psv"), (time.time() - 60,) * 2)  # the sensor waits until a file is quiet
    own = dump(tmp_path / "other.psv", jobs=5)
    ran = subprocess.run(
        [*baton, "run", str(own), "--cluster", "other"],
        env=stack, cwd=REPOSITORY, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0 and "no policies: " in ran.stdout, ran.stdout + ran.stderr

    def of_sensor() -> list[dict[str, Any]]:
        runs = _graphql(stack, RUNS)["runsOrError"]["results"]
        lab = [run for run in runs if {"key": "dagster/partition", "value": "lab"} in run["tags"]]
        return [] if [run["status"] for run in lab] == ["SUCCESS"] else (lab or runs or ["no run"])

    _until(of_sensor)
    jobs = warehouse.read(DataFolder(Path(stack["BATON_DATA"])), "SELECT cluster, count(*) FROM jobs GROUP BY ALL")
    assert sorted(jobs.rows()) == [("lab", 6), ("other", 5)]
    statuses = {run["status"] for run in _graphql(stack, RUNS)["runsOrError"]["results"]}
    assert statuses == {"SUCCESS"}, statuses
