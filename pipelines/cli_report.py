"""`baton report`, and the paths that `make dev` and `make mlflow` ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines import options
from pipelines.options import Data, Json


def register(app: typer.Typer) -> None:
    app.command()(report)
    app.command("dagster-home")(dagster_home)
    app.command("mlflow-uri")(mlflow_uri)


def report(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option("--out", help="HTML file (default: reports/report.html).")] = None,
    section: Annotated[str | None, typer.Option("--section", help="Only this section.")] = None,
    clusters: Annotated[str | None, typer.Option("--cluster", help="Only these clusters: a,b.")] = None,
    anonymise: Annotated[bool, typer.Option("--anonymise", help="Keyed hashes in place of names.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write the report: one self-contained HTML file, made from the warehouse."""
    from reports.build import build_report

    folder = options.data_folder(context, data)
    with options.output(json) as stream:
        path = build_report(
            folder,
            out=out or folder.reports / "report.html",
            clusters=options.names(clusters) if clusters else None,
            anonymise=anonymise,
            section=section,
        )
        if json:
            options.write_json(stream, {"path": path.resolve()})
        else:
            stream.write(f"{path.resolve()}\n")


def dagster_home(context: typer.Context, data: Data = None) -> None:
    """Print the folder for DAGSTER_HOME, made ready: one process must have opened it before two do."""
    from pipelines.home import prepared_home

    home = prepared_home(options.data_folder(context, data))
    typer.echo(str(home))


def mlflow_uri(context: typer.Context, data: Data = None) -> None:
    """Print the address of the MLflow store, made ready for several processes."""
    from models.tracking import initialise, store_uri

    folder = options.data_folder(context, data)
    folder.ensure_writable()
    initialise(folder)
    typer.echo(store_uri(folder))
