"""The registered models of a cluster, `baton-policy-CLUSTER` and `baton-queue-time-CLUSTER`: versions and two aliases.

Each version is a self-contained pyfunc. `champion` is the version that the cluster's agents or `baton wait` use.
`challenger` is the newest candidate that was not let through.

`models.tracking.store` manages their store. (`models/tracking/pyfunc_entry.py` imports mlflow too, but it is never
imported: it is copied into releases.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.tracking import sql as mlflow_sql
from models.tracking.runs import TRAINING_VIEW, UI, NewRun, add_files, closed_run
from models.tracking.store import client, database, initialise, quiet
from traces.cache.closure import present
from traces.errors import WorkError
from traces.store.folder import DataFolder

if TYPE_CHECKING:  # it imports numpy, and refusals read this module
    from agent.artifact import Artifact
    from agent.distribution import Distribution

SHARED_MODEL = "provisioning-policy"  # of all clusters together, in older stores (`take_over`)
POLICY, QUEUE_TIME = "policy", "queue-time"  # kinds of registered models of a cluster
CHAMPION, CHALLENGER = "champion", "challenger"  # aliases
MODEL_CARD = "MODEL_CARD.md"
CLUSTER_TAG = "cluster"  # of every version
# Copied into every release: the loader, as modules of one package, and the definition of the features.
LOADER = ("agent.artifact", "agent.kinds", "agent.trees", "features.observe")
ENTRY = "models.tracking.pyfunc_entry"
SHIPPED = (ENTRY, *LOADER)
MODEL_DESCRIPTIONS = {
    POLICY: (
        "When to submit the successor of a time-limited job, so that work passes on with neither a gap nor a double "
        "booking. Input: one row a decision, one float column a feature. Output: submit (bool) and score."
    ),
    QUEUE_TIME: (
        "How long a job would wait, as a distribution. Input: one row a job, one float column a feature, and the name "
        "of its partition. Output: quantiles of the wait, s, and the probability of a wait under ten minutes."
    ),
}


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a cluster's registered model."""

    version: int
    run_id: str
    tags: dict[str, str]


def model_name(cluster: str, model: str = POLICY) -> str:
    """Name of a registered model of the cluster; all characters of cluster names are valid in MLflow."""
    return f"baton-{model}-{cluster}"


def champion_uri(cluster: str) -> str:
    """The URI from which a consumer loads the champion."""
    return f"models:/{model_name(cluster)}@{CHAMPION}"


def save_model(artifact: Artifact, folder: Path, card: str = "") -> None:
    """Write the artifact as an MLflow pyfunc that does not need Baton.

    The folder holds the entry script, the artifact, copies of its loader and of `features.observe`, and pinned
    requirements (mlflow-skinny, numpy, pandas and those that the artifact names). Signature: one double column per
    feature and the optional parameter `setting`; returns `submit` and `score`.
    """
    quiet()
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
        if card:
            (Path(temporary) / "policy" / MODEL_CARD).write_text(card, encoding="utf-8")
        copy_package(LOADER, Path(temporary) / "code")
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(present().path(ENTRY)),
            artifacts={"policy": str(Path(temporary) / "policy"), "code": str(Path(temporary) / "code")},
            signature=signature,
            input_example=pd.DataFrame([dict.fromkeys(manifest["features"], 0.0)]),
            pip_requirements=requirements(artifact),
            metadata={"policy": manifest["policy"], "knob": manifest["knob"], "settings": list(manifest["settings"])},
        )


def copy_package(modules: Sequence[str], folder: Path) -> None:
    """Copy the modules into a new folder, as a package whose modules import each other relatively."""
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for module in modules:
        source = present().path(module)
        text = source.read_text(encoding="utf-8").replace("from agent.", "from .")
        (folder / source.name).write_text(text, encoding="utf-8")


def requirements(artifact: Artifact | Distribution) -> list[str]:
    """Pinned pip lines of a release: the artifact's own lines first, then those of this environment.

    Only mlflow-skinny is pinned: loading needs no more of MLflow, while looking a version up in the registry does.
    """
    own = [str(line) for line in artifact.manifest["requirements"]]
    named = {_package(line) for line in own}
    shared = ("mlflow-skinny", "numpy", "pandas")
    return [*own, *(f"{name}=={installed_version(name)}" for name in shared if name not in named)]


def register(
    data: DataFolder,
    cluster: str,
    artifact: Artifact,
    *,
    tags: dict[str, str],
    description: str,
    metrics: dict[str, float],
    card: str = "",
) -> int:
    """Register a new version of the cluster's model, without an alias; returns its number.

    card: Markdown, stored next to the artifact. A separate run holds the model folder, the tags and the metrics of the
    release.
    """
    run = NewRun(
        name=f"release {artifact.manifest['policy']}",
        params={"policy": artifact.manifest["policy"], "setting": artifact.manifest["default_setting"]},
        metrics={name: [value] for name, value in metrics.items()},
        tags={**tags, "mlflow.note.content": description},
    )
    return register_saved(data, cluster, run, lambda folder: save_model(artifact, folder, card))


def register_saved(
    data: DataFolder, cluster: str, run: NewRun, save: Callable[[Path], None], model: str = POLICY
) -> int:
    """Register a new version of a model of the cluster, with the tags and the note of the run that holds it.

    save: writes the model folder. Returns the version's number.
    """
    initialise(data)
    opened = client(data)
    note = run.tags.get("mlflow.note.content", "")
    tags = {key: value for key, value in run.tags.items() if not key.startswith("mlflow.")} | {CLUSTER_TAG: cluster}
    run = replace(run, tags={**run.tags, CLUSTER_TAG: cluster, "baton.kind": "release"})
    with closed_run(data, run) as run_id:
        with tempfile.TemporaryDirectory() as temporary:
            save(Path(temporary) / "model")
            add_files(data, run_id, Path(temporary))
        _ensure_model(opened, cluster, model)
        source = f"{opened.get_run(run_id).info.artifact_uri}/model"
        made = opened.create_model_version(model_name(cluster, model), source, run_id, tags=tags, description=note)
    return int(made.version)


def champion(data: DataFolder, cluster: str, model: str = POLICY) -> RegisteredVersion | None:
    """The version with the champion alias; None before the first release."""
    return aliased(data, cluster, CHAMPION, model)


def aliased(data: DataFolder, cluster: str, alias: str, model: str = POLICY) -> RegisteredVersion | None:
    """The version with that alias; None without one."""
    version = mlflow_sql.aliased_version(database(data), model_name(cluster, model), alias)
    return None if version is None else find_version(data, cluster, version, model)


def find_version(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> RegisteredVersion | None:
    """That version, or None if it is not registered."""
    row = mlflow_sql.model_version(database(data), model_name(cluster, model), version)
    return None if row is None else RegisteredVersion(*row)


def version_url(cluster: str, version: int, model: str = POLICY) -> str:
    """Address of that version on the server of `make mlflow` (or the one named by BATON_MLFLOW_UI)."""
    return f"{UI}/#/models/{model_name(cluster, model)}/versions/{version}?{TRAINING_VIEW}"


def set_alias(data: DataFolder, cluster: str, alias: str, version: int, model: str = POLICY) -> None:
    """Point the alias at a registered version."""
    client(data).set_registered_model_alias(model_name(cluster, model), alias, str(version))


def delete_alias(data: DataFolder, cluster: str, alias: str, model: str = POLICY) -> None:
    """Remove the alias."""
    client(data).delete_registered_model_alias(model_name(cluster, model), alias)


def tagged(data: DataFolder, cluster: str, key: str, value: str, model: str = POLICY) -> list[RegisteredVersion]:
    """The versions with that tag, the newest first."""
    found = [one for one in _search(data, cluster, model) if one.tags.get(key) == value]
    return sorted(found, key=lambda one: one.version, reverse=True)


def versions(data: DataFolder, cluster: str, model: str = POLICY) -> list[int]:
    """Registered versions in order."""
    return sorted(one.version for one in _search(data, cluster, model))


def _search(data: DataFolder, cluster: str, model: str) -> list[RegisteredVersion]:
    if not database(data).is_file():
        return []
    opened, registered, token = client(data), [], None
    while True:
        page = opened.search_model_versions(f"name='{model_name(cluster, model)}'", page_token=token)
        registered += [
            RegisteredVersion(int(version.version), str(version.run_id), dict(version.tags)) for version in page
        ]
        token = page.token
        if not token:
            return registered


def set_version_tag(data: DataFolder, cluster: str, version: int, key: str, value: str, model: str = POLICY) -> None:
    """Set a tag of one version."""
    client(data).set_model_version_tag(model_name(cluster, model), str(version), key, value)


def delete_version_tag(data: DataFolder, cluster: str, version: int, key: str, model: str = POLICY) -> None:
    """Remove a tag from one version, if it has it."""
    registered = find_version(data, cluster, version, model)
    if registered is not None and key in registered.tags:
        client(data).delete_model_version_tag(model_name(cluster, model), str(version), key)


def model_tag(data: DataFolder, cluster: str, key: str, model: str = POLICY) -> str | None:
    """A tag of the registered model as a whole."""
    if champion(data, cluster, model) is None:
        return None
    value = client(data).get_registered_model(model_name(cluster, model)).tags.get(key)
    return None if value is None else str(value)


def set_model_tag(data: DataFolder, cluster: str, key: str, value: str, model: str = POLICY) -> None:
    """Set a tag of the registered model as a whole."""
    client(data).set_registered_model_tag(model_name(cluster, model), key, value)


def download(data: DataFolder, cluster: str, version: int, into: Path | None = None, model: str = POLICY) -> Path:
    """Fetch the model folder of a version. Raises WorkError if that fails.

    The version is looked up here, not by `models:/...`, because for an alias MLflow uses the process's global registry.
    """
    label = f"version {version} of {model_name(cluster, model)}"
    if find_version(data, cluster, version, model) is None:
        raise WorkError(f"{label} is not registered in {data.mlflow}; release a policy first")
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    try:
        source = client(data).get_model_version_download_uri(model_name(cluster, model), str(version))
        return Path(
            mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=None if into is None else str(into))
        )
    except (MlflowException, OSError) as error:
        raise WorkError(f"{label} cannot be fetched: {' '.join(str(error).split())}") from error


def load_artifact(data: DataFolder, cluster: str, version: int) -> Artifact:
    """The policy of a registered version. Raises WorkError if it is missing or damaged."""
    from agent.artifact import Artifact

    folder = download(data, cluster, version)
    try:
        return Artifact.load(folder / "artifacts" / "policy")
    except ValueError as error:
        raise WorkError(f"{model_name(cluster)}: {error}; roll back or release again") from error


def take_over(data: DataFolder, cluster: str) -> None:
    """Turn an older store's single model for all clusters into this cluster's, with aliases, tags and versions.

    MLflow renames it in one write. Nothing happens without such a model, or if all its versions belong to another
    cluster. Raises WorkError if they belong to several: nothing records which of them the champion was chosen for.
    """
    clusters = mlflow_sql.version_tags(database(data), SHARED_MODEL, CLUSTER_TAG)
    if not clusters or (len(clusters) == 1 and clusters != {cluster}):
        return
    if clusters != {cluster} or versions(data, cluster):
        known = ", ".join(sorted(str(name) for name in clusters))
        raise WorkError(
            f"{database(data)} registers {SHARED_MODEL!r}, one model for the clusters {known}, but every cluster needs "
            f"its own model ({model_name(cluster)}); delete the old one in MLflow, then release again"
        )
    client(data).rename_registered_model(SHARED_MODEL, model_name(cluster))


def _ensure_model(opened: Any, cluster: str, model: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        opened.create_registered_model(model_name(cluster, model), description=MODEL_DESCRIPTIONS[model])
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _package(requirement: str) -> str:
    """Package name of a pip line, normalised."""
    name = requirement.split(";")[0]
    for mark in "[=<>!~ ":
        name = name.split(mark)[0]
    return name.strip().lower().replace("_", "-")
