"""Random forest on the wait if submitted now, relative to an estimate of it; a factor on the prediction is the knob.

Fitted by scikit-learn, then flattened to arrays, so that the artifact needs numpy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from models.policies.describe import describe
from models.policies.rows import DEFAULT_FACTOR, FACTORS, KNOB, PARAMETERS, training_rows
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
            n_jobs=2,
            random_state=seed,
        )
        model.fit(rows.inputs, rows.log_ratio, sample_weight=rows.weight)
        error = model.predict(rows.inputs) - rows.log_ratio
        artifact = describe(self, "forest", DEFAULT_FACTOR, parameters=PARAMETERS, arrays=flatten(model))
        return artifact, {"fit_rmse_log_ratio": [float(np.sqrt(np.mean(error**2)))]}


def flatten(model: Any) -> dict[str, NDArray[Any]]:
    """The trees of a fitted forest as the arrays of `agent.artifact.predict_forest`.

    Nodes are numbered so that a right child follows its left one, and a leaf is its own child with a threshold of
    infinity. scikit-learn compares float32 features with float64 thresholds; rounding those down to float32 gives the
    same answer for every float32.
    """
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("feature", "threshold", "child", "value")}
    roots, base = [], 0
    for estimator in model.estimators_:
        tree = estimator.tree_
        order = breadth_first(tree.children_left, tree.children_right)
        number = np.empty(tree.node_count, np.int64)
        number[order] = np.arange(tree.node_count)
        leaf = tree.children_left[order] < 0
        left = np.where(leaf, np.arange(tree.node_count), number[tree.children_left[order]])
        parts["feature"].append(np.where(leaf, 0, tree.feature[order]).astype(np.int16))
        parts["threshold"].append(np.where(leaf, np.inf, round_down(tree.threshold[order])).astype(np.float32))
        parts["child"].append((left + base).astype(np.int32))
        parts["value"].append(tree.value[order, 0, 0].astype(np.float64))
        roots.append(base)
        base += tree.node_count
    return {**{name: np.concatenate(part) for name, part in parts.items()}, "root": np.asarray(roots, np.int32)}


def breadth_first(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nodes of a tree level by level, the two children of a node next to each other."""
    levels = [np.zeros(1, np.int64)]
    while len(inner := levels[-1][left[levels[-1]] >= 0]):
        levels.append(np.stack([left[inner], right[inner]], axis=1).ravel())
    return np.concatenate(levels)


def round_down(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 that is no larger."""
    nearest = numbers.astype(np.float32)
    return np.where(nearest > numbers, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float32)
