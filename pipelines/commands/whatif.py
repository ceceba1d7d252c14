"""`baton whatif`: the jobs of a cluster under published GPU schedulers, as it is and with things changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from pipelines import options
from pipelines.options import Cluster, Data, GpusPerNode, Json, Nodes
from traces.errors import InputError

if TYPE_CHECKING:
    from models.study.gpu_what_ifs import Question
    from models.what_if.changes import Scene
    from models.what_if.schedulers import Asked, Outcome
    from traces.clusters import ClusterSettings
    from traces.store.folder import DataFolder

KINDS = ("stated", "none")
MOST_DRAWS = 100
KEPT = "kept in the tables what_if_schedulers and what_if_groups, for `baton report` and `baton export`"


def register(app: typer.Typer) -> None:
    """Adds `baton whatif`."""
    app.command()(whatif)


def whatif(
    context: typer.Context,
    cluster: Cluster = None,
    schedulers: Annotated[str, typer.Option("--schedulers", help="Names, the first is the base: yarn,tiresias.")] = "",
    change: Annotated[
        list[str] | None,
        typer.Option("--change", help="One thing changed: nodes=+10%, type=T4:12,A100:4, limit=24h, ..."),
    ] = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    from_: Annotated[str | None, typer.Option("--from", help="Jobs submitted from this date on (UTC).")] = None,
    to: Annotated[str | None, typer.Option("--to", help="And before this one.")] = None,
    profiles: Annotated[
        str, typer.Option("--profiles", help="Models of jobs: stated (drawn, generated) or none.")
    ] = "stated",
    seed: Annotated[int, typer.Option("--seed", min=0, max=options.MOST_SEED, help="Of what is drawn.")] = 0,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=MOST_DRAWS, help="Draws, from --seed on: figures are means over them.")
    ] = 1,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes; default: the processors.")] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """What would change under other GPU schedulers, on other nodes, with other limits: differences with intervals.

    \f
    Over 50 lines: the options are the declaration of the command line.
    """
    with options.output(json) as out:
        wanted = _wanted(schedulers, profiles)
        from traces import clusters
        from traces.store import contents

        folder = options.data_folder(context, data)
        settings = clusters.resolve(folder, cluster=cluster, nodes=nodes, gpus_per_node=gpus_per_node)
        contents.check_clusters(folder, [settings.name])
        from models.study import gpu_what_ifs

        question = gpu_what_ifs.Question(
            schedulers=tuple(wanted),
            changes=tuple(change or ()),
            draws=seeds,
            profiles=profiles == "stated",
            seed=seed,
            jobs=None,
            from_s=options.utc_s(from_) if from_ else None,
            until_s=options.utc_s(to) if to else None,
        )
        asked, outcomes = _replayed(folder, settings, question, workers)
        result = _result(settings.name, asked[0].scene, outcomes)
        for line in result["said"]:
            options.say(line)
        options.say(KEPT)
        if json:
            options.write_json(out, result)
        else:
            _print(out, result)


def _wanted(schedulers: str, profiles: str) -> list[str]:
    """The schedulers that were asked for. Raises InputError for one, or for profiles, that there are not."""
    wanted = options.names(schedulers)
    if not wanted:
        raise InputError("whatif needs schedulers: --schedulers yarn,tiresias (the first is the base)")
    if profiles not in KINDS:
        raise InputError(f"unknown profiles {profiles!r}: known are {', '.join(KINDS)}")
    from simulator.gpu.registry import check

    for name in wanted:
        check(name, {})
    return wanted


def _replayed(
    folder: DataFolder, settings: ClusterSettings, question: Question, workers: int | None
) -> tuple[list[Asked], list[Outcome]]:
    """What was asked and found; all of it is in the warehouse when this returns, none of it where it is interrupted."""
    from assets.warehouse import build
    from models.study import gpu_what_ifs
    from models.what_if.schedulers import replays
    from traces.progress import Progress

    asked = gpu_what_ifs.asked(folder, settings, question)
    with Progress("replays", len(asked), stays=False) as progress:
        outcomes = replays(asked, progress.advance, workers)
    gpu_what_ifs.keep(folder, settings, question, asked, outcomes)
    build(folder)
    return asked, outcomes


def _result(cluster: str, scene: Scene, outcomes: list[Outcome]) -> dict[str, Any]:
    """What `--json` prints of the replays."""
    from models.what_if import differences

    return {
        "cluster": cluster,
        "jobs": len(scene.jobs),
        "nodes": scene.cluster.nodes,
        "gpus": scene.cluster.gpus,
        "seed": scene.seed,
        "draws": len({outcome.seed for outcome in outcomes}),
        "said": list(dict.fromkeys(line for outcome in outcomes for line in outcome.said)),
        "results": list(differences.rows(scene.jobs, outcomes)),
        "groups": list(differences.group_rows(scene.jobs, outcomes)),
    }


_SHOWN = {
    "mean_jct_s": "duration", "p50_jct_s": "duration", "p99_jct_s": "duration", "mean_queueing_s": "duration",
    "makespan_s": "duration", "utilization": "percent", "fragmentation": "percent", "worst_rho": "number",
    "mean_rho": "number", "preemptions": "count", "lost_gpu_h": "number",
}  # fmt: skip


def _print(out: TextIO, result: dict[str, Any]) -> None:
    """A block a replay: each figure, its difference to the first and the interval; then who gains and who loses."""
    from reports.format import FORMATS, text

    out.write(f"{text(result['cluster'])}: {result['jobs']:,} jobs on {result['gpus']:,} GPUs\n")
    last = None
    for row in result["results"]:
        title = (row["scheduler"], row["change"])
        if title != last:
            out.write(f"\n{row['scheduler']}, {text(row['change'])}\n")
            last = title
        kind = FORMATS[_SHOWN[row["figure"]]]
        line = f"  {row['figure']:<18}{kind(row['value']):>16}"
        if row["difference_ci95"] is not None:
            low, high = row["difference_ci95"]
            line += f"   by {kind(row['difference'])} (95 % {kind(low)} to {kind(high)})"
        if result["draws"] > 1:
            line += f"   [{kind(row['draws'][0])} to {kind(row['draws'][1])} over {result['draws']} draws]"
        out.write(line + "\n")
    sure = [row for row in result["groups"] if row["difference_ci95"] and 0 not in _signs(row["difference_ci95"])]
    for word, sign in (("gain", -1), ("lose", 1)):
        parts = [row for row in sure if _signs(row["difference_ci95"]) == {sign}]
        parts.sort(key=lambda row: -abs(row["difference_s"] * row["jobs"]))
        out.write(f"\nwho would {word} most, beyond chance{'' if parts else ': nobody'}\n")
        for row in parts[:10]:
            out.write(
                f"  {row['dimension']} {text(row['name'])}: {FORMATS['duration'](row['difference_s'])} a job, "
                f"{row['jobs']:,} jobs ({row['scheduler']}, {text(row['change'])})\n"
            )


def _signs(ends: list[float]) -> set[int]:
    """{1} or {-1} where the interval leaves 0 out."""
    return {1} if ends[0] > 0 else {-1} if ends[1] < 0 else {0}
