"""Check the deployment of a data folder: its engine, its servers, its Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from assets.shared.lake import shared_lake
from models.deployment import DeploymentCheck, read_deployment
from models.engine.checks import engine_checks
from models.tracking.checks import server_checks
from pipelines.runs.declared import declared_home
from pipelines.runs.home import instance_of
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder


def deployment_checks(data: DataFolder) -> Iterator[DeploymentCheck]:
    """Yield every check. Raises InputError for a deployment.toml that cannot be read."""
    deployment = read_deployment(data.root)
    yield from engine_checks(deployment.engine)
    yield from server_checks(data)
    yield from _lake(data)
    yield _dagster(data)


def _lake(data: DataFolder) -> Iterator[DeploymentCheck]:
    try:
        lake = shared_lake(data)
    except InputError as error:
        yield DeploymentCheck("lake", str(error), "install the extra, or set the credentials")
        return
    if lake is None:
        yield DeploymentCheck("lake", f"in the data folder, {data.lake}")
        return
    from traces.lake.checks import lake_checks

    yield from (DeploymentCheck(*check) for check in lake_checks(lake))


def _dagster(data: DataFolder) -> DeploymentCheck:
    try:
        home = declared_home(data)
        if home is None:
            return DeploymentCheck("Dagster", f"in the data folder, {data.dagster}, {version('dagster')}")
        with instance_of(data) as instance:
            runs = instance.get_runs_count()
    except InputError as error:
        return DeploymentCheck("Dagster", str(error), "mend dagster.yaml, or start the database that it names")
    return DeploymentCheck("Dagster", f"{home} holds {counted(runs, 'run')}, {version('dagster')}")
