"""The Dagster UI in a real browser: the graph in its groups, row counts and tables of what was materialized, checks.

BATON_SCREENSHOTS=DIR keeps pictures of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.resources import Baton
from pipelines.definitions import build_defs
from pipelines.home import prepared_home
from tests.pipelines.conftest import dump
from traces.store import DataFolder

pytestmark = [pytest.mark.browser, pytest.mark.slow]
GROUPS = ("ingest", "warehouse", "features", "simulation", "policies", "evaluation", "release", "reports")
START_S, PAGE_S = 180, 90


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A data folder in which the ingest and the warehouse were materialized for the cluster `lab`."""
    folder = DataFolder(tmp_path_factory.mktemp("ui") / "data")
    (folder.raw / "lab").mkdir(parents=True)
    dump(folder.raw / "lab" / "jobs.psv")
    folder.clusters_toml.write_text("[lab]\nnodes = 4\ngpus_per_node = 4\n")
    job = build_defs({"baton": Baton(data=str(folder.root))}).resolve_job_def("whole_pipeline")
    with dg.DagsterInstance.from_config(str(prepared_home(folder))) as instance:
        instance.add_dynamic_partitions("clusters", ["lab"])
        wanted = dg.AssetSelection.groups("ingest", "warehouse")
        keys = wanted.resolve(build_defs().resolve_asset_graph())
        assert job.execute_in_process(instance=instance, partition_key="lab", asset_selection=list(keys)).success
    return folder


@pytest.fixture(scope="module")
def address(data: DataFolder) -> Iterator[str]:
    """The web server on a free port of the loopback, as `make dev` starts it but without the daemon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("dagster-webserver")
    if not program.exists():
        program = Path(shutil.which("dagster-webserver") or program)
    server = subprocess.Popen(
        [program, "-h", "127.0.0.1", "-p", str(port), "-m", "pipelines.definitions"],
        env={**os.environ, "DAGSTER_HOME": str(data.dagster), "BATON_DATA": str(data.root)},
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(START_S):
            assert server.poll() is None, "dagster-webserver ended by itself"
            try:
                urllib.request.urlopen(f"{url}/server_info", timeout=1)
                break
            except OSError:
                time.sleep(1)
        else:
            pytest.fail(f"dagster-webserver did not answer within {START_S} s")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


Show = Callable[..., str]


@pytest.fixture
def show(chromium: Any, address: str) -> Show:
    """Open a page, wait until all the given words are on it, and return its text."""

    def opened(path: str, *words: str, name: str) -> str:
        chromium.get(address + path)
        text = ""
        for _ in range(PAGE_S):
            text = chromium.execute_script("return document.body.innerText")
            if all(word in text for word in words):
                break
            time.sleep(1)
        folder = os.environ.get("BATON_SCREENSHOTS")
        if folder:
            time.sleep(2)  # animations
            chromium.save_screenshot(str(Path(folder) / f"dagster-{name}.png"))
        missing = [word for word in words if word not in text]
        assert not missing, f"{path} lacks {missing}: {text[:2000]}"
        return text

    return opened


def test_the_graph_is_shown_in_its_groups(show: Show) -> None:
    show("/asset-groups", *GROUPS, name="graph")


def test_an_asset_shows_its_rows_and_what_it_is(show: Show) -> None:
    show("/assets/warehouse/jobs", "One row a job", "first_rows", "DuckDB", "cluster-operations", name="jobs")


def test_a_partitioned_asset_shows_its_cluster(show: Show) -> None:
    show("/assets/trace_files?partition=lab&view=partitions", "lab", name="partition")


def test_checks_of_a_table_have_passed(show: Show) -> None:
    text = show("/assets/warehouse/jobs?view=checks", "jobs_time_order", "jobs_unique_key", "Passed", name="checks")
    assert "Failed" not in text


def test_sensor_and_schedule_are_listed(show: Show) -> None:
    show("/automation", "raw_files", "weekly_retraining", name="automation")
