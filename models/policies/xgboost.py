"""XGBoost on the mean wait if submitted now, relative to an estimate of it; a factor on the prediction is the knob."""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.learning.manifest import describe
from models.learning.rows import DEFAULT_FACTOR, FACTORS, KNOB, PARAMETERS, training_rows
from models.learning.trees import from_xgboost
from models.protocol import PairTable


@dataclass
class XGBoostMean:
    """Gradient boosting with the squared error of the logarithm."""

    name: str = "xgboost"
    knob: str = KNOB
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = True
    rounds: int = 120
    depth: int = 4
    learning_rate: float = 0.06

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Metrics: root mean square error of the logarithm on the rows fitted, one value a round."""
        import xgboost

        rows = training_rows(pairs)
        options = {
            "objective": "reg:squarederror",
            "eval_metric": "rmse",
            "tree_method": "hist",
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "min_child_weight": 60,
            "subsample": 0.6,
            "colsample_bytree": 0.5,
            "seed": seed,
            "nthread": 1,
        }
        data = xgboost.DMatrix(rows.inputs, rows.log_ratio, weight=rows.weight)
        history: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            options, data, self.rounds, evals=[(data, "fit")], evals_result=history, verbose_eval=False
        )
        artifact = describe(self, "trees", DEFAULT_FACTOR, parameters=PARAMETERS, arrays=from_xgboost(booster))
        return artifact, {"fit_rmse_log_ratio": [float(v) for v in history["fit"]["rmse"]]}
