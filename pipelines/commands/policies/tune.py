"""`baton tune`: search the hyper-parameters of one learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import completion, options
from pipelines.commands.policies.models import Capacity, Limit, PairNodes, Scheduler, Seed, World
from pipelines.options import ClusterName, Data, Json
from simulator.names import check_names
from traces.counted import counted
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.provisioning.training.sweep import SearchResult
    from models.study.cluster import Study


def register(app: typer.Typer) -> None:
    """Add `baton tune`."""
    app.command()(tune)


def tune(
    context: typer.Context,
    cluster: ClusterName,
    policy: Annotated[
        str, typer.Option("--policy", autocompletion=completion.learners, help="Registry name of one learner.")
    ],
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=10_000, help="Trials in total, including those of earlier runs.")
    ] = 30,
    budget: Annotated[str, typer.Option("--budget", help="Time limit of this run: 10m, 2h.")] = "10m",
    until: Annotated[str | None, typer.Option("--until", help="Use only data known before this date (UTC).")] = None,
    capacity: Capacity = None,
    pair_nodes: PairNodes = None,
    limit: Limit = None,
    scheduler: Scheduler = "mirage",
    world: World = "plain",
    seed: Seed = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Search hyper-parameters of one learner on the fit window; print the best as a table for clusters.toml.

    Each trial is fitted before an instant and scored after it, three times. Trials that lag behind are stopped early.
    Run the command again to resume the search.
    """
    folder = options.data_folder(context, data)
    with options.output(json) as out:
        folder.ensure_writable()
        until_s = None if until is None else options.utc_s(until)
        budget_s = options.duration_s(budget)
        options.check_tracking(folder)
        study = _study(folder, cluster, policy, capacity, pair_nodes, limit, scheduler, world)
        from models.study.searches import as_toml, search

        found = search(study, policy, study.fit_window(until_s), trials=trials, budget_s=budget_s, seed=seed)
        if json:
            options.write_json(out, _answer(found))
            return
        out.write(
            f"{counted(found.trials, 'trial')}, {found.pruned} of them stopped early; best cost "
            f"{found.best.cost_h:.3f} h per pair, {found.own_cost_h:.3f} h with the policy's default values\n"
            f"{as_toml(study, found)}"
        )


def _study(
    folder: DataFolder, cluster: str, policy: str, capacity: int | None, pair_nodes: str | None, limit: str | None,
    scheduler: str, world: str,
) -> Study:  # fmt: skip
    """Open the study whose fit window is searched. Names and values are checked before anything slow is imported."""
    from models.provisioning.learning.hyperparameters import tunable
    from models.provisioning.registry import check_policy
    from models.provisioning.worlds import check_world
    from traces import clusters
    from traces.store import contents

    check_policy(policy)
    tunable(policy)
    settings = clusters.resolve(folder, cluster=cluster)
    check_names(scheduler=scheduler, slurm=True)
    check_world(world)
    sizes = None if pair_nodes is None else options.whole_numbers(pair_nodes, "--pair-nodes")
    limit_s = None if limit is None else options.duration_s(limit)
    contents.check_clusters(folder, [cluster])
    from models.study.cluster import open_study

    return open_study(
        folder, settings, capacity=capacity, pair_nodes=sizes, limit_s=limit_s, scheduler=scheduler, world=world
    )


def _answer(found: SearchResult) -> dict[str, Any]:
    """Build the output of `--json`."""
    return {
        "policy": found.policy,
        "trials": found.trials,
        "stopped": found.pruned,
        "own_cost_h": found.own_cost_h,
        "best_cost_h": found.best.cost_h,
        "best_trial": found.best.number,
        "hyperparameters": found.best.values,
    }
