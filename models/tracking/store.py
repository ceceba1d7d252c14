"""The MLflow store of a data folder: create it, open it, and repair it after a move or a kill.

It is a SQLite file with artifacts next to it, both in `DATA/mlflow`, which may be moved or copied
(`models.tracking.sql`). mlflow takes seconds to import, so it is imported only here, in `models.tracking.runs` and in
`models.tracking.versions`, inside functions.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.tracking import sql as mlflow_sql
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
READY = ".ready"  # next to the database: the release of MLflow that created or last repaired it
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


def initialise(data: DataFolder) -> None:
    """Create the store and its experiment if they are missing, and settle the runs of killed processes.

    mlflow is imported only if there is something to do. The function holds a lock, because two processes that open a
    fresh store at once can break it for good. Raises WorkError for a store that is damaged or of another release of
    MLflow.
    """
    if database(data).exists():
        mlflow_sql.check(database(data))
        if _is_ready(data):
            return
    with locked(data.root, "MLflow store"), errors_on_one_line(data):
        if not database(data).exists():
            _create(data)
        opened = client(data)
        experiment = opened.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            data.mlflow.joinpath("artifacts").mkdir(parents=True, exist_ok=True)
            opened.create_experiment(EXPERIMENT, artifact_location=_artifacts(data), tags=EXPERIMENT_TAGS)
        else:  # the experiment of an older version
            for key in EXPERIMENT_TAGS.keys() - experiment.tags.keys():
                opened.set_experiment_tag(experiment.experiment_id, key, EXPERIMENT_TAGS[key])
        with nobody_at_work(data.mlflow) as is_so:
            if is_so:  # otherwise open runs may belong to running processes
                _settle_killed(opened)
        whole.write_text(data.mlflow / READY, _release())


def _is_ready(data: DataFolder) -> bool:
    """Whether this release of MLflow has opened the store, the store has not moved, and no run is open."""
    try:
        release = (data.mlflow / READY).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    found = mlflow_sql.experiment_named(database(data), EXPERIMENT)
    return (
        release == _release()
        and found is not None
        and found[1] == _artifacts(data)
        and found[2] >= EXPERIMENT_TAGS.keys()
        and not mlflow_sql.any_open_run(database(data))
    )


def _release() -> str:
    return version("mlflow")


def settle(data: DataFolder) -> None:
    """Settle the runs of killed processes, if there are any; the check does not import mlflow."""
    if mlflow_sql.any_open_run(database(data)):
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
        what = next(iter(str(error).splitlines()), type(error).__name__)[: mlflow_sql.MESSAGE_CHARACTERS]
        raise WorkError(f"{database(data)}: the MLflow store cannot be used: {what}") from error


def client(data: DataFolder) -> Any:
    """The client of the store. If the folder was moved, the store's addresses are updated first."""
    mlflow_sql.follow(database(data), EXPERIMENT, _artifacts(data))
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
