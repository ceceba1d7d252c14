"""`baton train`, `baton evaluate`: fit policies and compare them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import completion, options
from pipelines.commands.policies.compared import print_comparison
from pipelines.commands.policies.service import (
    Agents,
    CapOfLinks,
    Chains,
    LimitsOfLinks,
    OverlapWeight,
    Plots,
    RestartCost,
    evaluate_service,
    of_pairs,
    service_of,
    service_policies,
)
from pipelines.options import ClusterName, Data, Json
from simulator.names import SCHEDULERS, SLURM, check_names
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.provisioning.protocol import TrainedPolicy
    from models.study.cluster import Study

ALL, CHAMPION = "all", "champion"

_WORLDS = (
    "plain: the trace replayed under --scheduler; calibrated: the cluster as recorded at each decision; "
    "recorded-wait: as calibrated, but with the recorded wait of a similar job."
)
Policies = Annotated[
    str,
    typer.Option("--policies", autocompletion=completion.policies, help="Policy names (a,b), or all, or champion."),
]
Capacity = Annotated[
    int | None,
    typer.Option("--capacity", min=1, max=options.MOST_NODES, help="Number of nodes of the simulated cluster."),
]
PairNodes = Annotated[
    str | None,
    typer.Option("--pair-nodes", help="Sizes of the pairs in nodes: a,b (default: as in clusters.toml, else 1,8)."),
]
Limit = Annotated[
    str | None,
    typer.Option("--limit", help="Time limit of both jobs (48h); for recorded pairs, the minimum limit (12h)."),
]
Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        autocompletion=completion.scheduler,
        help=f"Scheduler of the simulated cluster: {', '.join((*SCHEDULERS, SLURM))}.",
    ),
]
World = Annotated[str, typer.Option("--world", help=_WORLDS)]
FittedIn = Annotated[
    str | None, typer.Option("--fitted-in", help="World that the policies were trained in, if not --world.")
]
FittedOn = Annotated[
    str | None,
    typer.Option(
        "--fitted-on",
        autocompletion=completion.clusters,
        help="Cluster that the policies were trained on, if not --cluster.",
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option("--hidden", help="Also evaluate with features hidden: any of recent, limits, nodes, held (a,b)."),
]
Pairs = Annotated[
    str | None,
    typer.Option(
        "--pairs", help="injected (world plain), or recorded: jobs that ended at their time limit (other worlds)."
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        "--partition", help="Partition of the pairs, for slurm with a slurm.conf (default: its default partition)."
    ),
]
User = Annotated[
    str | None,
    typer.Option("--user", help="User of the pairs, for slurm with a slurm.conf (default: a new one without history)."),
]
Account = Annotated[
    str | None,
    typer.Option("--account", help="Account of the pairs (default: that of --user, or the one with most jobs)."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=options.MOST_SEED, help="First of the learners' seeds.")]
DecideEvery = Annotated[
    str | None,
    typer.Option(
        "--decide-every",
        help="Interval between decisions, in training and for the agent (default: as in clusters.toml, else 10m).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add `baton train` and `baton evaluate`."""
    app.command()(train)
    app.command()(evaluate)


def train(
    context: typer.Context,
    cluster: ClusterName,
    policies: Policies,
    until: Annotated[str | None, typer.Option("--until", help="Use only data known before this date (UTC).")] = None,
    capacity: Capacity = None,
    pair_nodes: PairNodes = None,
    limit: Limit = None,
    scheduler: Scheduler = "mirage",
    world: World = "plain",
    pairs: Pairs = None,
    partition: Partition = None,
    user: User = None,
    account: Account = None,
    decide_every: DecideEvery = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds.")] = 5,
    data: Data = None,
    json: Json = False,
) -> None:
    """Train policies on pairs whose outcome was known before --until."""
    folder = options.data_folder(context, data)
    with options.output(json) as out:
        folder.ensure_writable()
        until_s = None if until is None else options.utc_s(until)
        names = _chosen(policies)
        options.check_tracking(folder, cluster if CHAMPION in names else None)
        if CHAMPION in names:
            from models.tracking import registered

            registered.check_champion(folder, cluster)
        submitter = (partition, user, account)
        study = _study(
            folder, cluster, capacity, pair_nodes, limit, scheduler, submitter, decide_every, world, pairs, None
        )
        from models.study import fits

        window = study.fit_window(until_s)
        recipes = _recipes(folder, cluster, names)
        options.say(f"{study.scenario}; fitted on starts from {window}")
        trained, kept = fits.fit(study, recipes, window, range(seed, seed + seeds))
        if CHAMPION in names:
            fits.remember_champion(study, fits.champion_policy(folder, cluster))
        rows = [_fitted(one, one.name in kept) for one in trained]
        if json:
            options.write_json(out, {"policies": rows, "until": window.until_s, "scenario": str(study.scenario)})
        else:
            for row in rows:
                note = ", reused from an earlier run" if row["reused"] else ""
                note += "" if row["is_releasable"] else ", compared, not released"
                out.write(f"{row['policy']} seed {row['seed']}: {row['wall_s']:.1f} s, run {row['run_id']}{note}\n")


def _fitted(one: TrainedPolicy, reused: bool) -> dict[str, Any]:
    """Describe one fit for the output of `train`."""
    from models.provisioning.registry import is_releasable

    note = {"reused": reused, "is_releasable": is_releasable(one.name)}
    return {"policy": one.name, "seed": one.seed, "run_id": one.run_id, "wall_s": one.wall_s, **note}


def evaluate(
    context: typer.Context,
    cluster: ClusterName,
    policies: Policies,
    from_: Annotated[str, typer.Option("--from", help="Predecessors submitted from this date on (UTC).")],
    to: Annotated[str, typer.Option("--to", help="Predecessors submitted before this date (UTC).")],
    every: Annotated[str, typer.Option("--every", help="Time between predecessors.")] = "4h",
    capacity: Capacity = None,
    pair_nodes: PairNodes = None,
    limit: Limit = None,
    scheduler: Scheduler = "mirage",
    world: World = "plain",
    pairs: Pairs = None,
    partition: Partition = None,
    user: User = None,
    account: Account = None,
    decide_every: DecideEvery = None,
    fitted_in: FittedIn = None,
    fitted_on: FittedOn = None,
    chains: Chains = None,
    restart_cost: RestartCost = "10m",
    limits: LimitsOfLinks = "2h,4h,8h,12h,24h,48h",
    weight: OverlapWeight = 0.5,
    agents: Agents = None,
    cap: CapOfLinks = None,
    plots: Plots = None,
    hidden: Hidden = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Compare policies on the same pairs or chains of jobs. Settings are chosen between the fit's end and --from.

    For policies --fitted-on another cluster (with that cluster's nodes and pair sizes), and for --chains without a
    learner, settings are chosen between the start of --cluster's select window and --from.

    The comparison always includes the rules that learn nothing, each learner untrained, the oracle, and, for recorded
    pairs, what their users did.
    """
    folder = options.data_folder(context, data)
    with options.output(json) as out:
        bounds, unseen = _bounds(from_, to), _unseen(hidden)
        others = {"--hidden": hidden, "--fitted-in": fitted_in, "--fitted-on": fitted_on}
        asked = service_of(chains, (restart_cost, limits, weight, limit), (agents, cap), plots, policies, world, others)
        names, fitted_names = (_chosen(of_pairs(policies)), []) if asked is None else service_policies(policies)
        trained_on = fitted_on or cluster
        options.check_tracking(folder, trained_on if CHAMPION in names else None)
        _check_trained(folder, trained_on, names if asked is None else fitted_names)
        submitter = (partition, user, account)
        judge = partial(_study, folder, cluster, capacity, pair_nodes, limit, scheduler, submitter, decide_every)
        study = judge(world, pairs, every)
        if asked is not None:
            evaluate_service(out, study, names, _trained(study, fitted_names), bounds, asked, json)
            return
        fitted = study if fitted_in in (None, world) else judge(fitted_in, None, every)
        if trained_on != cluster:
            elsewhere = (None, None, limit, scheduler, (None, None, None), decide_every)
            fitted = _study(folder, trained_on, *elsewhere, fitted_in or world, None, None)
        print_comparison(out, _compared(study, fitted, names, bounds, unseen), json)


def _compared(
    study: Study, fitted: Study, names: list[str], bounds: tuple[int, int], unseen: list[str]
) -> dict[str, Any]:
    """Build the output of `evaluate --json`: policies of `fitted` on the pairs of `study` within `bounds`."""
    from models.study import comparisons
    from models.study.windows import Window
    from models.study.world_error import world_error

    report = Window(*bounds, study.scenario.decide_every_s)
    is_at_home = fitted.scenario.cluster == study.scenario.cluster
    trained, fitted_until_s = _trained(fitted, names)
    known_s = fitted_until_s if is_at_home else study.windows.select.from_s
    for warning in comparisons.warnings_about(study, report, known_s):
        options.say(f"warning: {warning}")
    select = comparisons.select_window(known_s, report)
    compared = comparisons.compare_on(study, trained, report, select)
    if is_at_home:  # training runs of another cluster keep that cluster's figures
        comparisons.remember_comparison(study, trained, compared, report, select)
    return {
        "results": compared.results,
        "world_error": world_error(study, report),
        "hidden": comparisons.hidden_rows(study, trained, report, select, unseen) if unseen else [],
        "promises": comparisons.promise_rows(study, trained, report, select),
        "fitted_in": fitted.scenario.world,
        "fitted_on": fitted.scenario.cluster,
        "is_development_window": comparisons.is_development(study, report),
    }


def _bounds(from_: str, to: str) -> tuple[int, int]:
    """Parse --from and --to to epoch seconds. Raises InputError if the window is empty."""
    from_s, to_s = options.utc_s(from_), options.utc_s(to)
    if from_s >= to_s:
        raise InputError(f"--from {from_} is not before --to {to}: give a later --to")
    return from_s, to_s


def _unseen(hidden: str | None) -> list[str]:
    """Parse the groups of features of --hidden. Raises InputError."""
    if hidden is None:
        return []
    from models.provisioning.comparison.masked import check_hidden

    unseen = options.names(hidden)
    check_hidden(unseen)
    return unseen


def _study(
    folder: DataFolder,
    cluster: str,
    capacity: int | None,
    pair_nodes: str | None,
    limit: str | None,
    scheduler: str,
    submitter: tuple[str | None, str | None, str | None],
    decide_every: str | None,
    world: str,
    pairs: str | None,
    every: str | None,
) -> Study:
    """Open the study of these options; submitter: --partition, --user, --account.

    Names and values are checked before any slow import.
    """
    from models.provisioning.worlds import check_pairs, check_world
    from traces import clusters
    from traces.store import contents

    settings = clusters.resolve(folder, cluster=cluster)
    check_names(scheduler=scheduler, slurm=True)
    check_world(world)
    check_pairs(pairs, world)
    sizes = None if pair_nodes is None else options.whole_numbers(pair_nodes, "--pair-nodes")
    durations = (None if text is None else options.duration_s(text) for text in (limit, every, decide_every))
    limit_s, every_s, decide_every_s = durations
    contents.check_clusters(folder, [cluster])
    from models.study.cluster import open_study

    return open_study(
        folder,
        settings,
        capacity=capacity,
        pair_nodes=sizes,
        limit_s=limit_s,
        scheduler=scheduler,
        world=world,
        every_s=every_s,
        partition=submitter[0],
        user=submitter[1],
        account=submitter[2],
        decide_every_s=decide_every_s,
    )


def _chosen(text: str) -> list[str]:
    """Parse --policies: registry names, `all` or `champion`. Raises InputError."""
    from models.provisioning.registry import check_policy

    names = options.names(text)
    if not names:
        raise InputError("--policies is empty; give policy names (a,b), or all, or champion")
    for name in names:
        if name not in (ALL, CHAMPION):
            check_policy(name)
    return names


def _check_trained(folder: DataFolder, cluster: str, names: list[str]) -> None:
    """Raise InputError for a policy that was not trained for that cluster in any scenario."""
    from models.tracking import registered
    from traces import clusters
    from traces.store.stamps import stamp_path

    clusters.resolve(folder, cluster=cluster)
    for name in names:
        stamps = stamp_path(folder, f"train-*-{name}", cluster)
        if name == ALL or any(stamps.parent.glob(stamps.name)):
            continue
        if name == CHAMPION:
            registered.check_champion(folder, cluster)
        else:
            raise InputError(
                f"policy {name!r} was never trained for cluster {cluster!r} in {folder.root}: "
                f"run `baton train --cluster {cluster} --policies {name}` first"
            )


def _recipes(folder: DataFolder, cluster: str, names: list[str]) -> list[str]:
    """Resolve `all` to every registry name and `champion` to the policy of the cluster's champion."""
    from models.provisioning.registry import every_policy
    from models.study import fits

    recipes: list[str] = []
    for name in names:
        if name == ALL:
            recipes += every_policy()
        elif name == CHAMPION:
            recipes.append(fits.champion_policy(folder, cluster))
        else:
            recipes.append(name)
    return list(dict.fromkeys(recipes))


def _trained(study: Study, names: list[str]) -> tuple[list[TrainedPolicy], int]:
    """Return the trained policies of those names, and the latest end of their fit windows (epoch s)."""
    from models.provisioning.registry import every_policy
    from models.study import fits

    trained: list[TrainedPolicy] = []
    until_s = 0
    for name in names:
        for policy in every_policy() if name == ALL else [name]:
            of_seeds, fitted_until_s = fits.champion(study) if policy == CHAMPION else fits.last_fit(study, policy)
            if not any(other.name == policy for other in trained):
                trained, until_s = trained + of_seeds, max(until_s, fitted_until_s)
    return trained, until_s
