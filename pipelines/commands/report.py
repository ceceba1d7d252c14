"""`baton report`, and the paths that `make dev` and `make mlflow` use."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines import completion, options
from pipelines.options import Data, Json, Mkdir
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.visible import visible


def register(app: typer.Typer) -> None:
    """Add `baton report`, `baton dagster-home` and `baton mlflow-uri`."""
    app.command()(report)
    app.command("dagster-home")(dagster_home)
    app.command("mlflow-uri")(mlflow_uri)


def report(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="HTML file (default: reports/report.html; a partial report goes next to it)."),
    ] = None,
    section: Annotated[
        str | None, typer.Option("--section", autocompletion=completion.sections, help="Only this section.")
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option("--cluster", autocompletion=completion.several_clusters, help="Only these clusters: a,b."),
    ] = None,
    offenders: Annotated[
        Path | None, typer.Option("--offenders", help="Write only the CSV of users who waste resources, to this file.")
    ] = None,
    mkdir: Mkdir = False,
    anonymise: Annotated[bool, typer.Option("--anonymise", help="Replace names by keyed hashes.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write the report, one self-contained HTML file made from the warehouse.

    --json adds the data of a --section. offenders.csv, next to the report, lists users with idle GPUs, hopeless retries
    or excessive limits, with a mail for each.
    """
    from reports.sections.names import check_section
    from traces.store.contents import check_clusters

    options.check_targets({"--out": out, "--offenders": offenders}, mkdir=mkdir)
    folder = options.data_folder(context, data)
    chosen = options.names(clusters) if clusters else None
    if section is not None:
        check_section(section)
    check_clusters(folder, chosen or ())
    if offenders is not None:
        _write_offenders(folder, offenders, chosen, anonymise, json)
        return
    _write_report(folder, out, section, chosen, anonymise, json)


def _write_report(
    folder: DataFolder,
    out: Path | None,
    section: str | None,
    clusters: list[str] | None,
    anonymise: bool,
    as_json: bool,
) -> None:
    from assets.remarks import remarks
    from reports.build import build_report, section_data
    from traces.clusters import resolve
    from traces.store.contents import cluster_names

    key = secrets.token_bytes(32)  # shared, so that hashes in the JSON equal those on the page
    with options.output(as_json) as stream:
        out = _file(folder, out, section, clusters, anonymise=anonymise)
        names = clusters or cluster_names(folder)
        by_cluster = remarks(folder, [resolve(folder, cluster=name) for name in names])
        path = build_report(
            folder, out=out, clusters=clusters, anonymise=anonymise, section=section, key=key, remarks=by_cluster
        )
        if as_json:
            answer: dict[str, Any] = {"path": path.resolve()}
            if section is not None:
                answer["sections"] = [
                    section_data(folder, name, section, anonymise=anonymise, key=key, remarks=by_cluster)
                    for name in names
                ]
            options.write_json(stream, answer)
        else:
            stream.write(f"{visible(str(path.resolve()))}\n")


def _write_offenders(
    folder: DataFolder, path: Path, clusters: list[str] | None, anonymise: bool, as_json: bool
) -> None:
    from reports.sections.offenders import write_offenders
    from reports.source import Names, Source
    from traces.store.contents import cluster_names

    names = Names(secrets.token_bytes(32) if anonymise else None)
    with options.output(as_json) as stream:
        rows = write_offenders(path, [Source(folder, name, names) for name in clusters or cluster_names(folder)])
        if as_json:
            options.write_json(stream, {"path": path.resolve(), "rows": rows})
        else:
            stream.write(f"{visible(str(path.resolve()))}: {counted(rows, 'row')}\n")


def _file(
    folder: DataFolder, out: Path | None, section: str | None, clusters: list[str] | None, *, anonymise: bool
) -> Path:
    """Return the path of the report. A partial or anonymised report never replaces the whole one.

    `section` and `clusters` must be known. Raises InputError if --out would replace the whole report.
    """
    whole = folder.reports / "report.html"
    parts = [*([section] if section else []), *(clusters or []), *(["anonymised"] if anonymise else [])]
    path = out or whole.with_name("-".join(["report", *parts]) + ".html")
    if path.is_dir():
        raise InputError(f"--out {path} is a folder; name a file in it")
    if parts and path.resolve() == whole.resolve():
        raise InputError(
            f"--out {out} is the file of the whole report; a partial or anonymised report must not replace it: "
            "name another file"
        )
    return path


def dagster_home(context: typer.Context, data: Data = None) -> None:
    """Prepare the folder for DAGSTER_HOME and print it."""
    from pipelines.runs.home import graph_url, prepared_home

    home = prepared_home(options.data_folder(context, data))
    options.say(f"asset graph with all groups open, while `make dev` runs: {graph_url()}")
    typer.echo(str(home))


def mlflow_uri(context: typer.Context, data: Data = None) -> None:
    """Prepare the MLflow store for several processes and print its address, without a password."""
    from models.tracking.address import tracking_label
    from models.tracking.runs import by_cost_url
    from models.tracking.store import initialise, store_uri

    folder = options.data_folder(context, data)
    folder.ensure_writable()
    initialise(folder)
    served = "" if tracking_label(folder) else ", while `make mlflow` runs"
    options.say(f"runs sorted by cost{served}: {by_cost_url(folder)}")
    typer.echo(tracking_label(folder) or store_uri(folder))
