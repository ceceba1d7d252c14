"""`baton promote`, `baton rollback`: change which version is a cluster's champion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.tracking.kinds import POLICY, QUEUE_TIME
from pipelines import options
from pipelines.options import ClusterName, Data, Json
from traces.errors import InputError, WorkError
from traces.store.folder import DataFolder

KINDS = (POLICY, QUEUE_TIME)
Kind = Annotated[str, typer.Option("--model", metavar="KIND", help=f"Kind of model: {' or '.join(KINDS)}.")]


def register(app: typer.Typer) -> None:
    """Add `baton promote` and `baton rollback`."""
    app.command()(promote)
    app.command()(rollback)


def promote(
    context: typer.Context,
    version: Annotated[int, typer.Argument(help="Registered version of the cluster's model.", min=1)],
    cluster: ClusterName,
    reason: Annotated[str, typer.Option("--reason", help="Reason for the promotion; stored with the version.")],
    model: Kind = POLICY,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a registered version its cluster's champion, regardless of the release gate."""
    folder = _of_cluster(context, data, cluster, model)
    if not _has_registry(folder):  # and importing what promotes takes as long as a refusal may
        raise InputError(
            f"no version {version} of {cluster!r} is registered in {_registry(folder)}; run `baton run` first"
        )
    from models.release.champion import promote as promote_
    from models.release.log import DECISIONS

    promoted = promote_(folder, cluster, version, reason, DECISIONS[model])
    _announce(cluster, promoted, json, "promoted", model)


def rollback(
    context: typer.Context, cluster: ClusterName, model: Kind = POLICY, data: Data = None, json: Json = False
) -> None:
    """Make the previous champion of the cluster the champion again."""
    folder = _of_cluster(context, data, cluster, model)
    if not _has_registry(folder):
        raise WorkError(f"{cluster!r} has no champion to roll back from in {_registry(folder)}; run `baton run` first")
    from models.release.champion import rollback as rollback_
    from models.release.log import DECISIONS

    _announce(cluster, rollback_(folder, cluster, DECISIONS[model]), json, "rolled back to", model)


def _has_registry(folder: DataFolder) -> bool:
    from models.tracking.store import has_store

    return has_store(folder)


def _registry(folder: DataFolder) -> str:
    from models.tracking.address import tracking_label

    return tracking_label(folder) or str(folder.mlflow)


def _of_cluster(context: typer.Context, data: Path | None, cluster: str, model: str) -> DataFolder:
    """Return the data folder, after its registry has this cluster's model under the cluster's own name.

    Raises InputError for an invalid cluster name or an unknown kind of model.
    """
    from models.tracking import versions
    from traces import clusters

    if model not in KINDS:
        raise InputError(f"unknown --model {model}: use {' or '.join(KINDS)}")
    folder = options.data_folder(context, data)
    clusters.check_name(cluster)
    options.check_tracking(folder)
    versions.take_over(folder, cluster)
    return folder


def _announce(cluster: str, version: int, json: bool, what: str, model: str) -> None:
    from models.tracking.versions import model_name

    with options.output(json) as out:
        if json:
            options.write_json(out, {"model": model_name(cluster, model), "champion": version})
        else:
            out.write(f"{what} {model_name(cluster, model)} version {version}\n")
