"""`baton ingest`, `baton generate`, `baton simulate`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines import options
from pipelines.options import Cluster, Data, GpusPerNode, Json, Nodes, Timezone
from traces.errors import InputError
from traces.store import DataFolder, write_text


def register(app: typer.Typer) -> None:
    app.command()(ingest)
    app.command()(generate)
    app.command()(simulate)


def ingest(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Raw log files, or folders of them.", show_default=False)],
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster that the logs come from.")],
    format_: Annotated[str, typer.Option("--format", help="Reader, or auto.")] = "auto",
    timezone: Timezone = None,
    fields: Annotated[str | None, typer.Option("--fields", help="Columns of a dump without a header: a,b,c.")] = None,
    delimiter: Annotated[str | None, typer.Option("--delimiter", help="Delimiter of a dump without a header.")] = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    build: Annotated[bool, typer.Option("--build/--no-build", help="Rebuild the warehouse afterwards.")] = True,
    data: Data = None,
    json: Json = False,
) -> None:
    """Parse raw log files into the lake, then rebuild the warehouse."""
    from traces import clusters, store
    from traces import ingest as ingest_

    folder = options.data_folder(context, data)
    with options.output(json) as out:
        folder.ensure_writable()
        settings = clusters.resolve(
            folder, cluster=cluster, timezone=timezone, nodes=nodes, gpus_per_node=gpus_per_node, new=True
        )
        results = ingest_.ingest(
            files,
            cluster=settings,
            data=folder,
            format=format_,
            fields=options.names(fields) if fields else None,
            delimiter=delimiter,
        )
        rows = store.build_warehouse(folder) if build else {}
        if json:
            options.write_json(out, {"files": [vars(result) for result in results], "tables": rows})
        else:
            for result in results:
                out.write(_sentence(vars(result)) + "\n")


def _sentence(result: dict[str, Any]) -> str:
    if result.get("skipped_reason"):
        return f"{result['path']}: skipped, {result['skipped_reason']}"
    counts = ", ".join(
        f"{result[name]:,} {name}"
        for name in ("allocations", "steps", "samples", "duplicates", "rejects")
        if result[name] or name == "rejects"
    )
    return f"{result['path']}: {result['format']}, {result['rows']:,} records: {counts}; {result['jobs']:,} jobs"


def generate(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")],
    sample: Annotated[
        bool, typer.Option("--sample", help="The bundled sample (data/sample), from its own seed.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Records of a Slurm dump, in place of weeks.")
    ] = None,
    weeks: Annotated[int, typer.Option("--weeks", min=1)] = 8,
    nodes: Annotated[int, typer.Option("--nodes", min=1)] = 32,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1)] = 4,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same bytes.")] = 0,
    steps: Annotated[bool, typer.Option("--steps/--no-steps", help="Job steps beside allocations.")] = True,
    compress: Annotated[bool, typer.Option("--gzip/--no-gzip", help="Compress the dump.")] = False,
    json: Json = False,
) -> None:
    """Write generated raw logs: the bundled sample, or a Slurm dump of any size."""
    from traces import generate as generate_

    with options.output(json) as stream:
        DataFolder(out.resolve()).ensure_writable()
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
            stream.writelines(f"{path}\n" for path in written)


def simulate(
    context: typer.Context,
    scheduler: Annotated[str, typer.Option("--scheduler", help="fifo, easy, conservative or mirage.")],
    trace: Annotated[Path | None, typer.Option("--trace", help="A trace in the Standard Workload Format.")] = None,
    cluster: Cluster = None,
    estimate: Annotated[str, typer.Option("--estimate", help="What is planned with: limit or exact.")] = "limit",
    pass_: Annotated[str, typer.Option("--pass", help="When it looks: event or instant.")] = "event",  # noqa: S107
    capacity: Annotated[int | None, typer.Option("--capacity", min=1, help="Nodes or processors.")] = None,
    starts: Annotated[Path | None, typer.Option("--starts", help="CSV of job_id,start.")] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Replay a trace by a scheduler and print the figures of the schedule."""
    from simulator.metrics import summary
    from simulator.replay import simulate_timed

    with options.output(json) as out:
        if (trace is None) == (cluster is None):
            raise InputError("simulate needs a trace: give either --trace FILE.swf or --cluster NAME")
        if trace is not None:
            from simulator.workload import from_swf
            from traces.readers.swf import read_swf

            read = read_swf(trace)
            workload, size = from_swf(read), capacity or read.capacity
            ids = [str(job) for job in workload.job_id.tolist()]
            if not len(workload):
                raise InputError(f"{trace}: none of its {len(read)} jobs has a run time and a size; nothing to replay")
            if size is None:
                raise InputError(f"{trace}: its header holds no MaxProcs or MaxNodes; give --capacity")
        else:
            from models import experiment
            from traces import clusters

            folder = options.data_folder(context, data)
            workload, ids = experiment.read_workload(folder, str(cluster))
            settings = clusters.resolve(folder, cluster=cluster)
            size = experiment.capacity_of(folder, settings, workload, ids, capacity)
        begun, wall_s = simulate_timed(workload, scheduler=scheduler, capacity=size, estimate=estimate, pass_=pass_)
        if starts is not None:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(("job_id", "start"))
            writer.writerows(zip(ids, begun.tolist(), strict=True))
            write_text(starts, text.getvalue())
        figures = summary(workload, begun, size, kill_at_limit=scheduler == "mirage")
        result = {
            **figures,
            "jobs": len(workload),
            "capacity": size,
            "wall_s": wall_s,
            "jobs_per_s": len(workload) / wall_s,
        }
        if json:
            options.write_json(out, result)
        else:
            out.writelines(f"{name:<24}{options.figure(value)}\n" for name, value in result.items())
