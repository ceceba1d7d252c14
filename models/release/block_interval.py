"""The gate's interval of a mean: Student's t over whole blocks of 7 days.

A percentile bootstrap over a few blocks is far too narrow: of candidates that are truly 0.1 h worse it lets up to one
in three pass on 28 days of pairs that resemble their neighbours, and one in two on 7.5. Here every block is one
observation, and the quantile is Student's with one degree of freedom less than there are blocks (the ratio estimator of
Cochran, "Sampling Techniques", 1977, section 6.3, with blocks as clusters). How often it errs is printed by
`bench/bench_gate.py`, and the levels are chosen by that.

Rare losses make the mean skewed: a window with few of them has a mean that is too low and a spread that is too narrow
at once, so that the end towards the losses comes too near. It is moved out by the first term of the Cornish-Fisher
expansion (Johnson, "Modified t tests and confidence intervals for asymmetrical populations", JASA 1978; Hall, "On the
removal of skewness by transformation", JRSS B, 1992). Four blocks tell no skewness, days do: that of the mean
is the skewness of the days over the root of the days that count, as many as would have the spread that blocks show.
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
SKEWNESS_COUNTED = 1.5  # times what the days of a window show: too little where losses are rare
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


def block_interval(
    values: Floats, block: Int64s, level: float = GATE_LEVEL, day: Int64s | None = None
) -> Interval | None:
    """Of the mean of `values` (n,), each in its block (n,); None where fewer than two blocks hold any.

    With `day` (n,), any number of each day, the end towards which the values are skewed lies further out.
    """
    from scipy.special import stdtrit

    held, of = np.unique(block, return_inverse=True)
    if len(held) < LEAST_BLOCKS:
        return None
    counts, sums = np.bincount(of).astype(np.float64), np.bincount(of, weights=values)
    mean = float(sums.sum() / counts.sum())
    spread = len(held) / (len(held) - 1) * float(((sums - mean * counts) ** 2).sum()) / float(counts.sum()) ** 2
    quantile = float(stdtrit(len(held) - 1, 0.5 + level / 2))
    skewness = 0.0 if day is None else SKEWNESS_COUNTED * _skewness(values, day, spread, len(held))
    further = (2.0 * quantile**2 + 1.0) / 6.0
    low, high = (quantile + further * max(0.0, side * skewness) for side in (-1.0, 1.0))
    return Interval(mean, mean - low * spread**0.5, mean + high * spread**0.5)


def _skewness(values: Floats, day: Int64s, spread: float, blocks: int) -> float:
    """Of the mean of the values, whose variance is `spread`: that of the days' means, less by the days that count."""
    _, of = np.unique(day, return_inverse=True)
    counts = np.bincount(of)
    means = np.bincount(of, weights=values) / counts
    apart = means - np.average(means, weights=counts)
    variance = float(np.average(apart**2, weights=counts))
    if variance <= 0.0 or spread <= 0.0:
        return 0.0
    days = max(blocks, min(len(counts), variance / spread))
    third = float(np.average(apart**3, weights=counts))
    return third / float(variance**1.5 * days**0.5)
