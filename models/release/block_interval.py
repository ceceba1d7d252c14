"""The gate's interval of a mean: Student's t over whole blocks of 7 days.

A percentile bootstrap over a few blocks is far too narrow: of candidates that are truly 0.1 h worse it lets up to one
in three pass on 28 days of pairs that resemble their neighbours, and one in two on 7.5. Here every block is one
observation, and the quantile is Student's with one degree of freedom less than there are blocks (the ratio estimator of
Cochran, "Sampling Techniques", 1977, section 6.3, with blocks as clusters). How often it errs is printed by
`bench/bench_gate.py`, and the levels are chosen by that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from features.bootstrap import BLOCK_S, grid
from features.conventions import GATE_LEVEL

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

PART_LEVEL = 0.9  # for a part of the pairs, in which worse is to be noticed sooner
LEAST_BLOCKS = 2  # that hold a pair, for any interval at all


class Interval(NamedTuple):
    """A mean and the two ends of its interval, in the unit of the values."""

    mean: float
    low: float
    high: float


def blocks_of(submit_s: Int64s) -> Int64s:
    """(n,) which block each of the starts (n,), epoch s, is in: blocks of equal length, and of 7 days at least.

    All zeros where the starts span less than two of these.
    """
    starts, end = grid(submit_s)
    begin, span_s = int(starts[0]), end - int(starts[0])
    count = max(1, span_s // BLOCK_S)
    return np.asarray((submit_s - begin) * count // span_s, dtype=np.int64)


def block_interval(values: Floats, block: Int64s, level: float = GATE_LEVEL) -> Interval | None:
    """Of the mean of `values` (n,), each in its block (n,); None where fewer than two blocks hold any."""
    from scipy.special import stdtrit

    held, of = np.unique(block, return_inverse=True)
    if len(held) < LEAST_BLOCKS:
        return None
    counts, sums = np.bincount(of).astype(np.float64), np.bincount(of, weights=values)
    mean = float(sums.sum() / counts.sum())
    spread = len(held) / (len(held) - 1) * float(((sums - mean * counts) ** 2).sum()) / float(counts.sum()) ** 2
    half = float(stdtrit(len(held) - 1, 0.5 + level / 2)) * spread**0.5
    return Interval(mean, mean - half, mean + half)
