"""The search for hyper-parameters, as a job to be launched: it makes no asset, and what it finds a person takes over.

No `from __future__ import annotations` here: Dagster reads these annotations while the program runs.
"""

import dagster as dg

from assets.resources import Baton
from models.learning.hyperparameters import TUNABLE
from models.study.searches import as_toml, search
from models.study.support import Refusal, headline_study
from traces.counted import counted


class TuneConfig(dg.Config):
    """Which learner of which cluster is tuned, and for how long."""

    cluster: str
    policy: str
    trials: int = 30
    budget_s: float = 600.0


@dg.op(
    description=f"Hyper-parameters of one learner ({', '.join(TUNABLE)}) by Optuna, each trial a run in MLflow.",
    out=dg.Out(dg.Nothing),
)
def search_hyperparameters(context: dg.OpExecutionContext, config: TuneConfig, baton: Baton) -> None:
    """Searches on the cluster's fit window, and logs the table for clusters.toml that it came to."""
    study = headline_study(baton.folder, baton.settings(config.cluster))
    if isinstance(study, Refusal):
        context.log.info(study.why)
        return
    found = search(study, config.policy, study.windows.fit, trials=config.trials, budget_s=config.budget_s)
    context.log.info(
        f"{counted(found.trials, 'trial')}, {found.pruned} stopped early; cost {found.best.cost_h:.3f} h a pair, "
        f"with the policy's own values {found.own_cost_h:.3f} h\n{as_toml(study, found)}"
    )
