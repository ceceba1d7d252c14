"""Read the registered versions from MLflow's SQLite file, because importing MLflow to reject a request takes 5 s.

Changes of the registry, and details of a version, go through `models.tracking.versions`.
"""

from __future__ import annotations

from models.tracking.kinds import POLICY
from models.tracking.sql import rows
from models.tracking.store import database
from models.tracking.versions import champion, model_name
from traces.errors import InputError
from traces.store.folder import DataFolder


def versions(data: DataFolder, cluster: str, model: str = POLICY) -> list[int]:
    """Registered versions in order; none without a registry."""
    statement = "SELECT version FROM model_versions WHERE name = ? AND current_stage <> 'Deleted_Internal'"
    return sorted(int(version) for (version,) in rows(database(data), statement, (model_name(cluster, model),)))


def champion_version(data: DataFolder, cluster: str, model: str = POLICY) -> int | None:
    """The version with the alias `champion`."""
    present = champion(data, cluster, model)
    return None if present is None else present.version


def check_champion(data: DataFolder, cluster: str) -> int:
    """The version with the alias `champion`. Raises InputError if there is none."""
    if (version := champion_version(data, cluster)) is None:
        raise InputError(
            f"no champion of cluster {cluster!r} is registered in {data.mlflow}; run `baton run` first, or name a "
            "policy"
        )
    return version


def check_version(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> None:
    """Raise InputError, listing the registered versions, if this one is not registered."""
    if version not in (known := versions(data, cluster, model)):
        registered = ", ".join(map(str, known)) or "none"
        raise InputError(f"{model_name(cluster, model)} has no version {version}; registered: {registered}")
