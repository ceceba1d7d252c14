"""`baton whatif`: replay a cluster's jobs under other schedulers, on the cluster as it is or with changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from pipelines import completion, options
from pipelines.options import Cluster, Data, GpusPerNode, Json, Nodes
from simulator.names import SCHEDULERS, check_together, gpu_schedulers
from traces.counted import counted
from traces.errors import InputError
from traces.files.queue_tree import queues_in

if TYPE_CHECKING:
    from models.what_if.gpu_answers import Question
    from models.what_if.schedulers import SchedulerOutcome
    from simulator.gpu.jobs import GpuJobs
    from traces.clusters import ClusterSettings
    from traces.files.queue_tree import DeclaredQueue
    from traces.store.folder import DataFolder

MOST_DRAWS = 100
KEPT = "saved in the tables what_if_schedulers and what_if_groups, for `baton report` and `baton export`"


def register(app: typer.Typer) -> None:
    """Add `baton whatif`."""
    app.command()(whatif)


def whatif(
    context: typer.Context,
    cluster: Cluster = None,
    schedulers: Annotated[
        str,
        typer.Option(
            "--schedulers",
            autocompletion=completion.what_if_schedulers,
            help="Schedulers; the first is the baseline: yarn,tiresias.",
        ),
    ] = "",
    change: Annotated[
        list[str] | None,
        typer.Option("--change", help="One change: nodes=+10%, type=T4:12,A100:4, limit=24h, ..."),
    ] = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Jobs without a log: CSV of job_id, submit_s, gpus, run_s, ..."),
    ] = None,
    machine: Annotated[
        str | None, typer.Option("--machine", help="Nodes and GPU types for --trace: 6x4:T4,2x8:A100.")
    ] = None,
    facts: Annotated[
        Path | None,
        typer.Option("--jobs", help="More about jobs of the log: CSV of job_id, model, batch, ..."),
    ] = None,
    queues: Annotated[
        Path | None,
        typer.Option("--queues", help="Queues of yarn and yarn-fair: TOML with a table of shares for each."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter, for all replays: tiresias.promote=0."),
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", help="Jobs submitted from this date on (UTC).")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Jobs submitted before this date (UTC).")] = None,
    profiles: Annotated[
        str,
        typer.Option("--profiles", help="Speeds of models: none, published, or a file or folder."),
    ] = "none",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse GPU types and batches on which a model was not measured.")
    ] = False,
    jobs_out: Annotated[
        Path | None,
        typer.Option("--jobs-out", help="Write start, end and GPU time of each job (Parquet)."),
    ] = None,
    mkdir: options.Mkdir = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=options.MOST_SEED, help="Seed of the random draws.")] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=1, max=MOST_DRAWS, help="Number of draws, from --seed on; figures are their means."
        ),
    ] = 1,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of processes; default: one per processor.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Predict what other schedulers, nodes or limits would change; print differences with intervals.

    Schedulers that share GPUs are compared on the jobs that ran on GPUs. Schedulers that allocate whole nodes (easy,
    conservative, mirage) are compared on all jobs. The two kinds cannot be compared with each other.

    \f
    Over 50 lines: the options are the declaration of the command line.
    """
    with options.output(json) as out:
        chosen = _chosen(schedulers)
        options.check_targets({"--jobs-out": jobs_out}, mkdir=mkdir)
        if trace is not None and (cluster or from_ or to or facts):
            raise InputError("--trace needs no log: leave --cluster, --from, --to and --jobs out")
        if machine is not None and trace is None:
            raise InputError("--machine goes with --trace; declare the nodes of a cluster in clusters.toml")
        tree = None if queues is None else queues_in(queues)
        window = options.utc_s(from_) if from_ else None, options.utc_s(to) if to else None
        from models.what_if.gpu_answers import Question

        question = Question(
            tuple(chosen), tuple(change or ()), seeds, profiles, facts, tuple(set_ or ()), strict, seed, None, *window
        )
        if trace is not None:
            answer = _on_trace(trace, _machine(machine, nodes, gpus_per_node), question, workers, tree or ())
            _end(out, answer, jobs_out, is_json=json)
            return
        from traces import clusters
        from traces.store import contents

        folder = options.data_folder(context, data)
        settings = clusters.resolve(folder, cluster=cluster, nodes=nodes, gpus_per_node=gpus_per_node)
        settings = settings if tree is None else replace(settings, queues=tree)
        contents.check_clusters(folder, [settings.name])
        if _allocates_nodes(folder, settings.name, chosen):
            if gpus_per_node is not None or seeds > 1 or facts or set_ or tree:
                raise InputError(
                    "--gpus-per-node, --seeds, --jobs, --queues and --set apply only to schedulers that share GPUs: "
                    "omit them"
                )
            answer = _on_nodes(folder, settings, chosen, change or [], window)
        else:
            answer = _on_gpus(folder, settings, question, workers)
        _end(out, answer, jobs_out, is_json=json)


class _Answer(NamedTuple):
    """The output of `--json`, and the jobs and replays behind it."""

    result: dict[str, Any]
    jobs: GpuJobs
    outcomes: list[SchedulerOutcome]


def _end(out: TextIO, answer: _Answer, jobs_out: Path | None, *, is_json: bool) -> None:
    """Write the file of jobs if there is one, and print the answer."""
    if jobs_out is not None:
        from models.what_if.job_files import write_times

        write_times(jobs_out, answer.jobs, answer.outcomes)
    for line in answer.result["said"]:
        options.say(line)
    if is_json:
        options.write_json(out, answer.result)
    else:
        _print(out, answer.result)


def _chosen(schedulers: str) -> list[str]:
    """Return the names of --schedulers. Raises InputError for unknown schedulers."""
    chosen = options.names(schedulers)
    if not chosen:
        raise InputError("whatif needs schedulers: --schedulers yarn,tiresias (the first is the baseline)")
    check_together(chosen)
    return chosen


def _allocates_nodes(folder: DataFolder, cluster: str, chosen: list[str]) -> bool:
    """Whether to replay whole nodes: a scheduler can do nothing else, or no job of the cluster ran on GPUs."""
    if not SCHEDULERS.keys() >= set(chosen):
        return False
    from models.what_if.gpu_answers import ran_on_gpus

    return not set(chosen) <= set(gpu_schedulers()) or not ran_on_gpus(folder, cluster)


def _on_nodes(
    folder: DataFolder,
    settings: ClusterSettings,
    chosen: list[str],
    changes: list[str],
    window: tuple[int | None, int | None],
) -> _Answer:
    """Replay whole nodes and build the output of `--json`. The report's tables are not changed."""
    from models.what_if import flat
    from models.what_if.answers import flat_replays
    from traces.progress import Progress

    with Progress("replaying", len(chosen) * (1 + len(changes)), stays=False) as progress:
        workload, nodes, outcomes = flat_replays(folder, settings, chosen, changes, window, progress.advance)
    remarks = (f"assumed: one pool of {counted(nodes, 'whole node')}, one queue, known time limits",)
    return _answer(settings.name, flat.as_jobs(workload), outcomes, remarks, nodes=nodes, gpus=None, seed=0)


def _on_gpus(folder: DataFolder, settings: ClusterSettings, question: Question, workers: int | None) -> _Answer:
    """Replay GPUs and build the output of `--json`.

    The results are in the warehouse when this returns. If it is interrupted, none of them are.
    """
    from models.what_if import gpu_answers as gpu_what_ifs
    from models.what_if.schedulers import replays
    from traces.progress import Progress
    from traces.store.refresh import refresh_warehouse

    asked = gpu_what_ifs.asked(folder, settings, question)
    with Progress("replaying", len(asked), stays=False) as progress:
        outcomes = replays(asked, progress.advance, workers)
    gpu_what_ifs.keep(folder, settings, question, asked, outcomes)
    refresh_warehouse(folder)
    options.say(KEPT)
    scene = asked[0].scene
    return _answer(
        settings.name, scene.jobs, outcomes, (), nodes=scene.cluster.nodes, gpus=scene.cluster.gpus, seed=scene.seed
    )


def _machine(machine: str | None, nodes: int | None, gpus_per_node: int | None) -> str:
    """Return the machine of a trace, as --machine or as --nodes and --gpus-per-node. Raises InputError for neither."""
    if machine is None and nodes and gpus_per_node:
        return f"{nodes}x{gpus_per_node}"
    if machine is None or nodes or gpus_per_node:
        raise InputError("--trace needs the nodes: --nodes and --gpus-per-node, or --machine 6x4:T4,2x8:A100")
    return machine


def _on_trace(
    trace: Path, machine: str, question: Question, workers: int | None, queues: tuple[DeclaredQueue, ...]
) -> _Answer:
    """Replay the jobs of a file and build the output of `--json`. Nothing is stored."""
    from models.what_if.changes import with_settings
    from models.what_if.job_files import trace_scene
    from models.what_if.schedulers import combinations, replays
    from simulator.gpu.cluster import PLAIN, of_text
    from simulator.gpu.profiles.table import profiles_of
    from traces.progress import Progress

    known = profiles_of(question.profiles)
    plain = next((kind for profile in known.values() for kind in profile.steps), PLAIN)
    scene = trace_scene(trace, of_text(machine, plain), known, question.seed, question.is_strict, queues)
    scene = with_settings(scene, question.settings, question.schedulers)
    asked = combinations(scene, question.schedulers, question.changes, question.draws)
    with Progress("replaying", len(asked), stays=False) as progress:
        outcomes = replays(asked, progress.advance, workers)
    cluster, jobs = scene.cluster, scene.jobs
    return _answer(trace.name, jobs, outcomes, (), nodes=cluster.nodes, gpus=cluster.gpus, seed=scene.seed)


def _answer(
    cluster: str,
    jobs: GpuJobs,
    outcomes: list[SchedulerOutcome],
    remarks: tuple[str, ...],
    *,
    nodes: int,
    gpus: int | None,
    seed: int,
) -> _Answer:
    """Build the output of `--json` from the replays."""
    from models.what_if import differences

    result = {
        "cluster": cluster,
        "jobs": len(jobs),
        "nodes": nodes,
        "gpus": gpus,
        "seed": seed,
        "draws": len({outcome.seed for outcome in outcomes}),
        "said": list(dict.fromkeys([*remarks, *(line for outcome in outcomes for line in outcome.assumptions)])),
        "base": differences.base_beside_record(jobs, outcomes),
        "results": list(differences.rows(jobs, outcomes)),
        "groups": list(differences.group_rows(jobs, outcomes)),
    }
    return _Answer(result, jobs, outcomes)


_SHOWN = {
    "mean_jct_s": ("mean completion time", "duration"),
    "p50_jct_s": ("median completion time", "duration"),
    "p99_jct_s": ("99th percentile of completion times", "duration"),
    "mean_queueing_s": ("mean time without GPUs", "duration"),
    "makespan_s": ("first submission to last end", "duration"),
    "utilization": ("GPUs in use", "percent"),
    "fragmentation": ("GPUs free while jobs wait", "percent"),
    "worst_rho": ("largest finish-time fairness rho", "number"),
    "mean_rho": ("mean finish-time fairness rho", "number"),
    "preemptions": ("preemptions", "count"),
    "lost_gpu_h": ("GPU hours lost to restarts", "number"),
}  # figure -> (heading, format)


def _print(out: TextIO, result: dict[str, Any]) -> None:
    """Print each replay: figures, differences from the first replay, intervals; then the groups that gain or lose."""
    from reports.format import FORMATS, text

    machine = counted(result["nodes"], "node") if result["gpus"] is None else counted(result["gpus"], "GPU")
    out.write(f"{text(result['cluster'])}: {counted(result['jobs'], 'job')} on {machine}\n")
    if result["results"]:
        first = result["results"][0]
        out.write(f"baseline: {first['scheduler']}, {text(first['change'])}\n")
    out.write("".join(f"{line}\n" for line in _beside_record(result["base"])))
    last = None
    for row in result["results"]:
        title = (row["scheduler"], row["change"])
        if title != last:
            out.write(f"\n{row['scheduler']}, {text(row['change'])}\n")
            last = title
        name, unit = _SHOWN[row["figure"]]
        kind = FORMATS[unit]
        line = f"  {name:<36}{kind(row['value']):>16}"
        if row["difference_ci95"] is not None:
            low, high = row["difference_ci95"]
            words = ("shorter", "longer") if unit == "duration" else ("less", "more")
            amount = f"{kind(abs(row['difference']))} {words[row['difference'] > 0]}"
            line += f"   {amount} than the baseline (95 % interval of the difference {kind(low)} to {kind(high)})"
        if result["draws"] > 1:
            line += f"   [{kind(row['draws'][0])} to {kind(row['draws'][1])} over {result['draws']} random draws]"
        out.write(line + "\n")
    sure = [row for row in result["groups"] if row["difference_ci95"] and 0 not in _signs(row["difference_ci95"])]
    for word, sign in (("sooner", -1), ("later", 1)):
        parts = [row for row in sure if _signs(row["difference_ci95"]) == {sign}]
        parts.sort(key=lambda row: -abs(row["difference_s"] * row["jobs"]))
        out.write(f"\ngroups whose jobs complete {word} (the 95 % interval excludes 0){'' if parts else ': none'}\n")
        for row in parts[:10]:
            out.write(
                f"  {row['dimension']} {text(row['name'])}: {FORMATS['duration'](row['difference_s'])} per job, "
                f"{counted(row['jobs'], 'job')} ({row['scheduler']}, {text(row['change'])})\n"
            )


def _beside_record(base: dict[str, Any]) -> list[str]:
    """Describe in sentences how far the waits of the base are from the recorded ones."""
    from reports.format import FORMATS

    if not base["jobs"]:
        return ["the log has no starts, so the error of the baseline is unknown"]
    shown = FORMATS["duration"]

    def waits(of: dict[str, float]) -> str:
        return f"{shown(of['mean_wait_s'])} (median {shown(of['median_wait_s'])}, p90 {shown(of['p90_wait_s'])})"

    rho = "" if base["spearman"] is None else f"; Spearman's correlation job by job: {base['spearman']:.2f}"
    error_s = abs(base["recorded"]["mean_wait_s"] - base["replayed"]["mean_wait_s"])
    return [
        f"mean wait recorded: {waits(base['recorded'])}; replayed under {base['scheduler']}: "
        f"{waits(base['replayed'])}; n = {counted(base['jobs'], 'job')}{rho}",
        f"the baseline is off by {shown(error_s)} in the mean: do not trust a smaller difference",
    ]


def _signs(ends: list[float]) -> set[int]:
    """Return {1} or {-1} for an interval that excludes 0, else {0}."""
    return {1} if ends[0] > 0 else {-1} if ends[1] < 0 else {0}
