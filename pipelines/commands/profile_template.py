"""`baton profile-template`: write an empty table of step times, with the placements that a log shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines import options
from pipelines.options import Cluster, Data, Mkdir


def register(app: typer.Typer) -> None:
    """Add `baton profile-template`."""
    app.command("profile-template")(profile_template)


def profile_template(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="CSV file to write.")],
    cluster: Cluster = None,
    mkdir: Mkdir = False,
    data: Data = None,
) -> None:
    """Write a CSV for measured step times, a row per GPU type and placement in the log, most GPU hours first.

    Fill in model, local_batch, step_s and, if known, sync_s; remove rows without a measurement; give the file to
    `baton whatif --profiles`.
    """
    options.check_targets({"--out": out}, mkdir=mkdir)
    from models.what_if import profile_template as template
    from traces import clusters
    from traces.files.whole import whole_file
    from traces.store import contents

    folder = options.data_folder(context, data)
    settings = clusters.resolve(folder, cluster=cluster)
    contents.check_clusters(folder, [settings.name])
    rows = template.profile_template(folder, settings.name)
    with whole_file(out) as part:
        rows.write_csv(part)
    options.say(f"{out}: {len(rows):,} placements; fill in model, local_batch, step_s and sync_s")
