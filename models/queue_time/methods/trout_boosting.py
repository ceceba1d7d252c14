"""TROUT's hierarchy with gradient boosting for both predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.trees import TreeEnsemble
from models.provisioning.learning.trees import flatten
from models.provisioning.policies.lightgbm import tree_of
from models.queue_time.methods.hierarchy import Hierarchy, Predict
from traces.arrays import Float32s, Float64s

OPTIONS = {
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
ROUNDS = 150


def TroutBoosting() -> Hierarchy:
    """The hierarchy with LightGBM: logistic loss of the class, absolute error of the logarithm."""
    return Hierarchy("trout-boosting", _class, _number)


@dataclass(frozen=True)
class BoostedTrees:
    """Fitted trees as arrays: predicts their sum, or the probability with that sum as its log-odds."""

    trees: dict[str, NDArray[Any]]
    is_probability: bool

    @cached_property
    def forest(self) -> TreeEnsemble:
        """The trees, ready to evaluate."""
        return TreeEnsemble(self.trees)

    def __call__(self, observed: Float32s) -> Float64s:
        """(n,) predictions for observations (n, F)."""
        every = np.zeros(len(self.trees["root"]), np.int64)
        total = self.forest.sums(observed, every, np.zeros((len(observed), 1)))[:, 0]
        return np.asarray(1.0 / (1.0 + np.exp(-total)) if self.is_probability else total, np.float64)


def _class(observed: Float32s, is_short: NDArray[np.bool_], seed: int) -> Predict:
    return BoostedTrees(_boosted(observed, is_short.astype(np.float64), seed, "binary"), is_probability=True)


def _number(observed: Float32s, log_wait: Float64s, seed: int) -> Predict:
    return BoostedTrees(_boosted(observed, log_wait, seed, "regression_l1"), is_probability=False)


def _boosted(observed: Float32s, target: NDArray[Any], seed: int, objective: str) -> dict[str, NDArray[Any]]:
    import lightgbm

    options = {**OPTIONS, "objective": objective, "seed": seed}
    booster = lightgbm.train(options, lightgbm.Dataset(observed, target), ROUNDS)
    return flatten([tree_of(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]])
