"""LightGBM on an upper quantile of the wait if submitted now; a factor on it is the knob.

An hour of interruption costs more than an hour of overlap to most, so a quantile above the median is the better
starting point (a newsvendor problem: the best lead for cost weight w is the quantile 1 / (1 + w) of the wait).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.learning.manifest import describe
from models.learning.rows import DEFAULT_FACTOR, FACTORS, KNOB, PARAMETERS, training_rows
from models.learning.trees import from_lightgbm
from models.protocol import PairTable


@dataclass
class LightGBMQuantile:
    """Gradient boosting with the pinball loss."""

    name: str = "lightgbm"
    knob: str = KNOB
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = True
    quantile: float = 0.6
    rounds: int = 120
    leaves: int = 15
    learning_rate: float = 0.06

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Metrics: pinball loss of the logarithm on the rows fitted, one value a round."""
        import lightgbm

        rows = training_rows(pairs)
        options = {
            "objective": "quantile",
            "alpha": self.quantile,
            "metric": "quantile",
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": 60,
            "feature_fraction": 0.5,
            "bagging_fraction": 0.6,
            "bagging_freq": 1,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(rows.inputs, rows.log_ratio, weight=rows.weight)
        history: dict[str, dict[str, list[float]]] = {}
        booster = lightgbm.train(
            options,
            data,
            self.rounds,
            valid_sets=[data],
            valid_names=["fit"],
            callbacks=[lightgbm.record_evaluation(history)],
        )
        artifact = describe(self, "trees", DEFAULT_FACTOR, parameters=PARAMETERS, arrays=from_lightgbm(booster))
        return artifact, {"fit_pinball_log_ratio": [float(v) for v in history["fit"]["quantile"]]}
