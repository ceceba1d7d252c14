"""XGBoost on the mean wait if submitted now, relative to an estimate of it. The knob is a factor on the prediction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.futures.summary import AHEAD
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.learning.regression_rows import BASE, DEFAULT_FACTOR, FACTORS, INPUTS, KNOB, training_rows
from models.provisioning.learning.trees import Tree, flatten, without_trees
from models.provisioning.protocol import PairTable


@dataclass
class XGBoostMean:
    """Gradient boosting with the squared error of the logarithm."""

    name: str = "xgboost"
    knob: str = KNOB
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = True
    rounds: int = 120  # trees, each fitted to the residuals of those before it
    depth: int = 4  # per tree, at most
    learning_rate: float = 0.06  # share of each tree that counts
    min_child_weight: float = 60.0  # sum of the rows' weights in a leaf, at least
    subsample: float = 0.6  # share of the rows that a tree sees
    colsample_bytree: float = 0.5  # share of the inputs that a tree sees
    base: str = BASE  # the estimate that the wait is relative to
    inputs: tuple[str, ...] = INPUTS
    looks_ahead: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the model. Metrics: root mean square error of the logarithm on the rows fitted, one value per round."""
        import xgboost

        rows = training_rows(pairs, self.base, self.inputs)
        options = {
            "objective": "reg:squarederror",
            "eval_metric": "rmse",
            "tree_method": "hist",
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "min_child_weight": self.min_child_weight,
            "subsample": self.subsample,
            "colsample_bytree": self.colsample_bytree,
            "seed": seed,
            "nthread": 1,
        }
        data = xgboost.DMatrix(rows.inputs, rows.log_ratio, weight=rows.weight)
        history: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            options, data, self.rounds, evals=[(data, "fit")], evals_result=history, verbose_eval=False
        )
        parameters = {"base": self.base, "inputs": list(self.inputs)}
        artifact = new_artifact(
            self,
            "trees",
            DEFAULT_FACTOR,
            parameters=parameters,
            arrays=from_xgboost(booster),
            looks_ahead=self.looks_ahead,
        )
        return artifact, {"fit_rmse_log_ratio": [float(v) for v in history["fit"]["rmse"]]}

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """Remove all trees: the base estimate alone."""
        return without_trees(artifact)


def from_xgboost(booster: Any) -> dict[str, NDArray[Any]]:
    """Convert a booster of one output with an identity link: base score plus trees, left where input < threshold."""
    learner = json.loads(booster.save_raw("json"))["learner"]
    trees = []
    for tree in learner["gradient_booster"]["model"]["trees"]:
        condition = np.asarray(tree["split_conditions"], np.float32)  # the value, at a leaf
        trees.append(
            Tree(
                np.asarray(tree["split_indices"], np.int64),
                np.nextafter(condition, np.float32(-np.inf)),
                np.asarray(tree["left_children"], np.int64),
                np.asarray(tree["right_children"], np.int64),
                condition.astype(np.float64),
            )
        )
    base = float(str(learner["learner_model_param"]["base_score"]).strip("[]"))
    constant = Tree(*(np.asarray([number]) for number in (0, np.float32(0.0), -1, -1, base)))
    return flatten([constant, *trees])


def xgboost_ahead() -> XGBoostMean:
    """The recipe of `xgboost` with the waits in simulated futures among its inputs, relative to their median wait."""
    return XGBoostMean("xgboost-ahead", base="ahead_wait_p50_h", inputs=(*INPUTS, *AHEAD), looks_ahead=True)
