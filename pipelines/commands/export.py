"""`baton export`: write a cluster's jobs, or tables of the warehouse, in a format that other programs read."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from pipelines import completion, options
from pipelines.options import Data, Json, Mkdir
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.visible import visible

if TYPE_CHECKING:
    import polars as pl

    from reports.source import Names
    from traces.clusters import ClusterSettings
    from traces.export.swf import ExportedSwf
    from traces.export.tables import ExportedTable

FORMATS = ("swf", "csv", "parquet")
PROCESSORS = ("cpus", "nodes", "gpus")  # units for the processors of SWF
FREE_TEXT = {  # columns that may hold names of people
    "jobs": ("submit_line",),
    "trace_files": ("path",),
    "rejects": ("path", "reason", "raw"),
    "agent_decisions": ("reason",),
    "agent_events": ("text",),
}


def register(app: typer.Typer) -> None:
    """Add `baton export`."""
    app.command()(export)


def export(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="File to write (swf), or folder (csv, parquet).")],
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", autocompletion=completion.clusters, help="Only this cluster; required for swf."),
    ] = None,
    tables: Annotated[str | None, typer.Option("--tables", help="Tables for csv and parquet: a,b.")] = None,
    format_: Annotated[
        str, typer.Option("--format", help="swf (Standard Workload Format 2.2), csv or parquet.")
    ] = "swf",
    processors: Annotated[
        str, typer.Option("--processors", help="Unit for the processors of SWF: cpus, nodes or gpus.")
    ] = "nodes",
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="csv and parquet: replace names by keyed hashes.")
    ] = False,
    mkdir: Mkdir = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write the jobs of the warehouse as an SWF log (names become numbers), or its tables as CSV or Parquet.

    In CSV, text that a spreadsheet would run as a formula is prefixed with an apostrophe.
    """
    from traces import clusters
    from traces.store import contents

    folder = options.data_folder(context, data)
    with options.output(json) as stream:
        if format_ not in FORMATS:
            raise InputError(f"unknown --format {format_!r}: use {', '.join(FORMATS)}")
        options.check_targets({"--out": out if format_ == "swf" else None}, mkdir=mkdir)
        if format_ != "swf":
            chosen = options.names(tables or "")
            contents.check_tables(folder, chosen)
            if cluster is not None:
                contents.check_clusters(folder, [cluster])
            _print_tables(stream, _write_tables(folder, chosen, out, format_, cluster, anonymise), as_json=json)
            return
        if cluster is None or tables is not None:
            raise InputError("--format swf writes the jobs of one cluster: give --cluster, and no --tables")
        settings = clusters.resolve(folder, cluster=cluster)
        if processors not in PROCESSORS:
            raise InputError(f"unknown --processors {processors!r}: use {', '.join(PROCESSORS)}")
        contents.check_clusters(folder, [cluster])
        done = _write_swf(folder, settings, out, processors)
        if json:
            options.write_json(stream, vars(done))
        else:
            stream.write(
                f"{visible(str(done.path))}: {counted(done.jobs, 'job')}, {done.left_out:,} without a submission "
                f"left out; processors are {done.processors}, MaxProcs {done.max_procs:,}\n"
            )


def _write_swf(folder: DataFolder, settings: ClusterSettings, out: Path, processors: str) -> ExportedSwf:
    """Write the jobs of a cluster. The header's MaxProcs is set if nodes (and GPUs per node) are declared."""
    from traces.export.swf import write_swf
    from traces.store import warehouse

    jobs = warehouse.read(folder, "SELECT * FROM jobs WHERE cluster = ?", [settings.name])
    per_unit = {"nodes": 1, "gpus": settings.gpus_per_node or 0}.get(processors, 0)
    most = (settings.nodes or 0) * per_unit or None
    return write_swf(jobs, out, cluster=settings.name, processors=processors, most=most)


def _write_tables(
    folder: DataFolder, tables: list[str], out: Path, format_: str, cluster: str | None, anonymise: bool
) -> list[ExportedTable]:
    from reports.source import Names
    from traces.export.tables import write_tables

    names = Names(secrets.token_bytes(32))
    change = partial(_anonymised, names) if anonymise else _unchanged
    return write_tables(folder, tables, out, format_, cluster=cluster, change=change)


def _print_tables(stream: TextIO, files: list[ExportedTable], *, as_json: bool) -> None:
    """Print one line for each written file, or one object with --json."""
    if as_json:
        options.write_json(stream, {"files": [vars(file) for file in files]})
        return
    for file in files:
        stream.write(f"{visible(str(file.path))}: {counted(file.rows, 'row')} of {file.table}\n")


def _unchanged(_: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _anonymised(names: Names, table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Replace every user, account and job name, and every text that may hold one, by a keyed hash."""
    import polars as pl

    from reports.source import NAME_COLUMNS

    def hidden(column: str, kind: str) -> pl.Series:
        known = {name: names.hide(kind, name) for name in frame[column].unique()}
        return frame[column].replace_strict(known, return_dtype=pl.String)

    kinds = {**NAME_COLUMNS, "step_name": "job", **dict.fromkeys(FREE_TEXT.get(table, ()), "text")}
    frame = frame.with_columns(hidden(column, kind) for column, kind in kinds.items() if column in frame.columns)
    if "dimension" in frame.columns:  # in rows of some dimensions the value is a name
        value = pl.col("value")
        for column, kind in NAME_COLUMNS.items():
            value = pl.when(pl.col("dimension") == column).then(hidden("value", kind)).otherwise(value)
        frame = frame.with_columns(value.alias("value"))
    return frame
