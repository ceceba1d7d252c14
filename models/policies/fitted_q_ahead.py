"""Optimal stopping on observations and simulated futures: the recipe of `fitted-q`, with the futures' waits.

The untrained rule follows the median wait of the futures (`models.ahead.futures`) instead of the start estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.learning.stopping_rows import INPUTS
from models.policies.fitted_q import FittedQ


@dataclass
class FittedQAhead(FittedQ):
    """Fitted Q-iteration with the lower quartile and the median of the futures' waits as additional inputs."""

    name: str = "fitted-q-ahead"
    base: str = "ahead_wait_p50_h"
    inputs: tuple[str, ...] = (*INPUTS, "ahead_wait_p25_h", "ahead_wait_p50_h")
    looks_ahead: bool = True
