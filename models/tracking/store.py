"""The MLflow store of a data folder: create it, open it, and repair it after a move or a kill.

It is a SQLite file with artifacts next to it, both in `DATA/mlflow`, which may be moved or copied
(`models.tracking.moved`). mlflow takes seconds to import, so it is imported only here, in `models.tracking.runs` and in
`models.tracking.versions`, inside functions.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.tracking import moved
from traces.errors import WorkError
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
    """The file of the store."""
    return data.mlflow / "mlflow.db"


def store_uri(data: DataFolder) -> str:
    """URI of the tracking store and registry, also for `mlflow server --backend-store-uri`."""
    return _uri(database(data))


def _uri(database: Path) -> str:
    path = str(database.resolve())
    # SQLAlchemy reads %41 in a path as A, and everything after a ? as options. The driver is named because MLflow
    # creates the folder of any sqlite:/// URI without unescaping it.
    return f"sqlite+pysqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def initialise(data: DataFolder) -> str:
    """Create the store and its experiment if they are missing, and settle the runs of killed processes.

    Returns the id of the experiment. mlflow is imported only if there is something to do. The function holds a lock,
    because two processes that open a fresh store at once can break it for good. Raises WorkError for a store that is
    damaged or of another release of MLflow.
    """
    if database(data).exists():
        moved.check(database(data))
        if (ready := _ready_experiment(data)) is not None:
            return ready
    with locked(data.root, "MLflow store"), errors_on_one_line(data):
        if not database(data).exists():
            _create(data)
        opened = client(data)
        experiment = opened.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            data.mlflow.joinpath("artifacts").mkdir(parents=True, exist_ok=True)
            made = opened.create_experiment(EXPERIMENT, artifact_location=_artifacts(data), tags=EXPERIMENT_TAGS)
        else:  # it may be of an older version
            made = experiment.experiment_id
            for key in EXPERIMENT_TAGS.keys() - experiment.tags.keys():
                opened.set_experiment_tag(made, key, EXPERIMENT_TAGS[key])
        with nobody_at_work(data.mlflow) as is_so:
            if is_so:  # otherwise open runs may belong to running processes
                _settle_killed(opened)
                shutil.rmtree(data.mlflow / OPEN, ignore_errors=True)
        whole.write_text(data.mlflow / READY, json.dumps({**_wanted(data), "experiment": str(made)}))
    return str(made)


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
    mark = data.mlflow / OPEN / secrets.token_hex(8)
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    return mark


def _any_open(data: DataFolder) -> bool:
    return any((data.mlflow / OPEN).glob("*"))


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
        what = next(iter(str(error).splitlines()), type(error).__name__)[: moved.MESSAGE_CHARACTERS]
        raise WorkError(f"{database(data)}: the MLflow store cannot be used: {what}") from error


def client(data: DataFolder) -> Any:
    """The client of the store. If the folder was moved, the store's addresses are updated first."""
    moved.follow(database(data), EXPERIMENT, _artifacts(data))
    return client_at(store_uri(data))


@cache
def client_at(where: str) -> Any:
    """The client of the store at that URI, one per process."""
    quiet()
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=where, registry_uri=where)


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


def _settle_killed(opened: Any) -> None:
    """Mark runs left open by ended processes as KILLED, at the end of the last thing that they finished."""
    where = [experiment_id(opened)]
    for run in opened.search_runs(where, "attributes.status = 'RUNNING'"):
        children = opened.search_runs(where, f"tags.mlflow.parentRunId = '{run.info.run_id}'")
        ends = [child.info.end_time or child.info.start_time for child in children]
        opened.set_terminated(run.info.run_id, "KILLED", end_time=max(ends, default=run.info.start_time))


def quiet() -> None:
    """Call before the first import: no telemetry, no progress bars for two files, no migration log of new stores."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    for name in ("alembic", "mlflow.tracking._model_registry.client", "mlflow.pyfunc"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it also logs a traceback of what it raises
