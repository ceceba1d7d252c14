"""The checks of `baton doctor`: servers and their clocks."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from models.deployment import FILE
from models.tracking.checks import server_checks
from pipelines.runs.doctor import deployment_checks
from tests.conftest import REPOSITORY
from traces.store.folder import DataFolder


class Late(BaseHTTPRequestHandler):
    """A server of MLflow's version 3 without experiments, whose clock is ten minutes late."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((timestamp or time.time()) - 600)

    def do_GET(self) -> None:
        body = b"3.0" if self.path == "/version" else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_words: object) -> None: ...


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_clock_that_is_ten_minutes_late_is_named(late: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f"[tracking]\nuri = '{late}'\n")
    tracking, clock, locks = server_checks(DataFolder(tmp_path))
    assert tracking.finding.startswith(f"{late} answers, MLflow 3.0; here ") and not tracking.mend
    assert clock.finding in {f"that of {late} is {s} s behind this machine's" for s in range(599, 604)}
    assert "NTP" in clock.mend and not locks.mend


def test_a_home_without_dagster_yaml_is_named_and_the_rest_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / FILE).write_text(f"[dagster]\nhome = '{tmp_path / 'nowhere'}'\n")
    found = list(deployment_checks(DataFolder(tmp_path)))
    assert [one.name for one in found] == ["engine", "tracking", "locks", "lake", "Dagster"]
    (wrong,) = [one.finding for one in found if one.mend]
    assert wrong.startswith(f"{tmp_path / FILE}: dagster.home={tmp_path / 'nowhere'}: name a folder")


def test_without_a_deployment_every_check_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines.entry", "--data", str(tmp_path), "doctor"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert lines == [f"ok      {name}" for name in ("engine", "tracking", "locks", "lake", "Dagster")]
