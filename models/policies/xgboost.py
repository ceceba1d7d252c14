"""XGBoost on the wait if submitted now; submit when the predicted gap is at least minus the margin."""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.policies.describe import describe
from models.policies.rows import DEFAULT_MARGIN_H, MARGIN_KNOB, MARGINS_H, training_rows
from models.protocol import PairTable


@dataclass
class XGBoostMean:
    """Gradient boosting with the squared error of log(1 + wait in hours)."""

    name: str = "xgboost"
    knob: str = MARGIN_KNOB
    settings: tuple[float, ...] = MARGINS_H
    is_learned: bool = True
    rounds: int = 150
    depth: int = 5
    learning_rate: float = 0.06

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Metrics: root mean square error of log(1 + wait in hours) on the rows fitted, one value a round."""
        import xgboost

        rows = training_rows(pairs)
        options = {
            "objective": "reg:squarederror",
            "eval_metric": "rmse",
            "tree_method": "hist",
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "min_child_weight": 20,
            "subsample": 0.7,
            "colsample_bytree": 0.6,
            "seed": seed,
            "nthread": 2,
        }
        data = xgboost.DMatrix(rows.observations, rows.log_wait, weight=rows.weight)
        history: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            options, data, self.rounds, evals=[(data, "fit")], evals_result=history, verbose_eval=False
        )
        files = {"model.json": bytes(booster.save_raw("json"))}
        artifact = describe(self, "xgboost", DEFAULT_MARGIN_H, files=files, packages=("xgboost-cpu",))
        return artifact, {"fit_rmse_log_wait": [float(v) for v in history["fit"]["rmse"]]}
