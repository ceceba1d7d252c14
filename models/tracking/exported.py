"""Export released models as plain folders, with a link `champion` to the current one.

Policies are in `artifacts/CLUSTER/VERSION`, queue-time models in `artifacts/queue-time/CLUSTER/VERSION`. An agent reads
only these folders: no MLflow, no database. A version is copied out of the registry and loaded once, with its checks,
before its folder gets its name. The link is replaced in one step.
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
from models.tracking.address import tracking_label
from models.tracking.kinds import POLICY, QUEUE_TIME
from models.tracking.registered import CHAMPION, folder
from traces.errors import WorkError
from traces.files import whole
from traces.store.folder import DataFolder

# For each kind of registered model, the loader of its folder, which has the name of the kind in the registry.
LOADERS: dict[str, Callable[[Path], object]] = {POLICY: Artifact.load, QUEUE_TIME: Distribution.load}
PART = ".export-"  # prefix of a folder that is not complete yet


def export(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> Path:
    """Export a version; returns its folder, made if it is missing or no longer loads. Call it in `champion.alone`.

    Raises WorkError if the registered version is missing or damaged, or gives other answers than at its release.
    """
    place, load = folder(data, cluster, model) / str(version), LOADERS[model]
    note, registry = place.with_name(f".{version}.registry"), tracking_label(data)
    try:
        load(place)
        if (note.read_text(encoding="utf-8") if note.is_file() else "") == registry:
            return place
    except (ValueError, OSError):
        pass
    place.parent.mkdir(parents=True, exist_ok=True)
    for part in place.parent.glob(f"{PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PART, dir=place.parent) as temporary:
        fetched = tracking.download(data, cluster, version, Path(temporary), model) / "artifacts" / model
        try:
            load(fetched)
        except ValueError as error:
            raise WorkError(
                f"version {version} of {tracking.model_name(cluster, model)} cannot be released: {error}"
            ) from error
        shutil.rmtree(place, ignore_errors=True)
        fetched.rename(place)
    note.unlink(missing_ok=True)
    if registry:  # the same number is another version in another registry
        whole.write_text(note, registry)
    return place


def load_policy(data: DataFolder, cluster: str, version: int) -> Artifact:
    """Load the exported policy of a version that is, or was, champion. Raises WorkError if it is missing or damaged."""
    place = folder(data, cluster) / str(version)
    try:
        return Artifact.load(place)
    except ValueError as error:
        raise WorkError(
            f"{place}: the champion of cluster {cluster!r} cannot be read ({error}); "
            f"`baton promote --cluster {cluster} {version} --reason ...` restores it"
        ) from error


def point(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> None:
    """Make `champion` a link to the folder of that version, in one step. Call it in `champion.alone`."""
    link = folder(data, cluster, model) / CHAMPION
    if link.is_symlink() and os.readlink(link) == str(version):
        return
    whole.sweep(link.parent)
    if link.is_dir() and not link.is_symlink():  # in a data folder copied by a tool that follows links
        shutil.rmtree(link)
    part = link.with_name(f".{link.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(str(version))
    part.replace(link)
