"""XGBoost on what is observed and on what simulated futures say: the recipe of `xgboost`, with the futures' waits.

What is predicted is how far the wait is from the median wait of the futures (`models.ahead.futures`).
"""

from __future__ import annotations

from dataclasses import dataclass

from features.ahead.summary import AHEAD
from models.learning.regression_rows import INPUTS
from models.policies.xgboost import XGBoostMean


@dataclass
class XGBoostAhead(XGBoostMean):
    """Gradient boosting with the squared error of the logarithm, beside the futures."""

    name: str = "xgboost-ahead"
    base: str = "ahead_wait_p50_h"
    inputs: tuple[str, ...] = (*INPUTS, *AHEAD)
    looks_ahead: bool = True
