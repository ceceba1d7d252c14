"""The rows for fitting forest, XGBoost and LightGBM: decision instants with inputs, target and weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.futures.summary import SEEN_AHEAD
from features.observe import FEATURES
from models.provisioning.protocol import PairTable

# The target is the wait relative to this estimate. Fitted in a calm month, such a model still holds in a congested one,
# where a model of the wait itself would meet waits that it never saw.
BASE = "start_estimate_expected_h"
# State of the queue, without the clock and the remaining time: with two months of history a tree uses those to identify
# single days. On the A100 trace these ten lose less than all 39, at every overlap.
INPUTS = (
    "successor_nodes",
    "free_nodes",
    "pending_node_h",
    "start_estimate_h",
    "start_estimate_expected_h",
    "start_estimate_idle_h",
    "recent_wait_mean_h",
    "recent_wide_wait_mean_h",
    "limit_use_mean",
    "release_4h_nodes",
)
PARAMETERS = {"base": BASE, "inputs": list(INPUTS)}
FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)  # from least to most overlap
DEFAULT_FACTOR = 1.0
KNOB = "factor on 1 h + predicted wait"
NEAR_H = 24.0  # within it one row an hour, before it one row in four hours
EVERY_S = 3600
FAR_EVERY = 4


@dataclass(frozen=True)
class TrainingRows:
    """n decision instants of a pair table."""

    inputs: NDArray[np.float32]  # (n, inputs) columns of what is observed, and of the futures
    log_ratio: NDArray[np.float64]  # (n,) log of (1 h + wait if submitted then) / (1 h + base)
    weight: NDArray[np.float64]  # (n,) mean 1


def training_rows(pairs: PairTable, base: str = BASE, inputs: Sequence[str] = INPUTS) -> TrainingRows:
    """Make the training rows: the wait relative to the estimate `base`, and `inputs` (of the observation or futures).

    Instants are hourly, counted back from each pair's end, and sparser where the end is over a day away.

    The decision is close where the wait is of the order of the remaining time, so rows far from the end have little
    weight: 1 / (1 + remaining / 12 h). Weights are then scaled to the same sum for each pair, so that long pairs do not
    dominate. They depend only on what is known at the decision: weighting by the outcome would bias the prediction.
    """
    remaining_s = pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s
    hourly = remaining_s % EVERY_S == 0
    near = remaining_s <= NEAR_H * 3600
    keep = np.flatnonzero(hourly & (near | (remaining_s % (FAR_EVERY * EVERY_S) == 0)))
    pair = pairs.pair_of[keep]
    names = SEEN_AHEAD if len(pairs.ahead) else FEATURES
    seen = np.concatenate([pairs.observations[keep], pairs.ahead[keep]], axis=1) if len(pairs.ahead) else None
    observations = pairs.observations[keep] if seen is None else seen
    wait_h = np.maximum(pairs.successor_start_s[keep] - pairs.decision_s[keep], 0) / 3600.0
    weight = 1.0 / (1.0 + remaining_s[keep] / (12.0 * 3600))
    weight /= np.bincount(pair, weight, minlength=len(pairs))[pair]
    base_h = np.maximum(observations[:, names.index(base)].astype(np.float64), 0.0)
    log_ratio = np.log1p(wait_h) - np.log1p(base_h)
    taken = np.ascontiguousarray(observations[:, [names.index(name) for name in inputs]])
    return TrainingRows(taken, log_ratio, weight / weight.mean())
