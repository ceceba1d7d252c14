"""DAGSTER_HOME inside the data folder, and the instance that lives there. Dagster is imported where it is needed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from traces.files.locks import locked
from traces.files.whole import write_text
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    import dagster as dg

CONFIGURATION = Path(__file__).resolve().parents[2] / "dagster.yaml"
READY = ".ready"  # in DAGSTER_HOME: the release of Dagster that its databases were made or brought up to date by
_OPEN = "SELECT 1 FROM runs WHERE status IN ('STARTING', 'STARTED', 'CANCELING') LIMIT 1"  # as `killed.OPEN`
LOCATION = "pipelines.definitions"  # as `dagster dev -m` names the code location that `make dev` serves
# Of assets, known here without Dagster, which takes seconds to import.
GROUPS = (
    "ingest", "warehouse", "features", "simulation", "policies", "evaluation", "release", "queue_time", "reports",
)  # fmt: skip


def prepared_home(data: DataFolder) -> Path:
    """data/dagster with dagster.yaml in it and its databases made, by one process: two at once break them.

    Runs of processes that were killed are failed. Where nothing is to be done Dagster is not imported.
    """
    if _is_prepared(data.dagster):
        return data.dagster
    data.ensure_writable()
    data.dagster.mkdir(exist_ok=True)
    target = data.dagster / CONFIGURATION.name
    with locked(data.root, "Dagster instance"):
        if not target.is_file() or target.read_bytes() != CONFIGURATION.read_bytes():
            shutil.copyfile(CONFIGURATION, target)
        _prepare(data)
        write_text(data.dagster / READY, version("dagster"))
    return data.dagster


def _is_prepared(home: Path) -> bool:
    """Whether the configuration and release are the present ones and no run is open: it may be of a killed process."""
    database = home / "history" / "runs.db"
    try:
        if (home / CONFIGURATION.name).read_bytes() != CONFIGURATION.read_bytes():
            return False
        if (home / READY).read_text(encoding="utf-8") != version("dagster"):
            return False
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(_OPEN).fetchone() is None
    except (OSError, UnicodeDecodeError, sqlite3.Error):
        return False


def _prepare(data: DataFolder) -> None:
    import dagster as dg

    from pipelines.runs import killed

    with dg.DagsterInstance.from_config(str(data.dagster)) as instance:
        instance.get_dynamic_partitions("clusters")
        killed.settle(instance, data)


def instance_of(data: DataFolder) -> dg.DagsterInstance:
    """The instance of the data folder; DAGSTER_HOME means the same to everything that runs in this process."""
    import dagster as dg

    home = prepared_home(data)
    os.environ["DAGSTER_HOME"] = str(home)
    return dg.DagsterInstance.from_config(str(home))


def graph_url() -> str:
    """Where `make dev` shows the asset graph with every group open: Dagster opens it with all groups closed."""
    expanded = ",".join(f"global@global:{group}" for group in GROUPS)
    return f"http://127.0.0.1:{os.environ.get('PORT') or 3000}/asset-groups?expanded={expanded}"


def attribute_runs(instance: dg.DagsterInstance, job: str) -> None:
    """Record the runs that this process starts of that job as runs of the code location that `make dev` serves.

    Dagster records none for `execute_in_process`, and leaves runs without one out of its overview.
    """
    from dagster._core.definitions.repository_definition.valid_definitions import SINGLETON_REPOSITORY_NAME
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(LOCATION), SINGLETON_REPOSITORY_NAME)
    create = partial(instance.create_run_for_job, remote_job_origin=repository.get_job_origin(job))
    instance.create_run_for_job = create  # type: ignore[method-assign]
