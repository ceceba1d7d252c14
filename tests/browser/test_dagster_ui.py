"""The Dagster UI in a real browser: the graph in its groups, row counts and tables of what was materialized, checks.

BATON_SCREENSHOTS=DIR keeps pictures of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from assets.shared.resources import Baton
from pipelines.definitions import build_defs
from pipelines.runs.home import GROUPS, attribute_runs, graph_url, prepared_home
from tests.browser.conftest import Show, served
from tests.pipelines.conftest import dump
from traces.store.folder import DataFolder

pytestmark = [pytest.mark.browser, pytest.mark.slow]


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
        attribute_runs(instance, job.name)
        wanted = dg.AssetSelection.groups("ingest", "warehouse")
        keys = wanted.resolve(build_defs().resolve_asset_graph())
        assert job.execute_in_process(instance=instance, partition_key="lab", asset_selection=list(keys)).success
    return folder


@pytest.fixture(scope="module")
def address(data: DataFolder) -> Iterator[str]:
    """The web server, as `make dev` starts it but without the daemon."""
    command = ("dagster-webserver", "-h", "127.0.0.1", "-p", "{port}", "-m", "pipelines.definitions")
    with served(command, {"DAGSTER_HOME": str(data.dagster), "BATON_DATA": str(data.root)}, "/server_info") as url:
        yield url


def test_the_graph_is_shown_in_its_groups(show: Show) -> None:
    show("/asset-groups", *GROUPS, name="dagster-graph")


def test_the_graph_opens_with_its_groups_expanded(show: Show) -> None:
    show("/" + graph_url().split("/", 3)[3], *GROUPS, "attempts", "placements", name="dagster-graph-expanded")


def test_the_overview_shows_the_last_runs(show: Show) -> None:
    text = show("/overview", "pipelines.definitions", "whole_pipeline", name="dagster-overview")
    assert "No runs or scheduled ticks" not in text


def test_an_asset_shows_its_rows_and_what_it_is(show: Show) -> None:
    show("/assets/warehouse/jobs", "One row per job", "first_rows", "DuckDB", "cluster-operations", name="dagster-jobs")


def test_tables_are_tables_and_say_what_their_columns_are(show: Show) -> None:
    text = show("/assets/warehouse/jobs", "Show schema", "job_key", "anna", name="dagster-table")
    assert "| " not in text


def test_figures_are_drawn(show: Show) -> None:
    names = ("rows_read", "rows_rejected", "jobs", "Partition")
    show("/assets/trace_files", *names, press="Plots", name="dagster-plots")


def test_what_the_schedule_makes_has_a_freshness_policy(show: Show) -> None:
    show("/assets/report", "Freshness", "8 days", name="dagster-freshness")


def test_a_partitioned_asset_shows_its_cluster(show: Show) -> None:
    show("/assets/trace_files?partition=lab&view=partitions", "lab", name="dagster-partition")


def test_checks_of_a_table_have_passed(show: Show) -> None:
    text = show(
        "/assets/warehouse/jobs?view=checks", "jobs_time_order", "jobs_unique_key", "Passed", name="dagster-checks"
    )
    assert "Failed" not in text


def test_sensor_and_schedule_are_listed(show: Show) -> None:
    show("/automation", "raw_files", "weekly_retraining", name="dagster-automation")
