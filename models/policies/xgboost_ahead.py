"""XGBoost on observations and simulated futures: the recipe of `xgboost`, with the futures' waits.

The target is the wait relative to the median wait of the futures (`models.ahead.futures`).
"""

from __future__ import annotations

from dataclasses import dataclass

from features.ahead.summary import AHEAD
from models.learning.regression_rows import INPUTS
from models.policies.xgboost import XGBoostMean


@dataclass
class XGBoostAhead(XGBoostMean):
    """Gradient boosting with the squared error of the logarithm, with the futures as additional inputs."""

    name: str = "xgboost-ahead"
    base: str = "ahead_wait_p50_h"
    inputs: tuple[str, ...] = (*INPUTS, *AHEAD)
    looks_ahead: bool = True
