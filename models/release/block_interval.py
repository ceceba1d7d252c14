"""The gate's interval of a mean: Student's t over whole blocks of 7 days.

A percentile bootstrap over a few blocks is far too narrow. Of candidates that are truly 0.1 h worse it lets up to one
in three pass on 28 days of pairs that resemble their neighbours, and one in two on 7.5 days. Here every block is one
observation, and the quantile is Student's with one degree of freedom less than the number of blocks (the ratio
estimator of Cochran, "Sampling Techniques", 1977, section 6.3, with blocks as clusters). `bench/bench_gate.py` prints
its error rates, by which the levels are chosen.

Rare losses make the mean skewed. A window with few of them has too low a mean and too narrow a spread at once, so the
end towards the losses is too near. It is moved out by the first term of the Cornish-Fisher expansion (Johnson,
"Modified t tests and confidence intervals for asymmetrical populations", JASA 1978; Hall, "On the removal of skewness
by transformation", JRSS B, 1992). Four blocks cannot show skewness, but days can. The skewness of the mean is that of
the days over the root of the effective number of days: as many days as would give the spread of the blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.bootstrap import BLOCK_S, grid
from features.conventions import GATE_LEVEL
from traces.arrays import Float64s, Int64s

PART_LEVEL = 0.9  # for a part of the pairs, in which a loss should be noticed sooner
SKEWNESS_COUNTED = 1.5  # factor on the skewness of a window's days, which is too small if losses are rare
LEAST_BLOCKS = 2  # with a pair, for any interval


class Interval(NamedTuple):
    """A mean and the two ends of its interval, in the unit of the values."""

    mean: float
    low: float
    high: float


def blocks_of(submit_s: Int64s) -> Int64s:
    """(n,) the block of each start (n,), epoch s. Blocks have equal length, at least 7 days.

    All zeros if the starts span less than two blocks.
    """
    starts, end = grid(submit_s)
    begin, span_s = int(starts[0]), end - int(starts[0])
    count = max(1, span_s // BLOCK_S)
    return np.asarray((submit_s - begin) * count // span_s, dtype=np.int64)


def block_interval(
    values: Float64s, block: Int64s, level: float = GATE_LEVEL, day: Int64s | None = None
) -> Interval | None:
    """The interval of the mean of `values` (n,), each in its block (n,); None for fewer than two blocks.

    With `day` (n,), the number of each value's day, the end towards which the values are skewed is moved out.
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


def _skewness(values: Float64s, day: Int64s, spread: float, blocks: int) -> float:
    """Skewness of the mean of the values (variance `spread`): that of the daily means, by the effective days."""
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
