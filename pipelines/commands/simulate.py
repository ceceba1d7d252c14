"""`baton simulate`: replay a trace by one scheduler, or by several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from pipelines import completion, options
from pipelines.commands import simulate_slurm
from pipelines.options import Cluster, Data, Json, Mkdir
from simulator.names import SCHEDULERS, check_names
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    import polars as pl

    from models.study.slurm_files import SlurmFiles
    from simulator.workload import Replay, Workload


MOST_UNITS = 1 << 40  # processors or nodes
Compare = Annotated[
    str | None,
    typer.Option("--compare", autocompletion=completion.several_schedulers, help="Schedulers side by side: fifo,easy."),
]


def register(app: typer.Typer) -> None:
    """Adds `baton simulate`."""
    app.command()(simulate)


@dataclass(frozen=True)
class Trace:
    """What is replayed: the jobs that fit, how large the cluster is and who says so, and who had to stay out."""

    name: str
    workload: Workload
    ids: pl.Series  # the jobs' names in the trace, in the workload's order
    capacity: int
    unit: str  # processors or nodes
    capacity_from: str
    left_out: dict[str, int]  # reason -> jobs


@dataclass(frozen=True)
class Knobs:
    """What every flat scheduler is told."""

    estimate: str
    pass_: str
    kill_at_limit: bool
    slurm: SlurmFiles | None  # the files that describe the cluster to `slurm`


def simulate(
    context: typer.Context,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", autocompletion=completion.scheduler, help=f"{', '.join(SCHEDULERS)} or slurm."),
    ] = None,
    compare: Compare = None,
    trace: Annotated[Path | None, typer.Option("--trace", help="A trace in the Standard Workload Format.")] = None,
    cluster: Cluster = None,
    estimate: Annotated[str, typer.Option("--estimate", help="What is planned with: limit or exact.")] = "limit",
    pass_: Annotated[str, typer.Option("--pass", help="When it looks: event or instant.")] = "event",  # noqa: S107
    slurm_conf: simulate_slurm.Conf = None,
    qos: simulate_slurm.Qos = None,
    associations: simulate_slurm.Associations = None,
    reservations: simulate_slurm.Reservations = None,
    kill_at_limit: Annotated[bool, typer.Option("--kill-at-limit", help="End a job at its limit.")] = False,
    capacity: Annotated[
        int | None, typer.Option("--capacity", min=1, help="Processors (SWF) or nodes; default: the trace's own.")
    ] = None,
    starts: Annotated[Path | None, typer.Option("--starts", help="Write a CSV of job_id,start.")] = None,
    jobs: Annotated[Path | None, typer.Option("--jobs", help="Write a CSV with one row a job.")] = None,
    plots: Annotated[Path | None, typer.Option("--plots", help="Write one HTML page of plots.")] = None,
    mkdir: Mkdir = False,
    gantt: Annotated[str | None, typer.Option("--gantt", help="Length of the Gantt chart's window: 24h.")] = None,
    gantt_from: Annotated[
        str | None, typer.Option("--gantt-from", help="Its begin, from the first submission on: 10d.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Replay a trace by a scheduler, or several, and print the figures of the schedule."""
    with options.output(json) as out:
        wanted = _schedulers(scheduler, compare, starts, estimate=estimate, pass_=pass_)
        if (trace is None) == (cluster is None):
            raise InputError("simulate needs a trace: give either --trace FILE.swf or --cluster NAME")
        window = _window(plots, gantt_from, gantt)
        options.check_targets({"--starts": starts, "--jobs": jobs, "--plots": plots}, mkdir=mkdir)
        folder = options.data_folder(context, data)
        slurm = simulate_slurm.files(
            wanted, folder, cluster, conf=slurm_conf, qos=qos, associations=associations, reservations=reservations
        )
        loaded = _of_swf(trace, capacity) if trace is not None else _of_cluster(folder, str(cluster), capacity)
        knobs = Knobs(estimate, pass_, kill_at_limit, slurm)
        replays = [_replay(loaded, name, knobs) for name in wanted]
        for line in _about(loaded):
            options.say(line)
        _write_files(loaded, replays, starts=starts, jobs=jobs, plots=plots, window=window)
        if json:
            options.write_json(out, _result(loaded, knobs, replays))
        else:
            _print(out, loaded, replays)


def _schedulers(
    scheduler: str | None, compare: str | None, starts: Path | None, *, estimate: str, pass_: str
) -> list[str]:
    """Names of the schedulers to replay, checked with their knobs; refuses a file of starts for more than one."""
    if (scheduler is None) == (compare is None):
        raise InputError("simulate needs a scheduler: give either --scheduler NAME or --compare NAME,NAME")
    wanted = [scheduler] if scheduler is not None else options.names(compare or "")
    if not wanted:
        raise InputError(f"--compare {compare!r} names no scheduler; write for example fifo,easy")
    if starts is not None and compare is not None:
        raise InputError("--starts takes the starts of one scheduler: give --scheduler, or --jobs with --compare")
    for name in wanted:
        check_names(scheduler=name, estimate=estimate, pass_=pass_, slurm=True)
    return wanted


def _window(plots: Path | None, gantt_from: str | None, gantt: str | None) -> tuple[int | None, int | None]:
    """Begin (after the first submission) and length of the Gantt chart, s; None where not given."""
    if plots is None and (gantt or gantt_from):
        raise InputError("--gantt and --gantt-from are of the page of plots: give --plots FILE.html too")
    begin_s, length_s = (options.duration_s(text) if text else None for text in (gantt_from, gantt))
    return begin_s, length_s


def _of_swf(path: Path, capacity: int | None) -> Trace:
    try:
        path.stat()  # before the reader is imported, so that a wrong path is told at once
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    from traces.readers.published.swf import NotSwfError, read_swf

    try:
        read = read_swf(path)
    except NotSwfError as error:
        raise InputError(
            f"{error}; --trace reads SWF alone: for a sacct dump or another log, `baton ingest {path} --cluster NAME`, "
            "then --cluster NAME"
        ) from error
    import polars as pl

    from simulator.workload import from_swf

    workload, left_out = from_swf(read)
    if not len(workload):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        raise InputError(f"{path}: none of its {counted(len(read), 'job')} can be replayed: {reasons}")
    known = {"--capacity": capacity, "MaxProcs of the header": read.max_procs}
    return _fitting(path.name, workload, pl.Series(workload.job_id), known, "processors", left_out)


def _of_cluster(folder: DataFolder, cluster: str, capacity: int | None) -> Trace:
    from traces import clusters
    from traces.store import contents, warehouse

    settings = clusters.resolve(folder, cluster=cluster)
    contents.check_clusters(folder, [cluster])

    from models.study import inputs
    from simulator.workload import left_out

    workload, keys = inputs.read_workload(folder, cluster)
    rows = warehouse.read(folder, "SELECT submit_utc, start_utc, run_s FROM jobs WHERE cluster = ?", (cluster,))
    known = {"--capacity": capacity, "nodes in clusters.toml": settings.nodes}
    largest = capacity or settings.nodes
    if largest is not None and not (workload.size <= largest).any():
        inputs.capacity_of(folder, settings, capacity)  # names file and line of the worst
    return _fitting(cluster, workload, keys, known, "nodes", left_out(rows))


def _fitting(
    name: str, workload: Workload, ids: pl.Series, known: dict[str, int | None], unit: str, left_out: dict[str, int]
) -> Trace:
    """The trace on the first capacity that is known, else on the peak in use, without the jobs that never fit."""
    import numpy as np

    from simulator.workload import peak_in_use

    source, capacity = next(((source, nodes) for source, nodes in known.items() if nodes), ("peak in use", 0))
    capacity = capacity or peak_in_use(workload)
    if not capacity:
        raise InputError(f"{name}: it says neither how large the machine is nor when a job started; give --capacity")
    if capacity > MOST_UNITS:
        raise InputError(f"{name}: {capacity:,} {unit} ({source}) is no machine: give its size with --capacity")
    fits = workload.size <= capacity
    if not fits.any():
        smallest = int(np.argmin(workload.size))
        raise InputError(
            f"{name}: each of its {counted(len(workload), 'job')} is larger than the cluster of {capacity:,} {unit} "
            f"({source}); "
            f"the smallest, {ids[smallest]!r}, takes {workload.size[smallest]:,}: give a larger --capacity"
        )
    if not fits.all():
        left_out = {**left_out, f"larger than {capacity} {unit}": int(np.count_nonzero(~fits))}
        workload, ids = workload.take(fits), ids.filter(fits)
    return Trace(name, workload, ids, capacity, unit, source, left_out)


def _replay(trace: Trace, scheduler: str, knobs: Knobs) -> Replay:
    from simulator.flat.replay import replay

    if scheduler == "slurm":
        return simulate_slurm.replay(trace.workload, trace.ids, trace.capacity, knobs.slurm)
    return replay(
        trace.workload,
        scheduler=scheduler,
        capacity=trace.capacity,
        estimate=knobs.estimate,
        pass_=knobs.pass_,
        kill_at_limit=knobs.kill_at_limit,
    )


def _about(trace: Trace) -> list[str]:
    """How large the cluster is by whose word, and how many jobs stayed out."""
    lines = [f"capacity: {trace.capacity:,} {trace.unit} ({trace.capacity_from})"]
    if trace.left_out:
        total = sum(trace.left_out.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in trace.left_out.items())
        lines.append(f"left out: {total:,} of {counted(total + len(trace.workload), 'job')}: {reasons}")
    return lines


def _write_files(
    trace: Trace,
    replays: Sequence[Replay],
    *,
    starts: Path | None,
    jobs: Path | None,
    plots: Path | None,
    window: tuple[int | None, int | None],
) -> None:
    """Writes each file that was asked for: the first replay's starts, a row a job of all, the page of plots."""
    import polars as pl

    from simulator.tables import per_job
    from traces.export.tables import write_csv

    if starts is not None:
        write_csv(starts, [pl.DataFrame({"job_id": trace.ids, "start": replays[0].starts})])
    if jobs is not None:
        write_csv(jobs, (per_job(trace.workload, trace.ids, replay) for replay in replays))
    if plots is not None:
        _plot(plots, trace, replays, window)


def _figures(trace: Trace, replay: Replay) -> dict[str, Any]:
    """Figures of one replay: of the schedule, its distance from the record, and the kernel's speed."""
    from simulator.metrics import summary, wait_distance

    workload = trace.workload
    both = (workload.start_s >= 0) & (replay.starts >= 0)
    distance = wait_distance((replay.starts - workload.submit_s)[both], (workload.start_s - workload.submit_s)[both])
    return {
        "scheduler": replay.scheduler,
        **summary(workload, replay.starts, trace.capacity, run_s=replay.run_s),
        "jobs": len(workload),
        "unstarted": int((replay.starts < 0).sum()),
        "recorded_jobs": int(both.sum()),
        "mean_absolute_error_s": distance["mean_absolute_error_s"],
        "spearman": distance["spearman"],
        "wall_s": replay.wall_s,
        "jobs_per_s": len(workload) / replay.wall_s,
        "notes": replay.notes,
    }


def _recorded(trace: Trace) -> dict[str, Any] | None:
    """The figures of the recorded starts; None where the trace holds none."""
    from simulator.metrics import summary

    if not (trace.workload.start_s >= 0).any():
        return None
    return summary(trace.workload, trace.workload.start_s, trace.capacity)


def _result(trace: Trace, knobs: Knobs, replays: Sequence[Replay]) -> dict[str, Any]:
    """What --json prints, one shape for one scheduler and for several (docs/schedulers).

    The trace and how it was replayed; under `schedulers` the figures of each, in the order asked for; and those of the
    first once more beside the trace's, where whoever asked for one scheduler looks for them.
    """
    about = {
        "trace": trace.name,
        "capacity": trace.capacity,
        "unit": trace.unit,
        "capacity_from": trace.capacity_from,
        "left_out": trace.left_out,
        "estimate": knobs.estimate,
        "pass": knobs.pass_,
        "kill_at_limit": knobs.kill_at_limit,
        "recorded": _recorded(trace),
    }
    figures = [_figures(trace, replay) for replay in replays]
    return {**figures[0], **about, "schedulers": figures}


def _columns(trace: Trace, replays: Sequence[Replay]) -> list[dict[str, Any]]:
    """The figures of each schedule, and of the record where it holds any start; null for what has no meaning."""
    columns = [_figures(trace, replay) for replay in replays]
    if recorded := _recorded(trace):
        columns.append({**recorded, "scheduler": "recorded"})
    return [dict(options.plain(column)) for column in columns]


def _plot(path: Path, trace: Trace, replays: Sequence[Replay], window: tuple[int | None, int | None]) -> None:
    from reports.schedule import DrawnTrace, write_page

    shown = DrawnTrace(trace.name, trace.workload, trace.capacity, trace.unit)
    sentences = [f"{line[0].upper()}{line[1:]}." for line in _about(trace)]
    write_page(path, shown, replays, _columns(trace, replays), sentences, window)


_ROWS = {
    "mean_wait_s": ("mean wait", "duration"),
    "p50_wait_s": ("median wait", "duration"),
    "p95_wait_s": ("p95 wait", "duration"),
    "mean_bounded_slowdown": ("mean bounded slowdown", "number"),
    "mean_queue_jobs": ("mean queue, jobs", "number"),
    "utilization": ("utilization", "percent"),
    "makespan_s": ("makespan", "duration"),
    "mean_absolute_error_s": ("mean error of a wait", "duration"),
    "spearman": ("Spearman", "number"),
    "jobs_per_s": ("replayed jobs/s", "count"),
}  # figure -> heading, how it is printed


def _print(out: TextIO, trace: Trace, replays: Sequence[Replay]) -> None:
    """A column for each scheduler and one for the record, where there is any."""
    from reports.format import FORMATS, text

    columns = _columns(trace, replays)
    out.write(f"{text(trace.name)}: {counted(len(trace.workload), 'job')} on {trace.capacity:,} {trace.unit}\n")
    out.write(" " * 24 + "".join(f"{column['scheduler']:>16}" for column in columns) + "\n")
    for name, (heading, kind) in _ROWS.items():
        values = [column.get(name) for column in columns]
        out.write(f"{heading:<24}" + "".join(f"{FORMATS[kind](value):>16}" for value in values) + "\n")
