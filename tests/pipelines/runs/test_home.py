"""Where Dagster lists the runs of the command line, and the address of the asset graph."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from models.deployment import FILE, VARIABLE
from pipelines.definitions import defs
from pipelines.runs.home import GROUPS, LOCATION, graph_url, prepared_home
from tests.pipelines.conftest import Baton, dump
from traces.store.folder import DataFolder


def test_runs_of_the_command_line_belong_to_the_location_that_make_dev_serves(baton: Baton, tmp_path: Path) -> None:
    data = tmp_path / "data"
    baton("analyze", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", data, "--timezone", "UTC")
    with dg.DagsterInstance.from_config(str(data / "dagster")) as instance:
        (run,) = instance.get_runs()
    assert run.job_name == "analytics" and run.remote_job_origin is not None
    assert run.remote_job_origin.job_name == "analytics"
    assert run.remote_job_origin.repository_origin.get_label() == f"__repository__@{LOCATION}"


def test_the_address_of_the_graph_opens_every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "3310")
    address, groups = graph_url().split("?expanded=")
    assert address == "http://127.0.0.1:3310/asset-groups"
    assert groups.split(",") == [f"global@global:{group}" for group in GROUPS]
    assert {spec.group_name for spec in defs.resolve_all_asset_specs()} == set(GROUPS)


def test_runs_at_once_are_those_of_deployment_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for text, runs in (("", 1), ("[dagster]\nat_once = 3\n", 3)):
        (tmp_path / FILE).write_text(text)
        with dg.DagsterInstance.from_config(str(prepared_home(DataFolder(tmp_path)))) as instance:
            queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None and queue.max_concurrent_runs == runs
        (limit,) = queue.tag_concurrency_limits
        assert limit["key"] == "dagster/partition" and limit["limit"] == 1, "one of a cluster"
