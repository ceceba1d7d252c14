"""The fitted distribution of boosting as arrays, for release and for prediction. Needs only numpy.

A part holds the trees of one fit, with several classes a round. The score of a class is its starting score, by the
start estimate, plus the sum of its trees. The probability of a class is spread over its representative waits. The
quantiles of the parts are averaged level by level (Vincent, 1912, as in Ratcliff, Psychological Bulletin 86(3), 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.distribution import Waits, of_bins
from agent.trees import TreeEnsemble
from models.queue_time.protocol import LEVELS, Forecast, Rows, forecast_of
from traces.arrays import Float32s, Float64s, Int64s

BASE_CUTS_H = (1 / 360, 1 / 6, 1.0, 3.0, 6.0, 12.0, 24.0)  # classes of the start estimate
BLOCK_ROWS = 2048


def base_class(base_h: NDArray[Any]) -> Int64s:
    """(n,) the class of each start estimate."""
    return np.searchsorted(BASE_CUTS_H, np.asarray(base_h, np.float64)).astype(np.int64)


@dataclass(frozen=True)
class BoostedPart:
    """One fit. Trees in the layout of `models.provisioning.learning.trees.flatten`; none if there is a single class."""

    points: Float64s  # (classes x points of a class,) log(1 + s); if `relative`, less that of the start estimate
    start: Float64s  # (classes of estimates, classes) scores before any tree
    relative: bool
    trees: dict[str, NDArray[Any]]
    of_class: Int64s  # (trees,) the class that each tree scores

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.start.shape[1])

    @cached_property
    def forest(self) -> TreeEnsemble:
        """The trees, ready to evaluate."""
        return TreeEnsemble(self.trees)

    def scores(self, observed: Float32s, kind: Int64s) -> Float64s:
        """(n, classes) scores of observations (n, F) whose start estimates have class `kind` (n,)."""
        if not self.trees:
            return self.start[kind]
        return self.start[kind] + self.forest.sums(observed, self.of_class, np.zeros((len(observed), self.classes)))


@dataclass(frozen=True)
class BoostedDistribution:
    """A fitted distribution of the wait."""

    parts: tuple[BoostedPart, ...]
    base_column: int  # of the start estimate, h
    longest_s: float  # longest wait of the fit; forecasts are at most twice as long
    features: tuple[str, ...]

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the waits of jobs at their submission."""
        return self.of(rows.observed)

    def of(self, observed: Float32s) -> Forecast:
        """Forecast from observations (n, len(features)) float32."""
        quantiles = np.zeros((len(observed), len(LEVELS)))
        short = np.zeros(len(observed))
        for begin in range(0, len(observed), BLOCK_ROWS):
            block = slice(begin, begin + BLOCK_ROWS)
            for part in self.parts:
                q, p = self._of_part(part, observed[block])
                quantiles[block] += q / len(self.parts)
                short[block] += p / len(self.parts)
        return forecast_of(np.minimum(quantiles, 2 * self.longest_s), short)

    def _of_part(self, part: BoostedPart, observed: Float32s) -> Waits:
        base_h = observed[:, self.base_column].astype(np.float64)
        score = part.scores(observed, base_class(base_h))
        base = np.log1p(np.maximum(base_h, 0.0) * 3600.0) if part.relative else np.zeros(len(observed))
        return of_bins(score, part.points, base, self.longest_s)
