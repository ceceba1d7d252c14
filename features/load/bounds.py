"""Joint drift bounds for all features, which a new week that is like the earlier ones exceeds with a known probability.

Each feature has a distance, or a loss, per week. Its score is that value over its median across weeks, which makes
features comparable. (Dividing by the spread as well lets one feature that hardly moves set the bounds of all.) A week
counts with its highest score over all features. Earlier weeks and the new one are treated the same way. If weeks are
exchangeable, every rank of the new week is equally likely. The new week then exceeds the k-th highest of m earlier
weeks in at most k of m + 1 cases, for any number of features (full conformal prediction; Vovk, Gammerman and Shafer,
Algorithmic Learning in a Random World, 2005, chapter 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from traces.arrays import Float64s

# Probability that a week like the earlier ones exceeds a bound; 1 / (weeks + 1) where there are too few for that.
CHANCE = 0.05
LEAST_WEEKS = 6  # earlier weeks required; the probability is then at most 1 / 7
LEAST_ROWS = 20  # known values required per week, or the feature is ignored


class DriftBounds(NamedTuple):
    """Bounds for the new week."""

    of: dict[str, float]  # feature -> largest allowed distance
    chance: float  # share of weeks that exceed any of them, where weeks are exchangeable


def bounds(distances: Mapping[str, Float64s], now_at: int) -> DriftBounds | None:
    """Compute joint bounds from the distances of each feature, (weeks,); `now_at` is the index of the new week.

    A feature with a median distance of 0 has no bound. None if every median is 0.
    """
    medians = {name: median for name, values in distances.items() if (median := float(np.median(values))) > 0}
    if not medians:
        return None
    score = np.stack([distances[name] / median for name, median in medians.items()])
    earlier = np.delete(score.max(axis=0), now_at)
    weeks = len(earlier)
    allowed = max(1, int(CHANCE * (weeks + 1)))
    limit = float(np.sort(earlier)[-allowed])
    return DriftBounds({name: limit * median for name, median in medians.items()}, allowed / (weeks + 1))
