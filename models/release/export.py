"""Released models as plain folders: `artifacts/CLUSTER/VERSION` of policies, `artifacts/queue-time/CLUSTER/VERSION` of
queue-time models, and beside them `champion`, a link to the one that counts.

An agent reads these folders alone: no MLflow, no database. A version is copied out of the registry and loaded once,
with its checks, before it gets its name; the link is replaced in one step.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from agent.artifact import Artifact
from agent.distribution import Distribution
from models.tracking import versions as tracking
from traces.errors import WorkError
from traces.files import whole
from traces.store.folder import DataFolder

# Of each kind of registered model what reads its folder, and the name of that folder in the registry's own.
LOADERS: dict[str, Callable[[Path], object]] = {tracking.POLICY: Artifact.load, tracking.QUEUE_TIME: Distribution.load}
FOLDERS = {tracking.POLICY: "policy", tracking.QUEUE_TIME: "queue-time"}
PART = ".export-"  # begins the name of a folder that is not whole yet


def folder(data: DataFolder, cluster: str, model: str = tracking.POLICY) -> Path:
    """Where the cluster's released models of that kind lie: policies in the artifacts themselves."""
    return data.artifacts / cluster if model == tracking.POLICY else data.artifacts / model / cluster


def export(data: DataFolder, cluster: str, version: int, model: str = tracking.POLICY) -> Path:
    """The folder of that version, made where it is not there or no longer loads; to be called in `champion.alone`.

    Raises WorkError where the registered version is gone or damaged, or does not answer as when it was released.
    """
    place, load = folder(data, cluster, model) / str(version), LOADERS[model]
    try:
        load(place)
        return place
    except ValueError:
        pass
    place.parent.mkdir(parents=True, exist_ok=True)
    for part in place.parent.glob(f"{PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PART, dir=place.parent) as temporary:
        fetched = tracking.download(data, cluster, version, Path(temporary), model) / "artifacts" / FOLDERS[model]
        try:
            load(fetched)
        except ValueError as error:
            raise WorkError(
                f"version {version} of {tracking.model_name(cluster, model)} cannot be released: {error}"
            ) from error
        shutil.rmtree(place, ignore_errors=True)
        fetched.rename(place)
    return place


def point(data: DataFolder, cluster: str, version: int, model: str = tracking.POLICY) -> None:
    """Makes `champion` a link to the folder of that version, in one step; to be called in `champion.alone`."""
    link = folder(data, cluster, model) / tracking.CHAMPION
    if link.is_symlink() and os.readlink(link) == str(version):
        return
    whole.sweep(link.parent)
    if link.is_dir() and not link.is_symlink():  # of a data folder that was copied by what follows links
        shutil.rmtree(link)
    part = link.with_name(f".{link.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(str(version))
    part.replace(link)
