"""`baton analyze` beside Dagster's user interface and daemon (`make dev`), all on one data folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pipelines.runs.home import prepared_home
from tests.browser.conftest import served
from tests.pipelines.conftest import dump
from traces.store import warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.slow
DEV = ("dagster", "dev", "-h", "127.0.0.1", "-p", "{port}", "-m", "pipelines.definitions")
RUNS = "{ runsOrError { __typename ... on Runs { results { status } } } }"


def runs(url: str) -> list[str]:
    """The status of every run, as the user interface asks for it."""
    question = urllib.request.Request(
        f"{url}/graphql", json.dumps({"query": RUNS}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(question, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    assert found["data"]["runsOrError"]["__typename"] == "Runs", found
    return [run["status"] for run in found["data"]["runsOrError"]["results"]]


def test_two_analyses_end_well_while_the_user_interface_asks(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    data.ensure_writable()
    logs = {"one": dump(tmp_path / "one.psv", jobs=6), "two": dump(tmp_path / "two.psv", jobs=5, nodes=2)}
    environment = {"DAGSTER_HOME": str(prepared_home(data)), "BATON_DATA": str(data.root)}
    baton = str(Path(sys.executable).with_name("baton"))
    with served(DEV, environment, "/server_info") as url:
        analyses = [
            subprocess.Popen(
                [baton, "analyze", log, "--cluster", name, "--data", data.root],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for name, log in logs.items()
        ]  # fmt: skip
        asked = 0
        while any(analysis.poll() is None for analysis in analyses):
            runs(url)
            asked += 1
            time.sleep(0.5)
        said = [analysis.communicate()[1] for analysis in analyses]
        assert [analysis.returncode for analysis in analyses] == [0, 0], said
        assert asked > 5 and not any("locked" in text or "Traceback" in text for text in said), said
        assert runs(url) == ["SUCCESS", "SUCCESS"]
    jobs = warehouse.read(data, "SELECT cluster, count(*) AS jobs FROM jobs GROUP BY cluster ORDER BY cluster")
    assert jobs.rows() == [("one", 6), ("two", 5)]
    assert (data.reports / "report.html").is_file()
