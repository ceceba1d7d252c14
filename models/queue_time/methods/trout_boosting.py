"""TROUT's hierarchy with gradient boosting in both places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.queue_time.methods.hierarchy import Hierarchy, Predict
from models.queue_time.protocol import Float32s, Float64s

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
    """LightGBM: logistic loss of the class, absolute error of the logarithm."""
    return Hierarchy("trout-boosting", _class, _number)


def _class(observed: Float32s, is_short: NDArray[np.bool_], seed: int) -> Predict:
    return _boosted(observed, is_short.astype(np.float64), seed, "binary")


def _number(observed: Float32s, log_wait: Float64s, seed: int) -> Predict:
    return _boosted(observed, log_wait, seed, "regression_l1")


def _boosted(observed: Float32s, wanted: NDArray[Any], seed: int, objective: str) -> Predict:
    import lightgbm

    options = {**OPTIONS, "objective": objective, "seed": seed}
    booster = lightgbm.train(options, lightgbm.Dataset(observed, wanted), ROUNDS)
    return lambda rows: np.asarray(booster.predict(rows, num_threads=1), np.float64)
