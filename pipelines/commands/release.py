"""`baton promote`, `baton rollback`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines import options
from pipelines.options import ClusterName, Data, Json
from traces.errors import WorkError
from traces.store.folder import DataFolder


def register(app: typer.Typer) -> None:
    """Adds the commands that change which version is a cluster's champion."""
    app.command()(promote)
    app.command()(rollback)


def promote(
    context: typer.Context,
    version: Annotated[int, typer.Argument(help="Registered version of the cluster's policy.", min=1)],
    cluster: ClusterName,
    reason: Annotated[str, typer.Option("--reason", help="Why by hand: logged, and kept with the version.")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a registered version its cluster's champion, whatever the gate said."""
    folder = _of_cluster(context, data, cluster)
    from models.tracking import registered

    registered.check_version(folder, cluster, version)
    from models.release.champion import promote as promote_

    _announce(cluster, promote_(folder, cluster, version, reason), json, "promoted")


def rollback(context: typer.Context, cluster: ClusterName, data: Data = None, json: Json = False) -> None:
    """Make the cluster's champion before this one the champion again."""
    folder = _of_cluster(context, data, cluster)
    from models.tracking import registered, versions

    if registered.champion_version(folder, cluster) is None:
        name = versions.model_name(cluster)
        raise WorkError(f"{name} has no champion to roll back from; release a policy first")
    from models.release.champion import rollback as rollback_

    _announce(cluster, rollback_(folder, cluster), json, "rolled back to")


def _of_cluster(context: typer.Context, data: Path | None, cluster: str) -> DataFolder:
    """The data folder, whose registry has this cluster's model under its own name. Raises InputError for no cluster."""
    from models.tracking import versions
    from traces import clusters

    folder = options.data_folder(context, data)
    clusters.check_name(cluster)
    versions.take_over(folder, cluster)
    return folder


def _announce(cluster: str, version: int, json: bool, what: str) -> None:
    from models.tracking.versions import model_name

    with options.output(json) as out:
        if json:
            options.write_json(out, {"model": model_name(cluster), "champion": version})
        else:
            out.write(f"{what} {model_name(cluster)} version {version}\n")
