"""Where the learners' episodes start: at random decisions, most of them where the choice is close."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.observe import AT
from models.batched_pairs import BatchedPairs

Int64s = NDArray[np.int64]
ESTIMATE = AT.start_estimate_expected_h
REMAINING = AT.remaining_h


class ExploringStarts:
    """Draws decisions of an environment's table.

    The weight of a decision is floor + exp(-|log((1 h + estimated wait) / (1 h + remaining time))| / width): a queue is
    empty most of the time, and hours before the end there is nothing to learn for a pair whose successor would start
    at once. Weights depend on what is observed at that decision alone, so no expectation given the state is bent.
    """

    def __init__(self, env: BatchedPairs, floor: float = 0.05, width: float = 0.5) -> None:
        table = env.table
        remaining = table.last[table.pair_of] - np.arange(len(table.decision_s))
        self.rows: Int64s = np.flatnonzero(remaining % env.every == 0)
        self.pair: Int64s = table.pair_of[self.rows]
        self.remaining: Int64s = remaining[self.rows] // env.every
        seen = np.maximum(table.observations[self.rows].astype(np.float64), 0.0)
        distance = np.abs(np.log1p(seen[:, ESTIMATE]) - np.log1p(seen[:, REMAINING]))
        # an estimate of nothing is always near at the end, where there is no choice left
        near = np.where(seen[:, ESTIMATE] > 0, np.exp(-distance / width), 0.0)
        self.until = np.cumsum(floor + near)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Int64s, Int64s]:
        """(count,) pairs to play, and how many decisions each has left after the one that it starts at."""
        at = np.searchsorted(self.until, rng.random(count) * self.until[-1], side="right")
        at = np.minimum(at, len(self.until) - 1)
        return self.pair[at], self.remaining[at]
