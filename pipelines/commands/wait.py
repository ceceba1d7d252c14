"""`baton wait`: when a job will start, and how good every method of saying so was on a window."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines import options
from pipelines.options import Data, Json
from traces.errors import InputError


def register(app: typer.Typer) -> None:
    """Adds `baton wait`."""
    app.command()(wait)


def wait(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster name, as in clusters.toml.")],
    from_: Annotated[str | None, typer.Option("--from", help="Judge jobs submitted from here (UTC).")] = None,
    to: Annotated[str | None, typer.Option("--to", help="... and before here.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Fit on what was known at this date; default: --from.")
    ] = None,
    methods: Annotated[str | None, typer.Option("--methods", help="Methods to judge: a,b,c; default: all.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=options.MOST_SEED, help="Of what is fitted.")] = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Score every method of queue-time prediction on the jobs submitted in a window.

    docs/queue-time.md says what the methods are, what they see and what the figures mean.
    """
    from traces import clusters
    from traces.store import contents

    folder = options.data_folder(context, data)
    if from_ is None or to is None:
        raise InputError("give --from and --to: the window whose jobs are judged")
    bounds = (options.utc_s(from_), options.utc_s(to), None if until is None else options.utc_s(until))
    names = None if methods is None else options.names(methods)
    with options.output(json) as out:
        settings = clusters.resolve(folder, cluster=cluster)
        contents.check_clusters(folder, [cluster])
        from models.queue_time.study import score_window

        result = score_window(folder, settings, bounds[0], bounds[1], known_s=bounds[2], methods=names, seed=seed)
        if json:
            options.write_json(out, result)
        else:
            from reports.text.waits import scores_text

            out.write(scores_text(result))
