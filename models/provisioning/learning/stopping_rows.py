"""Inputs and rows for learning optimal stopping: inputs relative to the remaining time, at decisions with a choice.

A learner that sees the size of a backlog learns the month that it is fitted on. The ratio of an estimated wait to the
remaining time means the same at any load.
"""

from __future__ import annotations

import numpy as np

from agent.kinds import signed_log
from features.futures.summary import SEEN_AHEAD
from features.observe import FEATURES
from models.provisioning.protocol import PairTable
from traces.arrays import Float32s, Float64s, Int64s

# In hours. The predecessor's wait is that of the same user under the same limits.
INPUTS = (
    "start_estimate_h",
    "start_estimate_expected_h",
    "start_estimate_idle_h",
    "headroom_wait_h",
    "predecessor_wait_h",
)
BASE = "start_estimate_h"
REMAINING = FEATURES.index("remaining_h")
NEAR_H = 24.0  # within it every decision counts, before it one every FAR_EVERY_S
FAR_EVERY_S = 4 * 3600


def relative_inputs(seen: Float32s, names: tuple[str, ...] = INPUTS) -> Float64s:
    """(d, len(names)) signed logarithm of each input, less that of the remaining time.

    seen: the observations, (d, len(FEATURES)), followed by the futures if `names` has one of their values.
    """
    columns = [SEEN_AHEAD.index(name) for name in names]
    return signed_log(seen[:, columns]) - signed_log(seen[:, [REMAINING]])


def rows_to_fit(pairs: PairTable) -> Int64s:
    """(n,) rows of the table with a choice to learn from: before the end; sparser where the end is over a day away."""
    remaining_s = pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s
    near = remaining_s <= NEAR_H * 3600
    return np.flatnonzero((remaining_s > 0) & (near | (remaining_s % FAR_EVERY_S == 0)))


def folds_in_time(pairs: PairTable, count: int) -> Int64s:
    """(d,) the stretch of time, of `count` with about as many pairs each, in which a decision's pair was submitted."""
    place = np.empty(len(pairs), np.int64)
    place[np.argsort(pairs.submit_s, kind="stable")] = np.arange(len(pairs))
    return np.asarray((place * count // len(pairs))[pairs.pair_of], np.int64)
