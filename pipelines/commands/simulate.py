"""`baton simulate`: replay a trace under one scheduler, or under several for comparison."""

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

    from models.study.slurm.files import SlurmFiles
    from simulator.workload import Replay, Workload


MOST_UNITS = 1 << 40  # processors or nodes
Compare = Annotated[
    str | None,
    typer.Option("--compare", autocompletion=completion.several_schedulers, help="Several schedulers: fifo,easy."),
]


def register(app: typer.Typer) -> None:
    """Add `baton simulate`."""
    app.command()(simulate)


@dataclass(frozen=True)
class ReplayTrace:
    """The jobs to replay, the capacity of the cluster and its source, and the number of jobs left out."""

    name: str
    workload: Workload
    ids: pl.Series  # job ids of the trace, in the workload's order
    capacity: int
    unit: str  # processors or nodes
    capacity_from: str
    left_out: dict[str, int]  # reason -> jobs


@dataclass(frozen=True)
class ReplayOptions:
    """The options that every scheduler of `baton simulate` is run with."""

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
    trace: Annotated[Path | None, typer.Option("--trace", help="Trace in the Standard Workload Format.")] = None,
    cluster: Cluster = None,
    estimate: Annotated[str, typer.Option("--estimate", help="Run times to plan with: limit or exact.")] = "limit",
    pass_: Annotated[str, typer.Option("--pass", help="Pass after each event or instant.")] = "event",  # noqa: S107
    slurm_conf: simulate_slurm.Conf = None,
    qos: simulate_slurm.Qos = None,
    associations: simulate_slurm.Associations = None,
    reservations: simulate_slurm.Reservations = None,
    kill_at_limit: Annotated[bool, typer.Option("--kill-at-limit", help="End a job at its limit.")] = False,
    capacity: Annotated[
        int | None, typer.Option("--capacity", min=1, help="Processors (SWF) or nodes; default: from the trace.")
    ] = None,
    starts: Annotated[Path | None, typer.Option("--starts", help="Write a CSV with columns job_id,start.")] = None,
    jobs: Annotated[Path | None, typer.Option("--jobs", help="Write a CSV with one row per job.")] = None,
    plots: Annotated[Path | None, typer.Option("--plots", help="Write one HTML page of plots.")] = None,
    mkdir: Mkdir = False,
    gantt: Annotated[str | None, typer.Option("--gantt", help="Length of the Gantt chart: 24h.")] = None,
    gantt_from: Annotated[
        str | None, typer.Option("--gantt-from", help="Start of the Gantt chart, after the first submission: 10d.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Replay a trace under one or several schedulers and print the figures of each schedule."""
    with options.output(json) as out:
        chosen = _schedulers(scheduler, compare, starts, estimate=estimate, pass_=pass_)
        if (trace is None) == (cluster is None):
            raise InputError("simulate needs one trace: give either --trace FILE.swf or --cluster NAME")
        window = _window(plots, gantt_from, gantt)
        options.check_targets({"--starts": starts, "--jobs": jobs, "--plots": plots}, mkdir=mkdir)
        folder = options.data_folder(context, data)
        slurm = simulate_slurm.files(
            chosen, folder, cluster, conf=slurm_conf, qos=qos, associations=associations, reservations=reservations
        )
        loaded = _of_swf(trace, capacity) if trace is not None else _of_cluster(folder, str(cluster), capacity)
        knobs = ReplayOptions(estimate, pass_, kill_at_limit, slurm)
        replays = [_replay(loaded, name, knobs) for name in chosen]
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
    """Return the checked names of the schedulers to replay. Raises InputError for --starts with --compare."""
    if (scheduler is None) == (compare is None):
        raise InputError("simulate needs a scheduler: give either --scheduler NAME or --compare NAME,NAME")
    chosen = [scheduler] if scheduler is not None else options.names(compare or "")
    if not chosen:
        raise InputError(f"--compare {compare!r} names no scheduler; write for example fifo,easy")
    if starts is not None and compare is not None:
        raise InputError("--starts holds the starts of one scheduler: give --scheduler, or --jobs with --compare")
    for name in chosen:
        check_names(scheduler=name, estimate=estimate, pass_=pass_, slurm=True)
    return chosen


def _window(plots: Path | None, gantt_from: str | None, gantt: str | None) -> tuple[int | None, int | None]:
    """Return start (after the first submission) and length of the Gantt chart, s; None if not given."""
    if plots is None and (gantt or gantt_from):
        raise InputError("--gantt and --gantt-from apply to the page of plots: give --plots FILE.html too")
    begin_s, length_s = (options.duration_s(text) if text else None for text in (gantt_from, gantt))
    return begin_s, length_s


def _of_swf(path: Path, capacity: int | None) -> ReplayTrace:
    try:
        path.stat()  # before the slow import of the reader, so that a wrong path fails at once
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    from traces.readers.published.swf import NotSwfError, read_swf

    try:
        read = read_swf(path)
    except NotSwfError as error:
        raise InputError(
            f"{error}; --trace reads only SWF: for a sacct dump or another log, run `baton ingest {path} --cluster "
            "NAME`, then use --cluster NAME"
        ) from error
    import polars as pl

    from simulator.workload import from_swf

    workload, left_out = from_swf(read)
    if not len(workload):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        raise InputError(f"{path}: none of its {counted(len(read), 'job')} can be replayed: {reasons}")
    known = {"--capacity": capacity, "MaxProcs of the header": read.max_procs}
    return _fitting(path.name, workload, pl.Series(workload.job_id), known, "processors", left_out)


def _of_cluster(folder: DataFolder, cluster: str, capacity: int | None) -> ReplayTrace:
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
        inputs.capacity_of(folder, settings, capacity)  # its error names file and line of the largest job
    return _fitting(cluster, workload, keys, known, "nodes", left_out(rows))


def _fitting(
    name: str, workload: Workload, ids: pl.Series, known: dict[str, int | None], unit: str, left_out: dict[str, int]
) -> ReplayTrace:
    """Build the trace with the first known capacity, else the peak in use, and without jobs that never fit."""
    import numpy as np

    from simulator.workload import peak_in_use

    source, capacity = next(((source, nodes) for source, nodes in known.items() if nodes), ("peak in use", 0))
    capacity = capacity or peak_in_use(workload)
    if not capacity:
        raise InputError(f"{name}: capacity unknown: the trace has neither a machine size nor starts; give --capacity")
    if capacity > MOST_UNITS:
        raise InputError(
            f"{name}: capacity {capacity:,} {unit} ({source}) is implausible; give the real one with --capacity"
        )
    fits = workload.size <= capacity
    if not fits.any():
        smallest = int(np.argmin(workload.size))
        raise InputError(
            f"{name}: every one of its {counted(len(workload), 'job')} is larger than the cluster of {capacity:,} "
            f"{unit} ({source}); the smallest, {ids[smallest]!r}, needs {workload.size[smallest]:,}: "
            "give a larger --capacity"
        )
    if not fits.all():
        left_out = {**left_out, f"larger than {capacity} {unit}": int(np.count_nonzero(~fits))}
        workload, ids = workload.take(fits), ids.filter(fits)
    return ReplayTrace(name, workload, ids, capacity, unit, source, left_out)


def _replay(trace: ReplayTrace, scheduler: str, knobs: ReplayOptions) -> Replay:
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


def _about(trace: ReplayTrace) -> list[str]:
    """Describe the capacity, its source and the jobs left out, one line each."""
    lines = [f"capacity: {trace.capacity:,} {trace.unit} ({trace.capacity_from})"]
    if trace.left_out:
        total = sum(trace.left_out.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in trace.left_out.items())
        lines.append(f"left out: {total:,} of {counted(total + len(trace.workload), 'job')}: {reasons}")
    return lines


def _write_files(
    trace: ReplayTrace,
    replays: Sequence[Replay],
    *,
    starts: Path | None,
    jobs: Path | None,
    plots: Path | None,
    window: tuple[int | None, int | None],
) -> None:
    """Write the requested files: starts of the first replay, one row per job of all replays, the page of plots."""
    import polars as pl

    from simulator.tables import per_job
    from traces.export.tables import write_csv

    if starts is not None:
        write_csv(starts, [pl.DataFrame({"job_id": trace.ids, "start": replays[0].starts})])
    if jobs is not None:
        write_csv(jobs, (per_job(trace.workload, trace.ids, replay) for replay in replays))
    if plots is not None:
        _plot(plots, trace, replays, window)


def _figures(trace: ReplayTrace, replay: Replay) -> dict[str, Any]:
    """Compute the figures of one replay: the schedule's, its distance from the record, and the kernel's speed."""
    from simulator.metrics import schedule_summary, wait_distance

    workload = trace.workload
    both = (workload.start_s >= 0) & (replay.starts >= 0)
    distance = wait_distance((replay.starts - workload.submit_s)[both], (workload.start_s - workload.submit_s)[both])
    return {
        "scheduler": replay.scheduler,
        **schedule_summary(workload, replay.starts, trace.capacity, run_s=replay.run_s),
        "jobs": len(workload),
        "unstarted": int((replay.starts < 0).sum()),
        "recorded_jobs": int(both.sum()),
        "mean_absolute_error_s": distance["mean_absolute_error_s"],
        "spearman": distance["spearman"],
        "wall_s": replay.wall_s,
        "jobs_per_s": len(workload) / replay.wall_s,
        "notes": replay.notes,
    }


def _recorded(trace: ReplayTrace) -> dict[str, Any] | None:
    """Compute the figures of the recorded starts; None if the trace has none."""
    from simulator.metrics import schedule_summary

    if not (trace.workload.start_s >= 0).any():
        return None
    return schedule_summary(trace.workload, trace.workload.start_s, trace.capacity)


def _result(trace: ReplayTrace, knobs: ReplayOptions, replays: Sequence[Replay]) -> dict[str, Any]:
    """Build the output of --json; its shape is the same for one scheduler and for several (docs/schedulers).

    It holds the trace, the options, and under `schedulers` the figures of each in the requested order. The figures of
    the first are repeated at the top level, for callers that asked for one scheduler.
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


def _columns(trace: ReplayTrace, replays: Sequence[Replay]) -> list[dict[str, Any]]:
    """Return the figures of each schedule, and of the record if it has starts; null where undefined."""
    columns = [_figures(trace, replay) for replay in replays]
    if recorded := _recorded(trace):
        columns.append({**recorded, "scheduler": "recorded"})
    return [dict(options.plain(column)) for column in columns]


def _plot(path: Path, trace: ReplayTrace, replays: Sequence[Replay], window: tuple[int | None, int | None]) -> None:
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
}  # figure -> (heading, format)


def _print(out: TextIO, trace: ReplayTrace, replays: Sequence[Replay]) -> None:
    """Print one column per scheduler, and one for the record if it has starts."""
    from reports.format import FORMATS, text

    columns = _columns(trace, replays)
    out.write(f"{text(trace.name)}: {counted(len(trace.workload), 'job')} on {trace.capacity:,} {trace.unit}\n")
    out.write(" " * 24 + "".join(f"{column['scheduler']:>16}" for column in columns) + "\n")
    for name, (heading, kind) in _ROWS.items():
        values = [column.get(name) for column in columns]
        out.write(f"{heading:<24}" + "".join(f"{FORMATS[kind](value):>16}" for value in values) + "\n")
