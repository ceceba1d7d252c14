"""MLflow: training runs, the released model as a self-contained pyfunc, and the registry. The only importer of mlflow.

(`models/pyfunc_entry.py` imports it too, but is never imported: it is copied into releases.) mlflow takes seconds to
import and is imported inside functions only. The store is sqlite with artifacts beside it, both in `DATA/mlflow`;
MLflow keeps absolute artifact paths, so that folder cannot be moved once it holds runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import agent.artifact
import features.observe
from agent.artifact import Artifact
from traces.errors import WorkError
from traces.store import DataFolder

MODEL_NAME = "provisioning-policy"
CHAMPION = "champion"
CHAMPION_URI = f"models:/{MODEL_NAME}@{CHAMPION}"
EXPERIMENT = "baton"
BATCH = 500  # metrics a request; the store takes at most 1,000
MODEL_DESCRIPTION = (
    "When to submit the successor of a time-limited job, so that work passes on with neither a gap nor a double "
    "booking. Input: one row a decision, one float column a feature. Output: submit (bool) and score."
)


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of the registered model."""

    version: int
    run_id: str
    tags: dict[str, str]


def store_uri(data: DataFolder) -> str:
    """URI of the tracking store and registry; for `mlflow server --backend-store-uri` too."""
    return f"sqlite:///{data.mlflow.resolve() / 'mlflow.db'}"


def initialise(data: DataFolder) -> None:
    """Creates the store, its experiment and nothing else; does nothing where they are.

    Behind a file lock: a fresh store opened by two processes at once can break for good.
    """
    with locked(data):
        client = _client(data)
        if client.get_experiment_by_name(EXPERIMENT) is None:
            artifacts = data.mlflow.resolve() / "artifacts"
            artifacts.mkdir(parents=True, exist_ok=True)
            client.create_experiment(EXPERIMENT, artifact_location=artifacts.as_uri())


@dataclass(frozen=True)
class MlflowTracker:
    """Implements `models.training.Tracker`. Make it with `tracker`, which initialises the store."""

    data: DataFolder

    def record(
        self,
        name: str,
        params: dict[str, Any],
        metrics: dict[str, list[float]],
        tags: dict[str, str],
        artifact: Artifact,
    ) -> str:
        """One finished run with parameters, metric series, tags, and the artifact's folder under `policy`."""
        client = _client(self.data)
        run_id = _start_run(client, name, params, metrics, {**tags, "baton.kind": "training"})
        try:
            with tempfile.TemporaryDirectory() as temporary:
                artifact.save(Path(temporary) / "policy")
                client.log_artifacts(run_id, temporary)
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id)
        return run_id


def tracker(data: DataFolder) -> MlflowTracker:
    """A tracker on the initialised store of that data folder."""
    initialise(data)
    return MlflowTracker(data)


def save_model(artifact: Artifact, folder: Path) -> None:
    """Writes the artifact as an MLflow pyfunc that needs nothing of Baton.

    The folder holds the entry script, the artifact, copies of its loader and of `features.observe`, and pinned
    requirements (mlflow-skinny, numpy, pandas and what the artifact names). Signature: one double column a feature,
    the optional parameter `setting`; returns `submit` and `score`.
    """
    _quiet()
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    manifest = artifact.manifest
    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.double, name) for name in manifest["features"]]),
        outputs=Schema([ColSpec(DataType.boolean, "submit"), ColSpec(DataType.double, "score")]),
        params=ParamSchema([ParamSpec("setting", DataType.double, float(manifest["default_setting"]))]),
    )
    with tempfile.TemporaryDirectory() as temporary:
        artifact.save(Path(temporary) / "policy")
        code = Path(temporary) / "code"
        code.mkdir()
        for module in (agent.artifact, features.observe):
            source = Path(str(module.__file__))
            shutil.copyfile(source, code / source.name)
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(Path(__file__).with_name("pyfunc_entry.py")),
            artifacts={"policy": str(Path(temporary) / "policy"), "code": str(code)},
            signature=signature,
            input_example=pd.DataFrame([dict.fromkeys(manifest["features"], 0.0)]),
            pip_requirements=requirements(artifact),
            metadata={"policy": manifest["policy"], "knob": manifest["knob"], "settings": list(manifest["settings"])},
        )


def requirements(artifact: Artifact) -> list[str]:
    """Pinned pip lines of a release: what this environment ran, and the artifact's own lines first.

    Only mlflow-skinny: loading needs no more of MLflow, looking a version up in the registry does.
    """
    own = [str(line) for line in artifact.manifest["requirements"]]
    named = {_package(line) for line in own}
    shared = ("mlflow-skinny", "numpy", "pandas")
    return [*own, *(f"{name}=={installed_version(name)}" for name in shared if name not in named)]


def register(
    data: DataFolder, artifact: Artifact, *, tags: dict[str, str], description: str, metrics: dict[str, float]
) -> int:
    """A new version of the registered model, without an alias. Returns its number.

    A run of its own holds the model folder, the tags and the metrics of the release.
    """
    initialise(data)
    client = _client(data)
    params = {"policy": artifact.manifest["policy"], "setting": artifact.manifest["default_setting"]}
    run_id = _start_run(
        client,
        f"release {artifact.manifest['policy']}",
        params,
        {name: [value] for name, value in metrics.items()},
        {**tags, "baton.kind": "release"},
    )
    try:
        with tempfile.TemporaryDirectory() as temporary:
            save_model(artifact, Path(temporary) / "model")
            client.log_artifacts(run_id, temporary)
        _ensure_model(client)
        source = f"{client.get_run(run_id).info.artifact_uri}/model"
        made = client.create_model_version(MODEL_NAME, source, run_id, tags=tags, description=description)
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id)
    return int(made.version)


def champion(data: DataFolder) -> RegisteredVersion | None:
    """The version that carries the alias, None before the first release."""
    return find_version(data, None)


def find_version(data: DataFolder, version: int | None) -> RegisteredVersion | None:
    """That version (None: the champion), or None where it is not registered."""
    if not (data.mlflow / "mlflow.db").is_file():
        return None
    client = _client(data)
    from mlflow.exceptions import MlflowException

    try:
        if version is None:
            found = client.get_model_version_by_alias(MODEL_NAME, CHAMPION)
        else:
            found = client.get_model_version(MODEL_NAME, str(version))
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return RegisteredVersion(int(found.version), str(found.run_id), dict(found.tags))


def set_champion(data: DataFolder, version: int) -> None:
    """Points the alias at a registered version."""
    _client(data).set_registered_model_alias(MODEL_NAME, CHAMPION, str(version))


def find_tagged(data: DataFolder, key: str, value: str) -> RegisteredVersion | None:
    """The newest version with that tag."""
    found = [one for one in _search(data) if one.tags.get(key) == value]
    return max(found, key=lambda one: one.version, default=None)


def versions(data: DataFolder) -> list[int]:
    """Registered versions in order."""
    return sorted(one.version for one in _search(data))


def _search(data: DataFolder) -> list[RegisteredVersion]:
    if not (data.mlflow / "mlflow.db").is_file():
        return []
    client, found, token = _client(data), [], None
    while True:
        page = client.search_model_versions(f"name='{MODEL_NAME}'", page_token=token)
        found += [RegisteredVersion(int(one.version), str(one.run_id), dict(one.tags)) for one in page]
        token = page.token
        if not token:
            return found


def set_version_tag(data: DataFolder, version: int, key: str, value: str) -> None:
    """Sets a tag of one version."""
    _client(data).set_model_version_tag(MODEL_NAME, str(version), key, value)


def delete_version_tag(data: DataFolder, version: int, key: str) -> None:
    """Takes a tag off one version, where it has it."""
    found = find_version(data, version)
    if found is not None and key in found.tags:
        _client(data).delete_model_version_tag(MODEL_NAME, str(version), key)


def model_tag(data: DataFolder, key: str) -> str | None:
    """A tag of the registered model as a whole."""
    if champion(data) is None:
        return None
    value = _client(data).get_registered_model(MODEL_NAME).tags.get(key)
    return None if value is None else str(value)


def set_model_tag(data: DataFolder, key: str, value: str) -> None:
    """Sets a tag of the registered model as a whole."""
    _client(data).set_registered_model_tag(MODEL_NAME, key, value)


def download(data: DataFolder, version: int | None = None, into: Path | None = None) -> Path:
    """Fetches the model folder of a version (None: the champion). Raises WorkError where it cannot.

    The version is looked up here, not by `models:/...`: for an alias MLflow looks in the process's global registry.
    """
    found = find_version(data, version)
    label = f"{MODEL_NAME} {CHAMPION if version is None else f'version {version}'}"
    if found is None:
        raise WorkError(f"{label} is not registered in {data.mlflow}; release a policy first")
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    try:
        source = _client(data).get_model_version_download_uri(MODEL_NAME, str(found.version))
        return Path(
            mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=None if into is None else str(into))
        )
    except (MlflowException, OSError) as error:
        raise WorkError(f"{label} cannot be fetched: {' '.join(str(error).split())}") from error


def load_artifact(data: DataFolder, version: int | None = None) -> Artifact:
    """The policy of a registered version (None: the champion). Raises WorkError where it is gone or damaged."""
    folder = download(data, version)
    try:
        return Artifact.load(folder / "artifacts" / "policy")
    except ValueError as error:
        raise WorkError(f"{MODEL_NAME}: {error}; roll back or release again") from error


@contextmanager
def locked(data: DataFolder) -> Iterator[None]:
    """One process at a time in here; not to be nested."""
    data.mlflow.mkdir(parents=True, exist_ok=True)
    with (data.mlflow / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _quiet() -> None:
    """Before the first import: no telemetry, no progress bars of two files, no migration log on every new store."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    for name in ("alembic", "mlflow.store.db.utils", "mlflow.tracking._model_registry.client", "mlflow.pyfunc"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _client(data: DataFolder) -> Any:
    _quiet()
    from mlflow.tracking import MlflowClient

    where = store_uri(data)
    return MlflowClient(tracking_uri=where, registry_uri=where)


def _start_run(
    client: Any, name: str, params: dict[str, Any], metrics: dict[str, list[float]], tags: dict[str, str]
) -> str:
    from mlflow.entities import Metric, Param, RunTag

    experiment = client.get_experiment_by_name(EXPERIMENT)
    run_id = str(client.create_run(experiment.experiment_id, run_name=name).info.run_id)
    now_ms = int(time.time() * 1000)
    points = [
        Metric(key, float(value), now_ms, step) for key, series in metrics.items() for step, value in enumerate(series)
    ]
    client.log_batch(
        run_id,
        params=[Param(key, str(value)) for key, value in params.items()],
        tags=[RunTag(key, value) for key, value in tags.items()],
    )
    for begin in range(0, len(points), BATCH):
        client.log_batch(run_id, metrics=points[begin : begin + BATCH])
    return run_id


def _ensure_model(client: Any) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(MODEL_NAME, description=MODEL_DESCRIPTION)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _package(requirement: str) -> str:
    """Package name of a pip line, normalised."""
    name = requirement.split(";")[0]
    for mark in "[=<>!~ ":
        name = name.split(mark)[0]
    return name.strip().lower().replace("_", "-")
