"""Where Dagster lists the runs of the command line, and the address of the asset graph."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from pipelines.definitions import defs
from pipelines.runs.home import GROUPS, LOCATION, graph_url
from tests.pipelines.conftest import Baton, dump


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
