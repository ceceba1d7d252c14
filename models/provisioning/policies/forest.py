"""Random forest on the wait if submitted now, relative to an estimate of it. The knob is a factor on the prediction.

Fitted by scikit-learn; the artifact holds its trees as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.learning.regression_rows import DEFAULT_FACTOR, FACTORS, KNOB, PARAMETERS, training_rows
from models.provisioning.learning.trees import Tree, flatten, round_down, without_trees
from models.provisioning.protocol import PairTable


@dataclass
class RandomForest:
    """scikit-learn's RandomForestRegressor; the number of leaves is limited so that deciding stays fast."""

    name: str = "forest"
    knob: str = KNOB
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = True
    trees: int = 50  # more trees change the prediction little, and every decision walks all of them
    leaves: int = 200  # per tree, at most: limits the size of the artifact and the depth of a walk
    min_samples_leaf: int = 10  # rows averaged by a leaf, at least
    max_features: float = 0.4  # share of the inputs tried at a split: the trees differ, and their mean is steadier

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the forest. Metrics: root mean square error of the logarithm on the rows fitted."""
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
        artifact = new_artifact(self, "trees", DEFAULT_FACTOR, parameters=PARAMETERS, arrays=from_sklearn(model))
        return artifact, {"fit_rmse_log_ratio": [float(np.sqrt(np.mean(error**2)))]}

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """Remove all trees: the base estimate alone."""
        return without_trees(artifact)


def from_sklearn(model: Any) -> dict[str, NDArray[Any]]:
    """Convert a fitted RandomForestRegressor: the mean of its trees, left where input <= threshold."""
    trees = []
    for estimator in model.estimators_:
        tree = estimator.tree_
        value = tree.value[:, 0, 0] / len(model.estimators_)
        trees.append(Tree(tree.feature, round_down(tree.threshold), tree.children_left, tree.children_right, value))
    return flatten(trees)
