"""`baton doctor`: check the deployment of a data folder, a line a check with the mend."""

from __future__ import annotations

import typer

from pipelines import options
from pipelines.options import Data, Json


def register(app: typer.Typer) -> None:
    """Add `baton doctor`."""
    app.command("doctor")(doctor)


def doctor(context: typer.Context, data: Data = None, as_json: Json = False) -> None:
    """Check where the work would run: versions, the partition, and one task on a node.

    Exits with 1 if a check failed.
    """
    from models.engine.checks import checks
    from models.engine.deployment import read_deployment

    deployment = read_deployment(options.data_folder(context, data).root)
    with options.output(as_json) as stream:
        found = []
        for one in checks(deployment):
            found.append(one)
            if not as_json:
                stream.write(f"{'FAILED' if one.mend else 'ok':6}  {one.name}: {one.finding}\n")
                stream.write(f"        {one.mend}\n" if one.mend else "")
                stream.flush()
        if as_json:
            options.write_json(stream, {"checks": [one._asdict() for one in found]})
    if any(one.mend for one in found):
        raise typer.Exit(1)
