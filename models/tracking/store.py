"""The MLflow store of a data folder: create it, open it, and repair it after a move or a kill.

It is a SQLite file with artifacts next to it, both in `DATA/mlflow`, which may be moved or copied
(`models.tracking.moved`), or the server that MLFLOW_TRACKING_URI names (`models.tracking.address`). mlflow takes
seconds to import, so it is imported only in this package, inside functions.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.tracking import address, moved, remote
from models.tracking.clients import client_at, quiet
from traces.errors import InputError, WorkError
from traces.files import whole
from traces.files.locks import locked
from traces.files.presence import nobody_at_work
from traces.store.folder import DataFolder

EXPERIMENT = "baton"
EXPERIMENT_NOTE = (
    "A run for each training (a set of policies fitted on one cluster up to one instant), below it a run for each "
    "policy and seed, and a run for each release. `select_cost_w1_h` and `report_cost_w1_h` (interruption + overlap, "
    "hours a pair) choose and measure policies. Hours end in `_h`; `_8n` is for pairs of 8 nodes."
)
CLASSIC_VIEW = "custom_model_development"  # without it MLflow 3 may open its view for language models
BY_COST = "by-cost"
READY = ".ready"  # next to the database: what it was made ready for, and the id of its experiment
OPEN = "open"  # folder next to the database, with a file for each open run
OPEN_REMOTE = "open-remote"  # the same for runs on a server
MARK_TAG = "baton.open"  # of runs on a server: the name of that file, because other hosts have open runs there too
_WINDOWS, _FIGURES = ("report", "select"), ("cost_w1_h", "interruption_h", "overlap_h")
# The state of MLflow's table of runs, as its own button "share" stores it: every fit, the cheapest first.
_BY_COST_STATE = {
    "searchFilter": "tags.`baton.kind` = 'fit'",
    "orderByKey": "metrics.`report_cost_w1_h`",
    "orderByAsc": True,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "datasetsFilter": [],
    "selectedColumns": [
        *(f"metrics.`{window}_{figure}`" for window in _WINDOWS for figure in _FIGURES),
        "tags.`cluster`",
    ],
    "viewMaximized": True,
    "runListHidden": False,
    "compareRunsMode": "TABLE",
}
EXPERIMENT_TAGS = {
    "mlflow.experimentKind": CLASSIC_VIEW,
    f"mlflow.sharedViewState.{BY_COST}": json.dumps(_BY_COST_STATE),
    "mlflow.note.content": EXPERIMENT_NOTE,
}


def database(data: DataFolder) -> Path:
    """The file of the data folder's own store."""
    return data.mlflow / "mlflow.db"


def has_store(data: DataFolder) -> bool:
    """Whether there is a store: a server, or the file."""
    return address.tracking_server(data) is not None or database(data).is_file()


def store_name(data: DataFolder) -> str:
    """The store as messages name it."""
    server = address.tracking_server(data)
    return str(database(data)) if server is None else server.label


def store_uri(data: DataFolder) -> str:
    """URI of the tracking store and registry, also for `mlflow server --backend-store-uri`. It may hold a password."""
    server = address.tracking_server(data)
    return _uri(database(data)) if server is None else server.uri


def _uri(database: Path) -> str:
    path = str(database.resolve())
    # SQLAlchemy reads %41 in a path as A, and everything after a ? as options. The driver is named because MLflow
    # creates the folder of any sqlite:/// URI without unescaping it.
    return f"sqlite+pysqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def initialise(data: DataFolder) -> str:
    """Create the store and its experiment if they are missing, and settle the runs of killed processes.

    Returns the id of the experiment. mlflow is imported only if there is something to do. The function holds a lock,
    because two processes that open a fresh store at once can break it for good. Raises WorkError for a store that is
    damaged or of another release of MLflow, InputError for a server that cannot be used.
    """
    remote.check_servers(data)
    is_own = address.tracking_server(data) is None
    if is_own and database(data).exists():
        moved.check(database(data))
        if (ready := _ready_experiment(data)) is not None:
            return ready
    purpose = "MLflow store"
    with locked(data.root, purpose), remote.locked_across_hosts(data, purpose), errors_on_one_line(data):
        data.mlflow.mkdir(parents=True, exist_ok=True)
        if is_own and not database(data).exists():
            _create(data)
        opened = client(data)
        made = _experiment(data, opened)
        with nobody_at_work(data.mlflow) as is_so:
            if is_so:  # otherwise open runs may belong to running processes
                _settle_killed(opened, made, None if is_own else [mark.name for mark in _marks(data)])
                shutil.rmtree(_open_folder(data), ignore_errors=True)
        if is_own:
            whole.write_text(data.mlflow / READY, json.dumps({**_wanted(data), "experiment": made}))
    return made


def _experiment(data: DataFolder, opened: Any) -> str:
    """The id of the experiment, made if it is missing."""
    from mlflow.exceptions import MlflowException

    server = address.tracking_server(data)
    found = opened.get_experiment_by_name(EXPERIMENT)
    if found is None:
        where = None if server is not None and server.is_http else _artifacts(data)
        if where is not None:
            data.mlflow.joinpath("artifacts").mkdir(parents=True, exist_ok=True)
        try:
            opened.create_experiment(EXPERIMENT, artifact_location=where, tags=EXPERIMENT_TAGS)
        except MlflowException as error:  # another host may have made it meanwhile
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        found = opened.get_experiment_by_name(EXPERIMENT)
    if server is not None:
        _check_artifacts(server, str(found.artifact_location))
    for key in EXPERIMENT_TAGS.keys() - found.tags.keys():  # it may be of an older version
        opened.set_experiment_tag(found.experiment_id, key, EXPERIMENT_TAGS[key])
    return str(found.experiment_id)


def _check_artifacts(server: address.Server, where: str) -> None:
    """Raise InputError if this host cannot reach the artifacts of the server's experiment."""
    folder = where.removeprefix("file://")
    named = f"{address.VARIABLE}={server.label}: experiment {EXPERIMENT!r} keeps its artifacts"
    if where.startswith("mlflow-artifacts:") and not server.is_http:
        raise InputError(f"{named} behind an MLflow server ({where}); name the address of that server")
    if folder.startswith("/") and not Path(folder).is_dir():
        raise InputError(
            f"{named} in {folder}, which this host does not see; start the server with --serve-artifacts before its "
            "first run, or use a data folder that all hosts see"
        )


def _ready_experiment(data: DataFolder) -> str | None:
    """The id of the experiment if the store is ready: made by this release of MLflow, at this place, no run open."""
    try:
        ready = json.loads((data.mlflow / READY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(ready, dict) or ready | _wanted(data) != ready or _any_open(data):
        return None
    return ready.get("experiment")


def _wanted(data: DataFolder) -> dict[str, Any]:
    """What READY must hold: the release of MLflow, the place of the artifacts, and the tags of the experiment."""
    return {"release": version("mlflow"), "artifacts": _artifacts(data), "tags": sorted(EXPERIMENT_TAGS)}


def open_mark(data: DataFolder) -> Path:
    """Make a file for an open run. Remove it when the run is closed; one that is left over is of a killed process."""
    mark = _open_folder(data) / secrets.token_hex(8)
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    return mark


def _open_folder(data: DataFolder) -> Path:
    return data.mlflow / (OPEN if address.tracking_server(data) is None else OPEN_REMOTE)


def _marks(data: DataFolder) -> list[Path]:
    return sorted(_open_folder(data).glob("*"))


def _any_open(data: DataFolder) -> bool:
    return bool(_marks(data))


def settle(data: DataFolder) -> None:
    """Settle the runs of killed processes, if there are any; the check does not import mlflow."""
    if _any_open(data):
        initialise(data)


@contextmanager
def errors_on_one_line(data: DataFolder) -> Iterator[None]:
    """Convert errors of MLflow (a damaged store, a full disk) to a WorkError that names the store."""
    try:
        yield
    except Exception as error:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        if not isinstance(error, MlflowException | SQLAlchemyError):
            raise
        what = next(iter(str(error).splitlines()), type(error).__name__)
        if (server := address.tracking_server(data)) is not None:
            what = address.without_secrets(what, server)
        what = what[: moved.MESSAGE_CHARACTERS]
        raise WorkError(f"{store_name(data)}: the MLflow store cannot be used: {what}") from error


def client(data: DataFolder) -> Any:
    """The client of the store. If the folder was moved, the store's addresses are updated first."""
    if address.tracking_server(data) is None:
        moved.follow(database(data), EXPERIMENT, _artifacts(data))
    return client_at(store_uri(data))


def _create(data: DataFolder) -> None:
    """Create an empty store. It gets its name when complete, because MLflow never finishes half a set of tables."""
    quiet()
    from mlflow.tracking import MlflowClient

    data.mlflow.mkdir(parents=True, exist_ok=True)
    whole.sweep(data.mlflow)
    with whole.whole_file(database(data)) as part:
        MlflowClient(tracking_uri=_uri(part), registry_uri=_uri(part))


def _artifacts(data: DataFolder) -> str:
    """The folder of all runs' artifacts, as a URI."""
    return (data.mlflow.resolve() / "artifacts").as_uri()


def experiment_id(opened: Any) -> str:
    """Id of the one experiment that holds every run."""
    return str(opened.get_experiment_by_name(EXPERIMENT).experiment_id)


def _settle_killed(opened: Any, experiment: str, marks: list[str] | None) -> None:
    """Mark runs left open by ended processes as KILLED, at the end of the last thing that they finished.

    marks: on a server, the marks of this data folder's runs; None means every open run.
    """
    for extra in [""] if marks is None else [f" AND tags.`{MARK_TAG}` = '{mark}'" for mark in marks]:
        for run in opened.search_runs([experiment], f"attributes.status = 'RUNNING'{extra}"):
            children = opened.search_runs([experiment], f"tags.mlflow.parentRunId = '{run.info.run_id}'")
            ends = [child.info.end_time or child.info.start_time for child in children]
            opened.set_terminated(run.info.run_id, "KILLED", end_time=max(ends, default=run.info.start_time))
