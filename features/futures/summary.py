"""Summary of the futures of a decision as features: seven numbers about when the successor starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.observe import FEATURES
from traces.units import HOUR_S

FUTURES = 16  # futures per decision
BEYOND_S = 86400  # a start later than this after the predecessor's end counts as a start at that time
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
QUANTILES = ("ahead_wait_p10_h", "ahead_wait_p25_h", "ahead_wait_p50_h", "ahead_wait_p75_h", "ahead_wait_p90_h")
MEAN, IN_TIME = "ahead_wait_mean_h", "ahead_in_time_share"
AHEAD: tuple[str, ...] = (*QUANTILES, MEAN, IN_TIME)
SEEN_AHEAD: tuple[str, ...] = (*FEATURES, *AHEAD)  # features of a policy that looks ahead
# Fallback where no futures can be simulated: every future starts at the start estimate.
AHEAD_FILLS: dict[str, float | str] = {**dict.fromkeys((*QUANTILES, MEAN), "start_estimate_h"), IN_TIME: 0.0}


def summary(start_s: NDArray[np.int64], at_s: NDArray[np.int64], end_s: NDArray[np.int64]) -> NDArray[np.float32]:
    """Compute the features AHEAD of n decisions: float32, (n, len(AHEAD)).

    start_s: (n, K), starts in K futures; at_s, end_s: (n,), times of the decision and of the predecessor's end; all in
    epoch s. Waits are in hours, with quantiles interpolated linearly between futures. The last number is the share of
    futures in which the successor starts no later than the predecessor's end.
    """
    wait_h = (start_s - at_s[:, None]) / HOUR_S
    out = np.empty((len(start_s), len(AHEAD)), np.float32)
    if len(start_s):
        out[:, : len(LEVELS)] = np.quantile(wait_h, LEVELS, axis=1).T
        out[:, len(LEVELS)] = wait_h.mean(axis=1)
        out[:, len(LEVELS) + 1] = (start_s <= end_s[:, None]).mean(axis=1)
    return out
