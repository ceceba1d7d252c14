"""The champion's version, read from the link that agents follow: importing mlflow to ask its registry takes 4 s."""

from __future__ import annotations

import os
from pathlib import Path

from models.tracking.kinds import POLICY
from traces.errors import InputError
from traces.store.folder import DataFolder

CHAMPION = "champion"  # the link, and the alias in the registry


def folder(data: DataFolder, cluster: str, model: str = POLICY) -> Path:
    """Folder of the cluster's released models of that kind; for policies it is directly in the artifacts."""
    return data.artifacts / cluster if model == POLICY else data.artifacts / model / cluster


def champion_version(data: DataFolder, cluster: str, model: str = POLICY) -> int | None:
    """The version that the link `champion` names; None without a link."""
    try:
        return int(os.readlink(folder(data, cluster, model) / CHAMPION))
    except (OSError, ValueError):
        return None


def check_champion(data: DataFolder, cluster: str) -> int:
    """The version of the policy that is the cluster's champion. Raises InputError if there is none."""
    if (version := champion_version(data, cluster)) is None:
        raise InputError(
            f"cluster {cluster!r} has no champion in {folder(data, cluster)}; run `baton run` first, or name a policy"
        )
    return version
