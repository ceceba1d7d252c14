"""The registered models of a cluster, `baton-policy-CLUSTER` and `baton-queue-time-CLUSTER`: versions and two aliases.

Each version is a self-contained pyfunc. `champion` is the version that the cluster's agents or `baton wait` use.
`challenger` is the newest candidate that was not let through.

`models.tracking.store` manages their store. (`models/tracking/pyfunc_entry.py` imports mlflow too, but it is never
imported: it is copied into releases.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.tracking.address import tracking_label, tracking_server
from models.tracking.kinds import MODEL_DESCRIPTIONS, POLICY
from models.tracking.pyfuncs import save_pyfunc
from models.tracking.registered import CHAMPION
from models.tracking.runs import ABSENT, TRAINING_VIEW, NewRun, add_files, closed_run, ui
from models.tracking.store import client, database, errors_on_one_line, has_store, initialise, store_uri
from traces.errors import WorkError
from traces.store.folder import DataFolder

if TYPE_CHECKING:  # it imports numpy, and refusals read this module
    from agent.artifact import Artifact
    from agent.distribution import Distribution

SHARED_MODEL = "provisioning-policy"  # of all clusters together, in older stores (`take_over`)
CHALLENGER = "challenger"  # the other alias
CLUSTER_TAG = "cluster"  # of every version
MOST_VERSION = (1 << 63) - 1  # that the store can hold


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


def register(
    data: DataFolder,
    cluster: str,
    released: Artifact | Distribution,
    *,
    tags: dict[str, str],
    description: str,
    metrics: dict[str, float],
    card: str = "",
    model: str = POLICY,
) -> int:
    """Register a new version of the cluster's model, without an alias; returns its number.

    card: Markdown, stored next to the model. A separate run holds the model folder, the tags and the metrics of the
    release.
    """
    manifest = released.manifest
    own = {CLUSTER_TAG: cluster, **tags}
    if model == POLICY:
        name, params = manifest["policy"], {"setting": manifest["default_setting"]}
    else:
        name, params = manifest["method"], {"fitted_until_utc": manifest["trained_on"]["until_utc"]}
    run = NewRun(
        name=f"release {name}",
        params={"policy" if model == POLICY else "method": name, **params},
        metrics={key: [value] for key, value in metrics.items()},
        tags={**own, "mlflow.note.content": description, "baton.kind": "release"},
    )
    initialise(data)
    opened = client(data)
    with closed_run(data, run) as run_id:
        with tempfile.TemporaryDirectory() as temporary:
            save_pyfunc(released, Path(temporary) / "model", model, card)
            add_files(data, run_id, Path(temporary))
        _ensure_model(opened, cluster, model)
        source, registered = f"{opened.get_run(run_id).info.artifact_uri}/model", model_name(cluster, model)
        made = opened.create_model_version(registered, source, run_id, tags=own, description=description)
    return int(made.version)


def champion(data: DataFolder, cluster: str, model: str = POLICY) -> RegisteredVersion | None:
    """The version with the champion alias; None before the first release."""
    return aliased(data, cluster, CHAMPION, model)


def aliased(data: DataFolder, cluster: str, alias: str, model: str = POLICY) -> RegisteredVersion | None:
    """The version with that alias; None without one."""
    return _found(data, lambda opened: opened.get_model_version_by_alias(model_name(cluster, model), alias))


def find_version(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> RegisteredVersion | None:
    """That version, or None if it is not registered."""
    if version > MOST_VERSION:
        return None
    return _found(data, lambda opened: opened.get_model_version(model_name(cluster, model), str(version)))


def _found(data: DataFolder, ask: Callable[[Any], Any]) -> RegisteredVersion | None:
    """The version that MLflow's client answers; None without a store, and for a version that it does not have."""
    if not has_store(data):
        return None
    from mlflow.exceptions import MlflowException

    with errors_on_one_line(data):
        try:
            return _of_client(ask(client(data)))
        except MlflowException as error:
            if error.error_code in ABSENT:
                return None
            raise


def _of_client(version: Any) -> RegisteredVersion:
    return RegisteredVersion(int(version.version), str(version.run_id), dict(version.tags))


def version_url(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> str:
    """Address of that version in MLflow's pages."""
    return f"{ui(data)}/#/models/{model_name(cluster, model)}/versions/{version}?{TRAINING_VIEW}"


def set_alias(data: DataFolder, cluster: str, alias: str, version: int, model: str = POLICY) -> None:
    """Point the alias at a registered version."""
    client(data).set_registered_model_alias(model_name(cluster, model), alias, str(version))


def delete_alias(data: DataFolder, cluster: str, alias: str, model: str = POLICY) -> None:
    """Remove the alias."""
    client(data).delete_registered_model_alias(model_name(cluster, model), alias)


def tagged(data: DataFolder, cluster: str, key: str, value: str, model: str = POLICY) -> list[RegisteredVersion]:
    """The versions with that tag, the newest first."""
    found = [one for one in _search(data, model_name(cluster, model)) if one.tags.get(key) == value]
    return sorted(found, key=lambda one: one.version, reverse=True)


def versions(data: DataFolder, cluster: str, model: str = POLICY) -> list[int]:
    """Registered versions in order."""
    return sorted(one.version for one in _search(data, model_name(cluster, model)))


def _search(data: DataFolder, registered_model: str) -> list[RegisteredVersion]:
    if not has_store(data):
        return []
    found: list[RegisteredVersion] = []
    token = None
    with errors_on_one_line(data):
        opened = client(data)
        while True:
            page = opened.search_model_versions(f"name='{registered_model}'", page_token=token)
            found += map(_of_client, page)
            token = page.token
            if not token:
                return found


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
        raise WorkError(f"{label} is not registered in {tracking_label(data) or data.mlflow}; release a policy first")
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    try:
        source = client(data).get_model_version_download_uri(model_name(cluster, model), str(version))
        return Path(
            mlflow.artifacts.download_artifacts(
                artifact_uri=source, dst_path=None if into is None else str(into), tracking_uri=store_uri(data)
            )
        )
    except (MlflowException, OSError) as error:
        raise WorkError(f"{label} cannot be fetched: {' '.join(str(error).split())}") from error


def take_over(data: DataFolder, cluster: str) -> None:
    """Turn an older store's single model for all clusters into this cluster's, with aliases, tags and versions.

    MLflow renames it in one write. Nothing happens without such a model, or if all its versions belong to another
    cluster. Raises WorkError if they belong to several: nothing records which of them the champion was chosen for.
    A server never held such a model, so that one of that name there is not ours.
    """
    if tracking_server(data) is not None:
        return
    clusters = {one.tags.get(CLUSTER_TAG) for one in _search(data, SHARED_MODEL)}
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
