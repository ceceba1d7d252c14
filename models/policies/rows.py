"""The decision instants that regressors of the wait are fitted on, and their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.observe import FEATURES
from models.protocol import PairTable

REMAINING = FEATURES.index("remaining_h")
NEAR_H = 24.0  # within it every hour, before it every fourth
EVERY_S = 3600
FAR_EVERY = 4


@dataclass(frozen=True)
class TrainingRows:
    """n decision instants of a pair table."""

    observations: NDArray[np.float32]  # (n, F)
    log_wait: NDArray[np.float64]  # (n,) log(1 + hours from the decision to the start of S)
    weight: NDArray[np.float64]  # (n,) mean 1


def training_rows(pairs: PairTable) -> TrainingRows:
    """Hourly instants counted back from each pair's end, sparser where the end is over a day away.

    The decision is close where the wait is of the order of the remaining time, so rows far from the end count little:
    weight 1 / (1 + remaining / 12 h), then scaled to the same sum for each pair, so that long pairs do not dominate.
    Weights depend on what is known at the decision alone: weighting by the outcome would bias the prediction.
    """
    remaining_s = pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s
    hourly = remaining_s % EVERY_S == 0
    near = remaining_s <= NEAR_H * 3600
    keep = np.flatnonzero(hourly & (near | (remaining_s % (FAR_EVERY * EVERY_S) == 0)))
    pair = pairs.pair_of[keep]
    wait_h = np.maximum(pairs.successor_start_s[keep] - pairs.decision_s[keep], 0) / 3600.0
    weight = 1.0 / (1.0 + remaining_s[keep] / (12.0 * 3600))
    weight /= np.bincount(pair, weight, minlength=len(pairs))[pair]
    return TrainingRows(pairs.observations[keep], np.log1p(wait_h), weight / weight.mean())


# Submit when the predicted wait is at least the remaining time less this many hours, from least to most overlap.
MARGINS_H = (-12.0, -8.0, -5.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
MARGIN_KNOB = "margin on the predicted gap, h"
DEFAULT_MARGIN_H = 0.0
