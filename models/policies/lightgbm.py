"""LightGBM on an upper quantile of the wait if submitted now; submit when the gap at that quantile >= -margin.

An hour of interruption costs more than an hour of overlap to most, so a quantile above the median is the better
starting point (a newsvendor problem: the best lead for cost weight w is the quantile 1 / (1 + w) of the wait).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.policies.describe import describe
from models.policies.rows import DEFAULT_MARGIN_H, MARGIN_KNOB, MARGINS_H, training_rows
from models.protocol import PairTable


@dataclass
class LightGBMQuantile:
    """Gradient boosting with the pinball loss."""

    name: str = "lightgbm"
    knob: str = MARGIN_KNOB
    settings: tuple[float, ...] = MARGINS_H
    is_learned: bool = True
    quantile: float = 0.6
    rounds: int = 150
    leaves: int = 31
    learning_rate: float = 0.06

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Metrics: pinball loss of log(1 + wait in hours) on the rows fitted, one value a round."""
        import lightgbm

        rows = training_rows(pairs)
        options = {
            "objective": "quantile",
            "alpha": self.quantile,
            "metric": "quantile",
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": 40,
            "feature_fraction": 0.6,
            "bagging_fraction": 0.7,
            "bagging_freq": 1,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 2,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(rows.observations, rows.log_wait, weight=rows.weight)
        history: dict[str, dict[str, list[float]]] = {}
        booster = lightgbm.train(
            options,
            data,
            self.rounds,
            valid_sets=[data],
            valid_names=["fit"],
            callbacks=[lightgbm.record_evaluation(history)],
        )
        files = {"model.txt": booster.model_to_string().encode("ascii")}
        artifact = describe(self, "lightgbm", DEFAULT_MARGIN_H, files=files, packages=("lightgbm",))
        return artifact, {"fit_pinball_log_wait": [float(v) for v in history["fit"]["quantile"]]}
