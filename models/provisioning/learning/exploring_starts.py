"""Draw the starts of the learners' episodes: random decisions, mostly where the choice is close."""

from __future__ import annotations

import numpy as np

from features.observe import AT
from models.provisioning.batched_pairs import BatchedPairs
from traces.arrays import Int64s

ESTIMATE = AT.start_estimate_expected_h
REMAINING = AT.remaining_h


class ExploringStarts:
    """Draws decisions of an environment's table.

    The weight of a decision is floor + exp(-|log((1 h + estimated wait) / (1 h + remaining time))| / width). A queue is
    empty most of the time, and hours before the end a pair whose successor would start at once teaches nothing. Weights
    depend only on the observation at that decision, so no expectation given the state is biased.
    """

    def __init__(self, env: BatchedPairs, floor: float = 0.05, width: float = 0.5) -> None:
        table = env.table
        remaining = table.last[table.pair_of] - np.arange(len(table.decision_s))
        self.rows: Int64s = np.flatnonzero(remaining % env.every == 0)
        self.pair: Int64s = table.pair_of[self.rows]
        self.remaining: Int64s = remaining[self.rows] // env.every
        seen = np.maximum(table.observations[self.rows].astype(np.float64), 0.0)
        distance = np.abs(np.log1p(seen[:, ESTIMATE]) - np.log1p(seen[:, REMAINING]))
        # an estimate of zero is always near at the end, where no choice is left
        near = np.where(seen[:, ESTIMATE] > 0, np.exp(-distance / width), 0.0)
        self.until = np.cumsum(floor + near)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Int64s, Int64s]:
        """(count,) pairs to play, and the number of decisions that each has left after its first."""
        at = np.searchsorted(self.until, rng.random(count) * self.until[-1], side="right")
        at = np.minimum(at, len(self.until) - 1)
        return self.pair[at], self.remaining[at]
