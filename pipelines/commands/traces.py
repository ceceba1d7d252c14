"""`baton ingest`, `baton generate`: parse raw logs into the lake, or write generated ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from assets.shared.lake import pull_shared, share
from pipelines import completion, options
from pipelines.options import Data, Delimiter, Fields, Format, GpusPerNode, Json, Nodes, Timezone
from traces.counted import counted
from traces.errors import InputError
from traces.given_paths import check_writable, exists
from traces.visible import visible


def register(app: typer.Typer) -> None:
    """Add `baton ingest` and `baton generate`."""
    app.command()(ingest)
    app.command()(generate)


def ingest(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(help="Raw log files, folders of them, or - for standard input.", show_default=False)
    ],
    cluster: Annotated[
        str, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster that the logs come from.")
    ],
    format_: Format = "auto",
    timezone: Timezone = None,
    fields: Fields = None,
    delimiter: Delimiter = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    build: Annotated[bool, typer.Option("--build/--no-build", help="Rebuild the warehouse afterwards.")] = True,
    data: Data = None,
    json: Json = False,
) -> None:
    """Parse raw log files into the lake, then rebuild the warehouse."""
    from traces import clusters
    from traces.formats import check_format
    from traces.store import warehouse

    folder = options.data_folder(context, data)
    with options.output(json) as out:
        folder.ensure_writable()
        check_format(format_)
        if absent := [file for file in files if str(file) != "-" and not exists(file)]:
            raise InputError(f"{absent[0]}: no such file or folder")
        settings = clusters.resolve(
            folder, cluster=cluster, timezone=timezone, nodes=nodes, gpus_per_node=gpus_per_node, new=True
        )
        from models.engine.raw_files import files_on_engine
        from traces import ingest as ingest_

        pull_shared(folder, {settings.name})
        results = ingest_.ingest(
            files,
            cluster=settings,
            data=folder,
            format=format_,
            fields=options.names(fields) if fields else None,
            delimiter=delimiter,
            each=files_on_engine(folder.root),
        )
        share(folder, settings.name, results)
        rows = warehouse.build(folder) if build else {}
        if json:
            options.write_json(out, {"files": [vars(result) for result in results], "tables": rows})
        else:
            out.writelines(sentence(vars(result)) + "\n" for result in results)


def sentence(result: dict[str, Any]) -> str:
    """Summarise the result for one file in one line."""
    path = visible(result["path"])
    if result.get("skipped_reason"):
        return f"{path}: skipped, {visible(result['skipped_reason'])}"
    counts = ", ".join(
        counted(result[name], name.removesuffix("s"))
        for name in ("allocations", "steps", "samples", "duplicates", "rejects")
        if result[name] or name == "rejects"
    )
    records, jobs = counted(result["rows"], "record"), counted(result["jobs"], "job")
    why = f"; first reject: {visible(result['first_reject'])}" if result.get("first_reject") else ""
    return f"{path}: {result['format']}, {records}: {counts}; {jobs}{why}"


def generate(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")],
    sample: Annotated[
        bool, typer.Option("--sample", help="Write the bundled sample (data/sample), from its own seed.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, max=10**9, help="Number of records, instead of --weeks.")
    ] = None,
    weeks: Annotated[int, typer.Option("--weeks", min=1, max=5200, help="Weeks of a Slurm dump.")] = 8,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=100_000, help="Nodes of its cluster.")] = 32,
    gpus_per_node: Annotated[
        int, typer.Option("--gpus-per-node", min=1, max=options.MOST_GPUS, help="GPUs per node.")
    ] = 4,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same bytes.")] = 0,
    steps: Annotated[bool, typer.Option("--steps/--no-steps", help="Write job steps as well as allocations.")] = True,
    compress: Annotated[bool, typer.Option("--gzip/--no-gzip", help="Compress the dump.")] = False,
    json: Json = False,
) -> None:
    """Write generated raw logs: the bundled sample, or a Slurm dump of any size."""
    with options.output(json) as stream:
        check_writable(out, "--out")
        from traces.generate import logs as generate_

        if sample:
            written = generate_.generate_sample(out)
        else:
            dump = generate_.generate_slurm(
                out,
                jobs=jobs,
                weeks=weeks,
                nodes=nodes,
                gpus_per_node=gpus_per_node,
                seed=seed,
                steps=steps,
                compress=compress,
            )
            written = [dump]
        if json:
            options.write_json(stream, {"files": [str(path) for path in written]})
        else:
            stream.writelines(f"{visible(str(path))}\n" for path in written)
