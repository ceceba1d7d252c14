"""Released policies as plain folders: `artifacts/CLUSTER/VERSION`, and `champion`, a link to the one that counts.

An agent reads these folders alone: no MLflow, no database. A version is copied out of the registry and loaded once,
with its checks, before it gets its name; the link is replaced in one step.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from agent.artifact import Artifact
from models.tracking import versions as tracking
from traces.errors import WorkError
from traces.files import whole
from traces.store.folder import DataFolder

PART = ".export-"  # begins the name of a folder that is not whole yet


def folder(data: DataFolder, cluster: str) -> Path:
    """Where the cluster's released policies lie."""
    return data.artifacts / cluster


def export(data: DataFolder, cluster: str, version: int) -> Path:
    """The folder of that version, made where it is not there or no longer loads; to be called in `champion.alone`.

    Raises WorkError where the registered version is gone or damaged, or does not answer as when it was released.
    """
    place = folder(data, cluster) / str(version)
    try:
        Artifact.load(place)
        return place
    except ValueError:
        pass
    place.parent.mkdir(parents=True, exist_ok=True)
    for part in place.parent.glob(f"{PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PART, dir=place.parent) as temporary:
        policy = tracking.download(data, cluster, version, Path(temporary)) / "artifacts" / "policy"
        try:
            Artifact.load(policy)
        except ValueError as error:
            raise WorkError(
                f"version {version} of {tracking.model_name(cluster)} cannot be released: {error}"
            ) from error
        shutil.rmtree(place, ignore_errors=True)
        policy.rename(place)
    return place


def point(data: DataFolder, cluster: str, version: int) -> None:
    """Makes `champion` a link to the folder of that version, in one step; to be called in `champion.alone`."""
    link = folder(data, cluster) / tracking.CHAMPION
    if link.is_symlink() and os.readlink(link) == str(version):
        return
    whole.sweep(link.parent)
    if link.is_dir() and not link.is_symlink():  # of a data folder that was copied by what follows links
        shutil.rmtree(link)
    part = link.with_name(f".{link.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(str(version))
    part.replace(link)
