"""`baton export`: a cluster's jobs in a format that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines import options
from pipelines.options import Data, Json
from traces.errors import InputError

FORMATS = ("swf",)


def register(app: typer.Typer) -> None:
    app.command()(export)


def export(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster name, as in clusters.toml.")],
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    format_: Annotated[str, typer.Option("--format", help="swf (Standard Workload Format 2.2).")] = "swf",
    processors: Annotated[
        str, typer.Option("--processors", help="What a processor of SWF is: cpus, nodes or gpus.")
    ] = "nodes",
    data: Data = None,
    json: Json = False,
) -> None:
    """Write the jobs of the warehouse as an SWF log; names become numbers."""
    from traces import clusters, store
    from traces.export_swf import write_swf

    folder = options.data_folder(context, data)
    with options.output(json) as stream:
        if format_ not in FORMATS:
            raise InputError(f"--format {format_!r} is not understood: allowed are {', '.join(FORMATS)}")
        settings = clusters.resolve(folder, cluster=cluster)
        jobs = store.read(folder, "SELECT * FROM jobs WHERE cluster = ?", [cluster])
        per_unit = {"nodes": 1, "gpus": settings.gpus_per_node or 0}.get(processors, 0)
        most = (settings.nodes or 0) * per_unit or None
        done = write_swf(jobs, out, cluster=cluster, processors=processors, most=most)
        if json:
            options.write_json(stream, vars(done))
        else:
            stream.write(
                f"{done.path}: {done.jobs:,} jobs, {done.left_out:,} without a submission left out; "
                f"processors are {done.processors}, MaxProcs {done.max_procs:,}\n"
            )
