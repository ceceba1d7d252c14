"""Bounds that a new week exceeds by a stated share where it is like the earlier ones, for all features together.

A feature has a distance, or a loss, of each week. Its score is that over the median of the weeks, so that features can
be held against each other. (Divided by their spread as well, one feature that hardly moves sets the bounds of all.) Of
each week the highest score of any feature counts. Earlier weeks and the new one are treated alike. So where weeks are
exchangeable, the new one is as likely as any other to stand at any rank, and it stands above the k-th highest of m
earlier weeks in at most k of m + 1 cases, however many features there are (full conformal prediction; Vovk, Gammerman
and Shafer, Algorithmic Learning in a Random World, 2005, chapter 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHANCE = 0.05  # of a week like the earlier ones to be beyond a bound, where they are enough; else one of all weeks
LEAST_WEEKS = 6  # earlier ones: then one of seven at most
LEAST_ROWS = 20  # of a week that know a feature, or the feature does not count

Float64s = NDArray[np.float64]


class DriftBounds(NamedTuple):
    """What the new week is held to."""

    of: dict[str, float]  # feature -> distance
    chance: float  # share of weeks that exceed any of them, where weeks are exchangeable


def bounds(distances: Mapping[str, Float64s], now_at: int) -> DriftBounds | None:
    """Bounds of all features together, from each one's distances (weeks,) above 0, of which `now_at` is the new week's.

    None where no feature's median distance is above 0; one whose median is 0 has no bound.
    """
    varied = {name: typical for name, one in distances.items() if (typical := float(np.median(one))) > 0}
    if not varied:
        return None
    score = np.stack([distances[name] / typical for name, typical in varied.items()])
    earlier = np.delete(score.max(axis=0), now_at)
    weeks = len(earlier)
    allowed = max(1, int(CHANCE * (weeks + 1)))
    limit = float(np.sort(earlier)[-allowed])
    return DriftBounds({name: limit * typical for name, typical in varied.items()}, allowed / (weeks + 1))
