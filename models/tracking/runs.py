"""Open, extend and close runs of MLflow. The callers decide about their content."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models.tracking.address import tracking_server
from models.tracking.store import BY_COST, MARK_TAG, client, experiment_id, has_store, initialise, open_mark
from traces.files.presence import at_work
from traces.store.folder import DataFolder

ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # codes of MLflow for what it does not have
BATCH = 500  # metrics per request; the store accepts at most 1,000
DIGEST_LENGTH = 36  # longest digest of a dataset
TRAINING_VIEW = "workflowType=machine_learning"  # MLflow 3.17 opens its view for language models without it


@dataclass(frozen=True)
class Dataset:
    """The data that a run was made from or measured on, as MLflow lists it. `use` is fit, select or report."""

    name: str
    digest: str
    use: str
    source: Mapping[str, Any]
    profile: Mapping[str, Any]


@dataclass(frozen=True)
class NewRun:
    """The initial content of a run. Metrics are series, one value per step."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    datasets: Sequence[Dataset] = ()
    start_s: float | None = None  # epoch seconds; None is now
    parent_id: str | None = None


@contextmanager
def closed_run(data: DataFolder, run: NewRun, end_s: float | None = None) -> Iterator[str]:
    """Yield the id of a new run, closed afterwards at `end_s` (None: now): FAILED after an error, KILLED if stopped.

    The store must be initialised.
    """
    with at_work(data.mlflow):
        mark = open_mark(data)
        own = {} if tracking_server(data) is None else {MARK_TAG: mark.name}
        run_id = _start(data, replace(run, tags={**run.tags, **own}))
        try:
            yield run_id
        except BaseException as error:
            _end(data, run_id, "FAILED" if isinstance(error, Exception) else "KILLED", None)
            mark.unlink(missing_ok=True)
            raise
        _end(data, run_id, "FINISHED", end_s)
        mark.unlink(missing_ok=True)


def add_to_run(
    data: DataFolder,
    run_id: str,
    *,
    metrics: Mapping[str, Sequence[float]],
    tags: Mapping[str, str],
    datasets: Sequence[Dataset] = (),
) -> bool:
    """Add to a run that has ended; the UI shows the newest values first. Returns False if the store lacks the run."""
    from mlflow.exceptions import MlflowException

    try:
        _log(client(data), run_id, metrics, tags, datasets)
    except MlflowException as error:
        if error.error_code in ABSENT:
            return False
        raise
    return True


def add_files(data: DataFolder, run_id: str, folder: Path) -> None:
    """Add every file of the folder to the run as an artifact, under the same name."""
    client(data).log_artifacts(run_id, str(folder))


def ui(data: DataFolder) -> str:
    """Address of MLflow's pages: BATON_MLFLOW_UI, else the tracking server, else that of `make mlflow`."""
    server = tracking_server(data)
    served = server.label if server is not None and server.is_http else None
    # MLflow itself reads MLFLOW_PORT too.
    return os.environ.get("BATON_MLFLOW_UI") or served or f"http://127.0.0.1:{os.environ.get('MLFLOW_PORT') or 5000}"


def run_url(data: DataFolder, experiment: str, run_id: str) -> str:
    """Address of the run in MLflow's pages."""
    return f"{ui(data)}/#/experiments/{experiment}/runs/{run_id}?{TRAINING_VIEW}"


def by_cost_url(data: DataFolder) -> str:
    """Address of the list of all fits, the one of least cost on the report window first."""
    return f"{ui(data)}/{by_cost_path(initialise(data))}"


def by_cost_path(experiment: str) -> str:
    """The same address without the server; `experiment` is its id."""
    return f"#/experiments/{experiment}/runs?{TRAINING_VIEW}&viewStateShareKey={BY_COST}"


def training_url(data: DataFolder, run_ids: Sequence[str]) -> str | None:
    """Address of the training of the first known fit; None if the store knows none of them."""
    parents = (parent_run(data, run_id) for run_id in run_ids)
    training = next((parent for parent in parents if parent is not None), None)
    return None if training is None else run_url(data, initialise(data), training)


def parent_run(data: DataFolder, run_id: str) -> str | None:
    """The parent of a run; None if it has none, or the store lacks the run."""
    if not has_store(data):
        return None
    from mlflow.exceptions import MlflowException

    try:
        parent = client(data).get_run(run_id).data.tags.get("mlflow.parentRunId")
    except MlflowException as error:
        if error.error_code in ABSENT:
            return None
        raise
    return None if parent is None else str(parent)


def _start(data: DataFolder, run: NewRun) -> str:
    """Open a run with its initial content; returns its id."""
    from mlflow.entities import Param

    opened = client(data)
    tags = {**run.tags, "mlflow.source.name": "baton", "mlflow.source.type": "LOCAL"}
    if run.parent_id is not None:
        tags["mlflow.parentRunId"] = run.parent_id
    start_ms = _milliseconds(run.start_s)
    made = opened.create_run(experiment_id(opened), start_time=start_ms, tags=tags, run_name=run.name)
    run_id = str(made.info.run_id)
    if run.params:
        opened.log_batch(run_id, params=[Param(key, str(value)) for key, value in run.params.items()])
    _log(opened, run_id, run.metrics, {}, run.datasets)
    return run_id


def _end(data: DataFolder, run_id: str, status: str, end_s: float | None) -> None:
    client(data).set_terminated(run_id, status, end_time=_milliseconds(end_s))


def _log(
    opened: Any,
    run_id: str,
    metrics: Mapping[str, Sequence[float]],
    tags: Mapping[str, str],
    datasets: Sequence[Dataset],
) -> None:
    from mlflow.entities import Dataset as Listed
    from mlflow.entities import DatasetInput, InputTag, Metric, RunTag

    now_ms = int(time.time() * 1000)
    points = [
        Metric(key, float(value), now_ms, step) for key, series in metrics.items() for step, value in enumerate(series)
    ]
    rows = [RunTag(key, value) for key, value in tags.items()]
    for begin in range(0, max(len(points), 1), BATCH):
        opened.log_batch(run_id, metrics=points[begin : begin + BATCH], tags=rows if begin == 0 else ())
    listed = [
        DatasetInput(
            Listed(
                name=one.name,
                digest=one.digest[:DIGEST_LENGTH],
                source_type="baton",
                source=json.dumps(one.source),
                profile=json.dumps(one.profile),
            ),
            [InputTag("mlflow.data.context", one.use)],
        )
        for one in datasets
    ]
    if listed:
        opened.log_inputs(run_id, listed)


def _milliseconds(epoch_s: float | None) -> int:
    return int((time.time() if epoch_s is None else epoch_s) * 1000)
