"""`baton wait`: predict when a job will start, or score every prediction method on a window."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import completion, options
from pipelines.options import Data, Json
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.queue_time.ask import WaitRequest
    from traces.clusters import ClusterSettings


def register(app: typer.Typer) -> None:
    """Add `baton wait`."""
    app.command()(wait)


def wait(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster name, as in clusters.toml.")
    ],
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, max=options.MOST_NODES, help="Requested nodes.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, max=options.MOST_NODES, help="Requested GPUs, as whole nodes.")
    ] = None,
    limit: Annotated[str | None, typer.Option("--limit", help="Requested time limit: 48h.")] = None,
    partition: Annotated[str, typer.Option("--partition", help="Partition; default: the one with most jobs.")] = "",
    user: Annotated[str, typer.Option("--user", help="User; default: a new one without history.")] = "",
    account: Annotated[str, typer.Option("--account", help="Account; default: the user's.")] = "",
    qos: Annotated[str, typer.Option("--qos", help="QOS; default: the one with most jobs.")] = "",
    like: Annotated[str | None, typer.Option("--like", help="Use the request of this job (JOBID).")] = None,
    script: Annotated[
        Path | None, typer.Option("--script", help="Use the request of this script's #SBATCH lines.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Use the queue of this machine's Slurm, instead of the end of the log.")
    ] = False,
    from_: Annotated[
        str | None, typer.Option("--from", help="Score the methods on jobs submitted from this date on (UTC).")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Score jobs submitted before this date (UTC).")] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Fit on data known at this date; default: --from.")
    ] = None,
    refit: Annotated[str | None, typer.Option("--refit", help="Interval of refits: 28d; default: never.")] = None,
    rolling: Annotated[
        bool,
        typer.Option("--rolling", help="Also score each method with forecasts corrected as outcomes become known."),
    ] = False,
    methods: Annotated[str | None, typer.Option("--methods", help="Methods to score: a,b,c; default: all.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=options.MOST_SEED, help="Seed of the scored methods.")] = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Predict when a job would start if submitted at the end of the log, or now; or score every method on a window.

    docs/queue-time.md describes the methods, their inputs and the figures.

    \f
    Over 50 lines: the options are the declaration of the command line.
    """
    from traces import clusters
    from traces.store import contents

    folder = options.data_folder(context, data)
    asked = {"--nodes": nodes, "--gpus": gpus, "--limit": limit, "--like": like, "--script": script}
    is_scored = _is_scored(asked | {"--live": live or None}, (from_, to), (until, refit, methods, rolling or None))
    with options.output(json) as out:
        settings = clusters.resolve(folder, cluster=cluster)
        contents.check_clusters(folder, [cluster])
        if is_scored:
            result = _scored(folder, settings, (from_, to, until), refit, methods, rolling, seed)
        else:
            request = _request(folder, settings, asked, (partition, user, account, qos))
            result = _answered(folder, settings, request, live)
        if json:
            options.write_json(out, result)
        else:
            from reports.text import waits

            out.write(waits.scores_text(result) if is_scored else waits.answer_text(result))


def _is_scored(
    asked: dict[str, Any], window: tuple[str | None, str | None], of_window: tuple[str | bool | None, ...]
) -> bool:
    """Whether to score a window instead of predicting for one job. Raises InputError for options of both."""
    given = [name for name, value in asked.items() if value is not None]
    is_scored = any(window)
    if is_scored and given:
        raise InputError(
            f"{', '.join(given)} describe one job, but --from and --to score a window: give one or the other"
        )
    if not is_scored and any(of_window):
        raise InputError("--until, --refit, --rolling and --methods need --from and --to: give these too")
    return is_scored


def _scored(
    folder: DataFolder,
    settings: ClusterSettings,
    dates: tuple[str | None, str | None, str | None],
    refit: str | None,
    methods: str | None,
    rolling: bool,
    seed: int,
) -> dict[str, Any]:
    """Score the methods on a window; dates: --from, --to and --until."""
    from_, to, until = dates
    if from_ is None or to is None:
        raise InputError("--from and --to go together: give both ends of the window to score")
    names = None if methods is None else options.names(methods)
    bounds = options.utc_s(from_), options.utc_s(to), None if until is None else options.utc_s(until)
    refit_s = None if refit is None else options.duration_s(refit)
    from models.queue_time.study import score_window

    return score_window(
        folder, settings, bounds[0], bounds[1], known_s=bounds[2], refit_s=refit_s, methods=names, rolling=rolling,
        seed=seed,
    )  # fmt: skip


def _answered(folder: DataFolder, settings: ClusterSettings, request: WaitRequest, live: bool) -> dict[str, Any]:
    from dataclasses import asdict, replace

    from models.queue_time.ask import answer
    from models.queue_time.make import stored_for
    from traces import instants

    stored = stored_for(folder, settings)
    if live:
        from getpass import getuser

        from agent import sight
        from agent.slurm.commands import Commands
        from models.queue_time.live import look_at_slurm

        request = replace(request, user=request.user or getuser())
        stored, partition = look_at_slurm(Commands(), stored, sight.SlurmRequest(**asdict(request)))
        request = replace(request, partition=partition)
    manifest = stored.manifest
    return {
        "cluster": settings.name,
        "live": live,
        "submitted_utc": instants.text(manifest["now_s"]),
        "fitted_on": manifest["fitted_on"],
        "unit": manifest["unit"],
        "method": stored.model.manifest["method"],
        "champion_version": manifest["champion"],
        "request": asdict(request),
        **answer(stored, request),
    }


def _request(
    folder: DataFolder, settings: ClusterSettings, asked: dict[str, Any], names: tuple[str, str, str, str]
) -> WaitRequest:
    """Build the request from a job or a script, overridden by the options. Raises InputError."""
    from models.queue_time.ask import WaitRequest

    partition, user, account, qos = names
    given: dict[str, Any] = {"partition": partition, "user": user, "account": account, "qos": qos}
    if asked["--like"] is not None and asked["--script"] is not None:
        raise InputError("--like and --script both define the request: give only one")
    known: dict[str, Any] = {}
    if asked["--like"] is not None:
        known = _like(folder, settings.name, asked["--like"])
    elif asked["--script"] is not None:
        known = _script(asked["--script"])
    if asked["--nodes"] is not None:
        known["nodes"] = asked["--nodes"]
    elif asked["--gpus"] is not None:
        known["nodes"] = _whole_nodes(settings, asked["--gpus"])
    elif "gpus" in known and "nodes" not in known:
        known["nodes"] = _whole_nodes(settings, known["gpus"])
    if asked["--limit"] is not None:
        known["limit_s"] = options.duration_s(asked["--limit"])
    if "limit_s" not in known:
        raise InputError("the time limit is missing: give --limit 48h, --like JOBID or a --script with --time")
    merged = {name: value or known.get(name, "") for name, value in given.items()}
    return WaitRequest(int(known.get("nodes", 1)), int(known["limit_s"]), **merged)


def _whole_nodes(settings: ClusterSettings, gpus: int) -> int:
    if not settings.gpus_per_node:
        raise InputError(
            f"cluster {settings.name!r} does not declare its GPUs per node: give --nodes, or set gpus_per_node in "
            "clusters.toml"
        )
    return -(-gpus // settings.gpus_per_node)


def _like(folder: DataFolder, cluster: str, job_id: str) -> dict[str, Any]:
    """Return the request of that job. Raises InputError if there is no such job."""
    from traces.find_job import find_job
    from traces.store import warehouse

    named = find_job(folder, job_id, cluster)
    row = warehouse.read(
        folder,
        "SELECT coalesce(nullif(requested_nodes, 0), nullif(allocated_nodes, 0), requested_cpus, 1) AS nodes, limit_s, "
        'partition, user_name AS "user", account, qos FROM jobs WHERE cluster = ? AND job_key = ?',
        (cluster, named.job_key),
    ).row(0, named=True)
    return {name: value for name, value in row.items() if value is not None}


def _script(path: Path) -> dict[str, Any]:
    """Return the request in a script's #SBATCH lines. Raises InputError if it has none, or one is invalid."""
    from agent.chains.chain import asked_limit, option, script_options

    try:
        lines = script_options(path)
        if not lines:
            raise InputError(f"{path} has no #SBATCH lines before its first command: give --nodes and --limit")
        found: dict[str, Any] = {}
        limit_s = asked_limit(lines)
        if limit_s is not None:  # UNLIMITED: --limit must be given
            found["limit_s"] = limit_s
        if (text := option(lines, "--nodes", "-N")) is not None:
            found["nodes"] = int(text.partition("-")[0])
        if (text := option(lines, "--gpus", "-G")) is not None:
            found["gpus"] = int(text.rpartition(":")[2])
    except ValueError as error:
        raise InputError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from error
    for name, short in (("partition", "-p"), ("account", "-A"), ("qos", "-q")):
        if (text := option(lines, f"--{name}", short)) is not None:
            found[name] = text
    return found
