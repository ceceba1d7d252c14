"""Moving-block bootstrap over the starts of pairs, with resampling of seeds within each draw.

Neighbouring starts share the same queue, so we resample blocks of 7 days rather than single starts (Kunsch, "The
jackknife and the bootstrap for general stationary observations", Annals of Statistics 17(3), 1989). The window is
closed to a circle (Politis and Romano, "A circular block-resampling procedure for stationary data", 1992). Without the
circle, starts near the ends are drawn less often, and on windows of two or three blocks the interval can miss its own
estimate.

A draw is stored as a weight for every pair. One set of draws then serves every policy, load and setting, and a
resampled mean is one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.conventions import BLOCK_DAYS
from traces.arrays import Float64s, Int64s

BLOCK_S = BLOCK_DAYS * 86_400
DRAWS = 1000
DIGITS = 9  # decimals of an interval's ends; later ones differ between processors
MISSING_SHARE_ALLOWED = 0.05  # largest share of draws without the figure for which an interval is reported


def grid(submit_s: Int64s) -> tuple[Int64s, int]:
    """Return the distinct start times in order, and the end of the window: last start plus median spacing, epoch s."""
    starts = np.unique(submit_s)
    spacing = int(np.median(np.diff(starts))) if len(starts) > 1 else 1
    return starts, int(starts[-1]) + spacing


def block_count(submit_s: Int64s, origin_s: int, block_s: int = BLOCK_S) -> int:
    """Count the disjoint blocks, laid end to end from `origin_s`, that hold at least one of the given starts."""
    return len(np.unique((np.asarray(submit_s, dtype=np.int64) - origin_s) // block_s))


def start_weights(submit_s: Int64s, draws: int = DRAWS, seed: int = 0, block_s: int = BLOCK_S) -> Float64s | None:
    """Count how often each start is drawn: (draws, n) for submissions `submit_s` (n,), epoch s.

    A draw joins blocks of `block_s` seconds until it is as long as the window; the last block is cut to fit. A block
    begins at any second with equal probability, and wraps around at the end of the window. Starts at the same instant
    (pairs of other sizes) are drawn together. Returns None where the window is no longer than one block, because it
    then contains no information on spread.
    """
    if not len(submit_s):
        return None
    starts, end = grid(submit_s)
    span = end - int(starts[0])
    if span <= block_s:
        return None
    blocks = -(-span // block_s)
    lengths = np.full(blocks, block_s, dtype=np.int64)
    lengths[-1] = span - (blocks - 1) * block_s
    begin = int(starts[0]) + np.random.default_rng(seed).integers(0, span, size=(draws, blocks))
    twice = np.concatenate([starts, starts + span])  # two turns of the circle
    steps = np.zeros((draws, len(twice) + 1))
    draw = np.arange(draws)[:, None]
    np.add.at(steps, (draw, np.searchsorted(twice, begin)), 1.0)
    np.add.at(steps, (draw, np.searchsorted(twice, begin + lengths)), -1.0)
    drawn = np.cumsum(steps, axis=1)[:, :-1].reshape(draws, 2, len(starts)).sum(axis=1)
    return np.asarray(drawn[:, np.searchsorted(starts, submit_s)], dtype=np.float64)


def seed_weights(seeds: int, draws: int = DRAWS, seed: int = 0) -> Float64s:
    """Draw seeds with replacement, as many as there are: the share of each seed in each draw, (draws, seeds)."""
    rng = np.random.default_rng([seed, seeds])
    return np.asarray(rng.multinomial(seeds, np.full(seeds, 1.0 / seeds), size=draws) / seeds, dtype=np.float64)


def resampled_means(values: Float64s, starts: Float64s, seeds: Float64s) -> Float64s:
    """Compute the mean of `values` (seeds, settings, n) in every draw: (draws, settings); NaN for an empty draw.

    starts: (draws, n) from `start_weights`; seeds: (draws, seeds) from `seed_weights`.
    """
    count, settings, n = values.shape
    total = starts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (starts @ values.reshape(count * settings, n).T) / total
    return np.asarray(np.einsum("bs,bsk->bk", seeds, means.reshape(-1, count, settings)), dtype=np.float64)


def resampled_percentiles(values: Float64s, starts: Float64s, seeds: Float64s, percents: Sequence[float]) -> Float64s:
    """Compute percentiles of `values` (seeds, n) in every draw: (draws, percents); NaN for an empty draw.

    `percents` are in (0, 100]. The weight of a value is that of its start times that of its seed. The percentile is the
    smallest value such that at least `percent` of the weight is at or below it. `starts` and `seeds` as in
    `resampled_means`.
    """
    order = np.argsort(values, axis=None)
    ordered, shares = values.ravel()[order], np.asarray(percents) / 100.0
    percentiles = np.full((len(starts), len(shares)), np.nan)
    for draw in range(len(starts)):
        weight = np.cumsum(np.outer(seeds[draw], starts[draw]).ravel()[order])
        if weight[-1] > 0.0:  # the factor below allows for rounding of the sum
            percentiles[draw] = ordered[np.searchsorted(weight, shares * weight[-1] * (1.0 - 1e-12))]
    return percentiles


def interval(samples: NDArray[Any], level: float = 0.95) -> list[float] | None:
    """Return [low, high], the percentiles that enclose the central `level` of the draws.

    A draw without the figure is NaN and is ignored. None where more than MISSING_SHARE_ALLOWED of the draws are NaN.
    """
    present = samples[np.isfinite(samples)]
    if len(samples) == 0 or len(present) < (1.0 - MISSING_SHARE_ALLOWED) * len(samples):
        return None
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(present, [tail, 100.0 - tail])
    return [round(float(low), DIGITS), round(float(high), DIGITS)]
