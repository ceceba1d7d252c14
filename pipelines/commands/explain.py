"""`baton explain`: why a job (or a user's jobs) waited, how it ran, and when another request would have started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import options
from pipelines.options import Cluster, Data, Json
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.what_if.job import JobChange
    from traces.clusters import ClusterSettings


def register(app: typer.Typer) -> None:
    """Add `baton explain`."""
    app.command()(explain)


def explain(
    context: typer.Context,
    job_id: Annotated[
        str | None, typer.Argument(metavar="JOBID", help="Job id: 123, 123_7 or 123+1.", show_default=False)
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Explain all jobs of this user instead.")] = None,
    cluster: Cluster = None,
    limit: Annotated[str | None, typer.Option("--limit", help="Simulate the start with this time limit: 12h.")] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", min=1, max=options.MOST_NODES, help="Simulate the start with this many nodes."),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Explain why a job waited, which jobs ran meanwhile, how it ran, and when a smaller request would have started.

    The wait is split into causes that add up to it. The replay simulates the queue from the job's submission on, as
    `baton whatif` does. It also replays the job unchanged: the smaller its distance from the record, the more you can
    trust the differences.
    """
    from traces import clusters
    from traces.find_job import find_job, find_user

    folder = options.data_folder(context, data)
    with options.output(json) as out:
        if (job_id is None) == (user is None) or not (job_id or user or "").strip():
            raise InputError("explain needs either a job or a user: give JOBID or --user NAME")
        limit_s = None if limit is None else options.duration_s(limit)
        if user is not None:
            if limit is not None or nodes is not None:
                raise InputError("--limit and --nodes apply to one job: give a JOBID instead of --user")
            settings = clusters.resolve(folder, cluster=find_user(folder, user, cluster))
            explained = _of_user(folder, settings, user)
        else:
            named = find_job(folder, str(job_id), cluster)
            for key in named.older:
                options.say(f"an older job (key {key!r}) had the same id; explaining the newest one")
            settings = clusters.resolve(folder, cluster=named.cluster)
            explained = _of_job(folder, settings, named.job_key, limit_s, nodes)
        if json:
            options.write_json(out, explained)
            return
        from reports.text.explanation import job_text, user_text

        out.write(user_text(explained) if user is not None else job_text(explained))


def _of_user(folder: DataFolder, settings: ClusterSettings, user: str) -> dict[str, Any]:
    from features import explain_user

    return explain_user.user(folder, settings, user)


def _of_job(
    folder: DataFolder, settings: ClusterSettings, job_key: str, limit_s: int | None, nodes: int | None
) -> dict[str, Any]:
    from features import explain as explain_
    from models.what_if.answers import what_if_of_job
    from models.what_if.job import JobChange

    changes: list[JobChange] | None = None
    if limit_s is not None or nodes is not None:
        changes = [JobChange("what you ask for", limit_s=limit_s, nodes=nodes)]
    explained = explain_.job(folder, settings, job_key)
    answer = what_if_of_job(folder, settings.name, job_key, changes)
    why = None if answer else "the record lacks its submission, its start or end after it, or any later job that ran"
    return {**explained, "what_if": answer, "why_no_what_if": why}
