"""Record a search for hyper-parameters in MLflow: a parent run for the search, a child run for each trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from models.provisioning.protocol import PairTable
from models.provisioning.scenario import Context
from models.tracking import runs
from models.tracking.runs import NewRun
from models.tracking.store import errors_on_one_line, initialise
from models.tracking.training_runs import dataset
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.provisioning.training.sweep import SearchTrial


@contextmanager
def search_run(
    data: DataFolder, context: Context, policy: str, pairs: PairTable
) -> Iterator[Callable[[SearchTrial], None]]:
    """Yield a function that records a trial, while the parent run is open; a resumed search has a new parent.

    A child has the trial's hyper-parameters, its cost at each instant (`forward_cost_h`, hours a pair) and whether it
    was stopped.
    """
    initialise(data)
    judged_on = dataset(context, pairs, "fit")
    tags = {"cluster": context.scenario.cluster, "policy": policy, "code_version": context.code_version}
    parent = NewRun(
        name=f"tune {context.scenario.cluster} {policy}",
        params={**context.as_dict(), "policy": policy, "pairs": len(pairs)},
        tags={**tags, "baton.kind": "search"},
        datasets=[judged_on],
    )

    with errors_on_one_line(data), runs.closed_run(data, parent) as parent_id:

        def record(trial: SearchTrial) -> None:
            child = NewRun(
                name=f"{policy} trial {trial.number}",
                params={"policy": policy, **trial.values},
                metrics={"forward_cost_h": list(trial.costs_h), "mean_forward_cost_h": [trial.cost_h]},
                tags={**tags, "baton.kind": "trial", "stopped": str(trial.pruned).lower()},
                datasets=[judged_on],
                start_s=trial.began_s,
                parent_id=parent_id,
            )
            with runs.closed_run(data, child, end_s=trial.ended_s):
                pass

        yield record
