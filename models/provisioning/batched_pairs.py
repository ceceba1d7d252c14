"""Play many pairs at once. Outcomes are look-ups in a pair table.

Each pair is at one of its decisions. An action submits its successor, or waits until the next decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from features.conventions import interruption_h, overlap_h
from models.provisioning.protocol import PairTable
from traces.arrays import Bools, Float64s, Int64s


class Step(NamedTuple):
    """The result of a batch of b actions."""

    rows: Int64s  # (b,) row of the table where each pair is now; where done, the row at which it was submitted
    interruption_h: Float64s  # (b,) at submission, else 0
    overlap_h: Float64s  # (b,)
    done: Bools  # (b,) the successor was submitted


class BatchedPairs:
    """b pairs, each at one of its decisions.

    The methods return rows, not observations: use them to index the table, or an array derived from it. So the loop
    copies nothing.

    every: use only every so many decisions, counted back from the exact end of P, which is always one of them.
    """

    def __init__(self, table: PairTable, every: int = 1) -> None:
        if not len(table):
            raise ValueError("no pairs; an environment needs at least one")
        if every < 1:
            raise ValueError(f"every={every}; it counts decisions, so it must be at least 1")
        self.table = table
        self.every = every
        self.gap_h = table.gap_h
        self.rows: Int64s = np.empty(0, np.int64)
        self._last: Int64s = np.empty(0, np.int64)

    def decisions(self, pairs: Int64s) -> Int64s:
        """(b,) the number of decisions of each pair, after thinning."""
        count = self.table.offset[pairs + 1] - self.table.offset[pairs]
        thinned: Int64s = (count - 1) // self.every + 1
        return thinned

    def reset(self, pairs: Int64s, remaining: Int64s | None = None) -> Int64s:
        """Put b pairs at the decision with `remaining` more after it (default: the first). Returns rows (b,)."""
        most = self.decisions(pairs) - 1
        remaining = most if remaining is None else np.clip(remaining, 0, most)
        self._last = self.table.last[pairs]
        self.rows = self._last - remaining * self.every
        return self.rows

    def restart(self, where: Bools, pairs: Int64s, remaining: Int64s) -> Int64s:
        """Replace the pairs at `where` (b,) by others (`pairs`, `remaining`: one per True). Returns rows (b,)."""
        most = self.decisions(pairs) - 1
        self._last[where] = self.table.last[pairs]
        self.rows = self.rows.copy()  # the caller still holds the rows of the last step
        self.rows[where] = self._last[where] - np.clip(remaining, 0, most) * self.every
        return self.rows

    def step(self, actions: Bools | Int64s) -> Step:
        """Submit where `actions` (b,) holds and where P has ended; elsewhere wait until the next decision."""
        done = np.asarray(actions, bool) | (self.rows == self._last)
        gap = np.where(done, self.gap_h[self.rows], 0.0)
        self.rows = np.where(done, self.rows, self.rows + self.every)
        return Step(self.rows, interruption_h(gap), overlap_h(gap), done)


def rewards(interruption_h: Any, overlap_h: Any, weight: Any) -> Any:
    """-(interruption + w overlap) / (1 + w), hours. Dividing by 1 + w puts all weights of overlap w on one scale."""
    return -(interruption_h + weight * overlap_h) / (1.0 + weight)
