"""Random forest on the wait if submitted now, relative to an estimate of it; a factor on the prediction is the knob.

Fitted by scikit-learn; the artifact holds its trees as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agent.artifact import Artifact
from models.learning.manifest import describe
from models.learning.rows import DEFAULT_FACTOR, FACTORS, KNOB, PARAMETERS, training_rows
from models.learning.trees import from_sklearn
from models.protocol import PairTable


@dataclass
class Forest:
    """scikit-learn's RandomForestRegressor; the number of leaves is limited so that deciding stays fast."""

    name: str = "forest"
    knob: str = KNOB
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = True
    trees: int = 50
    leaves: int = 200
    min_samples_leaf: int = 10
    max_features: float = 0.4

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Metrics: root mean square error of the logarithm on the rows fitted."""
        from sklearn.ensemble import RandomForestRegressor

        rows = training_rows(pairs)
        model = RandomForestRegressor(
            n_estimators=self.trees,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.min_samples_leaf,
            max_features=self.max_features,
            random_state=seed,
        )
        model.fit(rows.inputs, rows.log_ratio, sample_weight=rows.weight)
        error = model.predict(rows.inputs) - rows.log_ratio
        artifact = describe(self, "trees", DEFAULT_FACTOR, parameters=PARAMETERS, arrays=from_sklearn(model))
        return artifact, {"fit_rmse_log_ratio": [float(np.sqrt(np.mean(error**2)))]}
