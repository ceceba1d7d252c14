"""`baton whatif`: replay a cluster's jobs under other schedulers, on the cluster as it is or with changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from pipelines import completion, options
from pipelines.options import Cluster, Data, GpusPerNode, Json, Nodes
from simulator.names import RECORDED, SCHEDULERS, check_together, gpu_schedulers
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
ONE_DAY = "24h"  # default of --horizon
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
            help="Other schedulers, the first is the baseline: yarn,tiresias, or recorded,tiresias. Default: the "
            "cluster's own, which is called recorded.",
        ),
    ] = "",
    change: Annotated[
        list[str] | None,
        typer.Option("--change", help="A change: nodes=+10%, limit=24h, 'priority.user.NAME=+6h and ask=1.2', ..."),
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
    from_: options.From = None,
    to: options.To = None,
    horizon: Annotated[
        str, typer.Option("--horizon", help="Replay the cluster anew from the record this often: 24h, 7-0.")
    ] = ONE_DAY,
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
    plots: Annotated[
        Path | None,
        typer.Option("--plots", help="Write one HTML page: waits, queue and nodes in use, by change."),
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
    """Predict what other nodes, limits, priorities or schedulers would change; print differences with intervals.

    Without --schedulers the answer is for the cluster as its log records it, anew every day and in one piece.
    With --schedulers recorded,tiresias the cluster's own is the baseline, and all run with its outages, holds and
    limits of users. Other schedulers that share GPUs are compared on the jobs that ran on GPUs. Schedulers that
    allocate whole nodes (easy, conservative, mirage) are compared on all jobs. The kinds cannot be compared with each
    other.

    \f
    Over 50 lines: the options are the declaration of the command line.
    """
    with options.output(json) as out:
        chosen = _chosen(schedulers)
        options.check_targets({"--jobs-out": jobs_out, "--plots": plots}, mkdir=mkdir)
        if plots is not None and chosen:
            raise InputError("--plots draws the cluster as recorded: leave --schedulers out")
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
            if not chosen or RECORDED in chosen:
                raise InputError("--trace needs schedulers: --schedulers yarn,tiresias (the first is the baseline)")
            answer = _on_trace(trace, _machine(machine, nodes, gpus_per_node), question, workers, tree or ())
            _end(out, answer, jobs_out, is_json=json)
            return
        from traces import clusters
        from traces.store import contents

        folder = options.data_folder(context, data)
        settings = clusters.resolve(folder, cluster=cluster, nodes=nodes, gpus_per_node=gpus_per_node)
        settings = settings if tree is None else replace(settings, queues=tree)
        contents.check_clusters(folder, [settings.name])
        if not chosen:
            if gpus_per_node is not None or seeds > 1 or facts or set_ or tree or strict or profiles != "none":
                raise InputError(
                    "--gpus-per-node, --seeds, --jobs, --queues, --set, --profiles and --strict apply only to "
                    "--schedulers that share GPUs: name them, or omit these"
                )
            answer = _as_recorded(folder, settings, change or [], window, horizon, seed, plots)
        elif chosen[0] == RECORDED:
            if horizon != ONE_DAY:
                raise InputError(f"--horizon does not go with {RECORDED!r}: the window is replayed in one piece")
            answer = _in_recorded_machine(folder, settings, question)
        elif _allocates_nodes(folder, settings.name, chosen):
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
    """The output of `--json`, the ids of the jobs, the replays behind it, and how to print it."""

    result: dict[str, Any]
    ids: list[str]
    outcomes: list[SchedulerOutcome]
    write: Callable[[TextIO, dict[str, Any]], None]


def _end(out: TextIO, answer: _Answer, jobs_out: Path | None, *, is_json: bool) -> None:
    """Write the file of jobs if there is one, and print the answer."""
    if jobs_out is not None:
        from models.what_if.job_files import write_times

        write_times(jobs_out, answer.ids, answer.outcomes)
    for line in answer.result["said"]:
        options.say(line)
    if is_json:
        options.write_json(out, answer.result)
    else:
        answer.write(out, answer.result)


def _chosen(schedulers: str) -> list[str]:
    """Return the names of --schedulers, none for the cluster's own. Raises InputError for unknown schedulers."""
    chosen = options.names(schedulers)
    check_together(chosen)
    return chosen


def _allocates_nodes(folder: DataFolder, cluster: str, chosen: list[str]) -> bool:
    """Whether to replay whole nodes: a scheduler can do nothing else, or no job of the cluster ran on GPUs."""
    if not SCHEDULERS.keys() >= set(chosen):
        return False
    from models.what_if.gpu_answers import ran_on_gpus

    return not set(chosen) <= set(gpu_schedulers()) or not ran_on_gpus(folder, cluster)


def _as_recorded(
    folder: DataFolder,
    settings: ClusterSettings,
    changes: list[str],
    window: tuple[int | None, int | None],
    horizon: str,
    seed: int,
    plots: Path | None,
) -> _Answer:
    """Replay the cluster as recorded and build the output of `--json`. Nothing is stored."""
    from models.engine.engines import engine_of
    from models.study.slurm.files import declared
    from models.what_if.advice.to_do import declared_effects
    from models.what_if.recorded.answer import answer_recorded, as_schedules, job_times, read_recorded_scene
    from reports.text.what_if import write_recorded
    from traces.progress import Progress

    span_s = options.replay_span_s(horizon)
    with Progress("following the log", 1, stays=False) as progress:
        files = declared(folder, settings)
        scene = replace(read_recorded_scene(folder, settings, window, span_s, seed), conf=files.conf if files else None)
        progress.advance("rules and record")
    asked = list(dict.fromkeys(changes))
    under_files = declared_effects(folder, settings, asked, (scene.from_s, scene.until_s))
    with Progress("replaying", 1 + len(asked), stays=False) as progress:
        engine = engine_of(folder.root)
        result, daily, whole = answer_recorded(scene, settings.name, changes, progress.advance, engine)
    if plots is not None:
        from reports.changed_page import write_changes

        write_changes(plots, settings.name, result, *as_schedules(whole))
    result["declared"] = under_files
    return _Answer(result, *job_times(scene, daily), write_recorded)


def _in_recorded_machine(folder: DataFolder, settings: ClusterSettings, question: Question) -> _Answer:
    """Replay published schedulers in the machine that the log shows and build the output of `--json`.

    Nothing is stored. Raises InputError for an option that means nothing there.
    """
    if question.changes:
        raise InputError(f"--change does not go with {RECORDED!r}: leave --schedulers or --change out")
    if question.draws > 1 or question.facts or question.is_strict or question.profiles != "none":
        raise InputError(f"--seeds, --jobs, --profiles and --strict do not go with {RECORDED!r}: omit them")
    from models.engine.engines import engine_of
    from models.what_if.recorded.answer import read_recorded_scene
    from models.what_if.recorded.published import answer_published
    from reports.text.what_if import write_recorded
    from traces.progress import Progress

    with Progress("following the log", 1, stays=False) as progress:
        scene = read_recorded_scene(folder, settings, (question.from_s, question.until_s), seed=question.seed)
        progress.advance("rules and record")
    with Progress("replaying", len(question.schedulers), stays=False) as progress:
        answer = answer_published(
            scene, settings, question.schedulers[1:], question.settings, progress.advance, engine_of(folder.root)
        )
    return _Answer(*answer, write_recorded)


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
    from models.engine.engines import engine_of
    from models.what_if import gpu_answers as gpu_what_ifs
    from models.what_if.schedulers import replays
    from traces.progress import Progress
    from traces.store.refresh import refresh_warehouse

    asked = gpu_what_ifs.asked(folder, settings, question)
    with Progress("replaying", len(asked), stays=False) as progress:
        outcomes = replays(asked, progress.advance, workers, engine_of(folder.root))
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
    import numpy as np

    from models.what_if import differences
    from reports.text.what_if import write_schedulers

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
    ids = jobs.number.astype(np.str_) if jobs.ids is None else jobs.ids
    return _Answer(result, ids.tolist(), outcomes, write_schedulers)
