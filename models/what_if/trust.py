"""How far to trust a replay: intervals of differences, the base's distance from the record, and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from features.bootstrap import BLOCK_S, interval, resampled_percentiles, start_weights
from features.conventions import BLOCK_DAYS
from traces.arrays import Float64s, Int64s

MOST_OFF = 0.25  # share by which the base's mean wait may be off; beyond it only directions count
LEAST_RHO = 0.6  # Spearman's rho of the base's waits with the recorded ones
WAITS = ("mean_wait_s", "median_wait_s", "p90_wait_s", "p95_wait_s")
QUANTILES = {"median_wait_s": 50.0, "p90_wait_s": 90.0, "p95_wait_s": 95.0}  # figure of WAITS: percent
QUANTILE_DRAWS = 300
CANNOT_TELL, LESS, MORE, SAME = "cannot tell", "less", "more", "no change"  # verdicts


def mean_interval(values: Int64s | Float64s, submit_s: Int64s, block_s: int = BLOCK_S) -> list[float] | None:
    """Return the 95 % interval of the mean of `values` (jobs,), by drawing blocks of 7 days (`block_s`) of submissions.

    Days (sevenths of a block), not jobs, are drawn (a ratio of sums), which keeps the draws small on any trace. None
    within one block.
    """
    day_s = block_s // BLOCK_DAYS
    days, where = np.unique(submit_s // day_s, return_inverse=True)
    weights = start_weights(days * day_s, block_s=block_s)
    if weights is None:
        return None
    sums = np.bincount(where, weights=values).astype(np.float64)
    counts = np.bincount(where).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return interval((weights @ sums) / (weights @ counts))


def quantile_intervals(
    before_s: Float64s, after_s: Float64s, submit_s: Int64s, percents: Sequence[float], block_s: int = BLOCK_S
) -> list[list[float] | None]:
    """95 % intervals of the differences of percentiles, `after_s` less `before_s` of the same jobs, (jobs,) each.

    Blocks are those of `mean_interval`. None within one block.
    """
    day_s = block_s // BLOCK_DAYS
    days, where = np.unique(submit_s // day_s, return_inverse=True)
    weights = start_weights(days * day_s, QUANTILE_DRAWS, block_s=block_s)
    if weights is None:
        return [None] * len(percents)
    drawn, once = weights[:, where], np.ones((len(weights), 1))
    after, before = (resampled_percentiles(values[None], drawn, once, percents) for values in (after_s, before_s))
    return [interval(column) for column in (after - before).T]


def waits(wait_s: Float64s) -> dict[str, float | None]:
    """Return the mean, median, 90th and 95th percentile of waits, s, under the names of WAITS; None without jobs."""
    if not len(wait_s):
        return dict.fromkeys(WAITS)
    median, p90, p95 = np.quantile(wait_s, [0.5, 0.9, 0.95])
    return dict(zip(WAITS, (float(wait_s.mean()), float(median), float(p90), float(p95)), strict=True))


def trust(recorded_mean_s: float | None, replayed_mean_s: float | None, rho: float | None) -> dict[str, str]:
    """Say how far to trust differences and why: `figures`; `direction` for a base far from the record; `unknown`."""
    if recorded_mean_s is None or replayed_mean_s is None:
        return {"level": "unknown", "why": "the log holds no waits to compare the base with"}
    off = abs(replayed_mean_s - recorded_mean_s) / max(recorded_mean_s, 1.0)
    why = f"the base's mean wait is off by {100 * off:,.0f} %"
    why += ", and all its waits are equal" if rho is None else f" and Spearman's rho of its waits is {rho:.2f}"
    is_close = off <= MOST_OFF and rho is not None and rho >= LEAST_RHO
    return {"level": "figures" if is_close else "direction", "why": why}


def verdict(difference: float, ci95: list[float] | None, error: float, *, is_sampled: bool) -> str:
    """Say whether a difference is one that the replay can tell, and its direction.

    It cannot tell a difference smaller than the base's own `error` in the figure. If the figure varies with the jobs
    that happened to be submitted (`is_sampled`), it cannot if the interval includes 0 or is unknown.
    """
    if difference == 0.0 and (ci95 is None or ci95[0] == ci95[1]):
        return SAME
    is_unsure = is_sampled and (ci95 is None or ci95[0] <= 0.0 <= ci95[1])
    if is_unsure or abs(difference) < error:
        return CANNOT_TELL
    return LESS if difference < 0.0 else MORE
