"""The search for hyper-parameters, as a job that a person launches. It makes no asset; a person adopts its result.

This module has no `from __future__ import annotations`, because Dagster reads its annotations at run time.
"""

import dagster as dg

from assets.shared.resources import Baton
from models.provisioning.learning.hyperparameters import TUNABLE
from models.study.searches import as_toml, search
from models.study.support import Refusal, headline_study
from traces.counted import counted


class TuneConfig(dg.Config):
    """The learner and cluster to tune, and the time budget."""

    cluster: str
    policy: str
    trials: int = 30
    budget_s: float = 600.0


@dg.op(
    description=f"Hyper-parameters of one learner ({', '.join(TUNABLE)}) by Optuna; each trial is a run in MLflow.",
    out=dg.Out(dg.Nothing),
)
def search_hyperparameters(context: dg.OpExecutionContext, config: TuneConfig, baton: Baton) -> None:
    """Search on the cluster's fit window, and log the resulting table for clusters.toml."""
    study = headline_study(baton.folder, baton.settings(config.cluster))
    if isinstance(study, Refusal):
        context.log.info(study.why)
        return
    found = search(study, config.policy, study.windows.fit, trials=config.trials, budget_s=config.budget_s)
    context.log.info(
        f"{counted(found.trials, 'trial')}, {found.pruned} stopped early. Best cost: {found.best.cost_h:.3f} h per "
        f"pair, compared with {found.own_cost_h:.3f} h for the policy's own values.\n{as_toml(study, found)}"
    )
