"""DAGSTER_HOME inside the data folder, and its Dagster instance. Dagster is imported only where needed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from models.deployment import read_deployment
from pipelines.runs.declared import READY, VARIABLE, declared_home
from traces.errors import InputError
from traces.files.locks import locked
from traces.files.whole import write_text
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    import dagster as dg

CONFIGURATION = Path(__file__).resolve().parents[2] / "dagster.yaml"
_OPEN = "SELECT 1 FROM runs WHERE status IN ('STARTING', 'STARTED', 'CANCELING') LIMIT 1"  # as `killed.OPEN`
CONNECT_S, MESSAGE_CHARACTERS = 10, 300
LOCATION = "pipelines.definitions"  # `dagster dev -m` gives this name to the code location that `make dev` serves
# Asset groups. Repeated here because importing Dagster takes seconds.
GROUPS = (
    "ingest", "warehouse", "features", "simulation", "policies", "evaluation", "release", "queue_time", "reports",
)  # fmt: skip


def prepared_home(data: DataFolder) -> Path:
    """Return data/dagster with dagster.yaml and its databases ready. A lock keeps two processes from breaking them.

    Runs of killed processes are marked as failed. If nothing is to be done, Dagster is not imported. A DAGSTER_HOME of
    the user's own (`declared_home`) is returned as it is.
    """
    if (declared := declared_home(data)) is not None:
        return declared
    configuration = _configuration(data)
    if _is_prepared(data.dagster, configuration):
        return data.dagster
    data.ensure_writable()
    data.dagster.mkdir(exist_ok=True)
    target = data.dagster / CONFIGURATION.name
    with locked(data.root, "Dagster instance"):
        if not target.is_file() or target.read_text(encoding="utf-8") != configuration:
            write_text(target, configuration)
        _prepare(data)
        write_text(data.dagster / READY, version("dagster"))
    return data.dagster


def _configuration(data: DataFolder) -> str:
    """The text of dagster.yaml, with the runs at once that deployment.toml declares."""
    text, runs = CONFIGURATION.read_text(encoding="utf-8"), "max_concurrent_runs: "
    return text.replace(f"{runs}1 ", f"{runs}{read_deployment(data.root).dagster.at_once} ")


def _is_prepared(home: Path, configuration: str) -> bool:
    """Whether configuration and release are current and no run is open (an open run may be of a killed process)."""
    database = home / "history" / "runs.db"
    try:
        if (home / CONFIGURATION.name).read_text(encoding="utf-8") != configuration:
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
    """Open the instance of the data folder, and set DAGSTER_HOME for everything else in this process.

    A DAGSTER_HOME of the user's own is opened instead. Raises InputError if that fails.
    """
    import dagster as dg

    if (declared := declared_home(data)) is not None:
        os.environ[VARIABLE] = str(declared)
        return _opened(declared, data)
    home = prepared_home(data)
    os.environ[VARIABLE] = str(home)
    return dg.DagsterInstance.from_config(str(home))


def _opened(home: Path, data: DataFolder) -> dg.DagsterInstance:
    """The user's own instance, after the killed runs of this data folder are marked as failed."""
    import dagster as dg

    from pipelines.runs import killed

    os.environ.setdefault("PGCONNECT_TIMEOUT", str(CONNECT_S))  # libpq otherwise waits for minutes
    try:
        instance = dg.DagsterInstance.from_config(str(home))
        data.dagster.mkdir(parents=True, exist_ok=True)
        killed.settle(instance, data)
    except Exception as error:  # whatever the storage that dagster.yaml names raises
        why = " ".join(str(error.__cause__ or error).split())[:MESSAGE_CHARACTERS]
        raise InputError(f"{VARIABLE}={home}: its Dagster instance cannot be used: {why}") from error
    return instance


def graph_url() -> str:
    """Return the URL at which `make dev` shows the asset graph with every group open (Dagster's default: closed)."""
    expanded = ",".join(f"global@global:{group}" for group in GROUPS)
    return f"http://127.0.0.1:{os.environ.get('PORT') or 3000}/asset-groups?expanded={expanded}"


def attribute_runs(instance: dg.DagsterInstance, job: str) -> None:
    """Record runs of that job, started by this process, as runs of the code location that `make dev` serves.

    Dagster records no code location for `execute_in_process` and hides runs without one from its overview.
    """
    from dagster._core.definitions.repository_definition.valid_definitions import SINGLETON_REPOSITORY_NAME
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(LOCATION), SINGLETON_REPOSITORY_NAME)
    create = partial(instance.create_run_for_job, remote_job_origin=repository.get_job_origin(job))
    instance.create_run_for_job = create  # type: ignore[method-assign]
