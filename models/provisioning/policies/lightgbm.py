"""LightGBM on an upper quantile of the wait if submitted now. The knob is a factor on the prediction.

For most users an hour of interruption costs more than an hour of overlap, so a quantile above the median is a better
starting point (a newsvendor problem: the best lead for cost weight w is the quantile 1 / (1 + w) of the wait).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.learning.regression_rows import DEFAULT_FACTOR, FACTORS, KNOB, PARAMETERS, training_rows
from models.provisioning.learning.trees import Tree, flatten, round_down, without_trees
from models.provisioning.protocol import PairTable


class Boosted(Protocol):
    """A policy with the hyper-parameters of boosted trees."""

    leaves: int
    learning_rate: float
    min_data_in_leaf: int
    feature_fraction: float
    bagging_fraction: float


@dataclass
class LightGBMQuantile:
    """Gradient boosting with the pinball loss."""

    name: str = "lightgbm"
    knob: str = KNOB
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = True
    quantile: float = 0.6  # of the wait, predicted: above the median, see the module
    rounds: int = 120  # trees, each fitted to the residuals of those before it
    leaves: int = 15  # per tree, at most
    learning_rate: float = 0.06  # share of each tree that counts
    min_data_in_leaf: int = 60  # rows, at least
    feature_fraction: float = 0.5  # share of the inputs that a tree sees
    bagging_fraction: float = 0.6  # share of the rows that a tree sees, drawn anew for each

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the model. Metrics: pinball loss of the logarithm on the rows fitted, one value per round."""
        import lightgbm

        rows = training_rows(pairs)
        options = {
            "objective": "quantile",
            "alpha": self.quantile,
            "metric": "quantile",
        } | boosting_options(self, seed)
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
        artifact = new_artifact(self, "trees", DEFAULT_FACTOR, parameters=PARAMETERS, arrays=from_lightgbm(booster))
        return artifact, {"fit_pinball_log_ratio": [float(v) for v in history["fit"]["quantile"]]}

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """Remove all trees: the base estimate alone."""
        return without_trees(artifact)


def from_lightgbm(booster: Any) -> dict[str, NDArray[Any]]:
    """Convert a LightGBM booster without categories: the sum of its trees, left where input <= threshold."""
    return flatten(lightgbm_trees(booster))


def boosting_options(policy: Boosted, seed: int) -> dict[str, Any]:
    """Return LightGBM's parameters of a policy's hyper-parameters: one thread, the same trees for the same seed."""
    return {
        "num_leaves": policy.leaves,
        "learning_rate": policy.learning_rate,
        "min_data_in_leaf": policy.min_data_in_leaf,
        "feature_fraction": policy.feature_fraction,
        "bagging_fraction": policy.bagging_fraction,
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }


def lightgbm_trees(booster: Any) -> list[Tree]:
    """The trees of a LightGBM booster without categories, in the order in which they were fitted."""
    return [tree_of(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]


def tree_of(structure: dict[str, Any]) -> Tree:
    """One tree of a booster's dump, left where input <= threshold."""
    feature, threshold, left, right, value = [], [], [], [], []
    waiting = [structure]
    for node in waiting:  # grows while it is walked
        leaf = "leaf_value" in node
        feature.append(0 if leaf else node["split_feature"])
        threshold.append(0.0 if leaf else node["threshold"])
        value.append(node["leaf_value"] if leaf else 0.0)
        left.append(-1 if leaf else len(waiting))
        right.append(-1 if leaf else len(waiting) + 1)
        if not leaf:
            waiting += [node["left_child"], node["right_child"]]
    thresholds = round_down(np.asarray(threshold, np.float64))
    return Tree(np.asarray(feature), thresholds, np.asarray(left), np.asarray(right), np.asarray(value, np.float64))
