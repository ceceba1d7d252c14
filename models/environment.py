"""The environment that learners are trained in: when to submit the successor. Outcomes are look-ups in a pair table.

`BatchedPairs` steps many pairs at once; `ProvisioningEnv` is the same for one pair behind Gymnasium's interface.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from features.observe import FEATURES
from models.protocol import PairTable

Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

WAIT, SUBMIT = 0, 1


class Step(NamedTuple):
    """What a batch of b actions led to."""

    rows: Int64s  # (b,) row of the table where each pair now stands; where done, the row it was submitted at
    interruption_h: Float64s  # (b,) at submission, else 0
    overlap_h: Float64s  # (b,)
    done: Bools  # (b,) the successor was submitted


class BatchedPairs:
    """b pairs, each at one of its decisions. Rows, not observations, are handed out: index the table (or what was
    made of it) with them, so that nothing is copied in the loop.

    every: take every so many decisions, counted back from the exact end of P, which is always one of them.
    """

    def __init__(self, table: PairTable, every: int = 1) -> None:
        if not len(table):
            raise ValueError("an environment needs at least one pair")
        if every < 1:
            raise ValueError(f"every {every}; it counts decisions, so at least 1")
        self.table = table
        self.every = every
        self.gap_h = table.gap_h
        self.rows: Int64s = np.empty(0, np.int64)
        self._last: Int64s = np.empty(0, np.int64)

    def decisions(self, pairs: Int64s) -> Int64s:
        """(b,) how many decisions each of the pairs has, thinned."""
        count = self.table.offset[pairs + 1] - self.table.offset[pairs]
        found: Int64s = (count - 1) // self.every + 1
        return found

    def reset(self, pairs: Int64s, left: Int64s | None = None) -> Int64s:
        """Puts b pairs at the decision with `left` more before the last (default: at their first); rows (b,)."""
        most = self.decisions(pairs) - 1
        left = most if left is None else np.clip(left, 0, most)
        self._last = self.table.last[pairs]
        self.rows = self._last - left * self.every
        return self.rows

    def restart(self, where: Bools, pairs: Int64s, left: Int64s) -> Int64s:
        """Replaces the pairs at `where` (b,) by others (`pairs`, `left`: one for each True). Returns rows (b,)."""
        most = self.decisions(pairs) - 1
        self._last[where] = self.table.last[pairs]
        self.rows = self.rows.copy()  # the caller still holds the rows of the last step
        self.rows[where] = self._last[where] - np.clip(left, 0, most) * self.every
        return self.rows

    def step(self, actions: Bools | Int64s) -> Step:
        """Submits where `actions` (b,) holds and where P has ended; elsewhere time passes to the next decision."""
        done = np.asarray(actions, bool) | (self.rows == self._last)
        gap = np.where(done, self.gap_h[self.rows], 0.0)
        self.rows = np.where(done, self.rows, self.rows + self.every)
        return Step(self.rows, np.maximum(gap, 0.0), np.maximum(-gap, 0.0), done)


def every_s(table: PairTable, seconds: int) -> int:
    """Decisions of the table, at least one, that make a step of about so many seconds."""
    apart = np.diff(table.decision_s)[np.diff(table.pair_of) == 0]
    return max(1, round(seconds / float(np.median(apart)))) if len(apart) else 1


def rewards(interruption_h: Any, overlap_h: Any, weight: Any) -> Any:
    """-(interruption + w overlap) / (1 + w): hours, of one scale for all weights of overlap w (it moves no optimum)."""
    return -(interruption_h + weight * overlap_h) / (1.0 + weight)


class ProvisioningEnv(gymnasium.Env[Float32s, np.int64]):
    """One predecessor running under a time limit: at each decision, submit its successor now or wait.

    ## Action space
    `Discrete(2)`: 0 wait until the next decision, 1 submit.

    ## Observation space
    `Box(-inf, inf, (39,), float32)`, the vector of `features.observe` (raw units, not normalised):

    | Num | Observation | Min | Max |
    |---|---|---|---|
    | 0 | remaining_h: until the predecessor's end, h | 0 | limit |
    | 1 | predecessor_elapsed_h, h | 0 | limit |
    | 2 | predecessor_wait_h, h | 0 | Inf |
    | 3 | successor_nodes, nodes | 1 | capacity |
    | 4 | successor_limit_h, h | 0 | Inf |
    | 5-6 | capacity_nodes, free_nodes, nodes | 0 | Inf |
    | 7-8 | pending_jobs, pending_nodes | 0 | Inf |
    | 9 | pending_node_h: nodes x limit, node-h | 0 | Inf |
    | 10 | pending_widest_nodes, nodes | 0 | Inf |
    | 11-13 | pending_age_max_h, pending_age_mean_h, pending_limit_mean_h, h | 0 | Inf |
    | 14 | running_jobs | 0 | Inf |
    | 15 | running_node_h: nodes x time left to the limit, node-h | 0 | Inf |
    | 16 | running_elapsed_mean_h, h | 0 | Inf |
    | 17-18 | release_1h_nodes, release_4h_nodes: given back by then by limits, nodes | 0 | capacity |
    | 19-20 | release_12h_nodes, release_24h_nodes | 0 | capacity |
    | 21 | start_estimate_h: wait if submitted now, by limits, h | 0 | 240 |
    | 22 | start_estimate_gap_h: that minus remaining_h, h | -limit | 240 |
    | 23-24 | start_estimate_expected_h, start_estimate_idle_h, h | 0 | 240 |
    | 25-26 | recent_wait_mean_h, recent_wait_p50_h: of the last 100 jobs started, h | 0 | Inf |
    | 27-29 | recent_wait_p90_h, recent_wait_max_h, recent_wide_wait_mean_h, h | 0 | Inf |
    | 30 | started_6h_jobs | 0 | 100 |
    | 31-33 | arrived_1h_node_h, arrived_6h_node_h, arrived_24h_node_h, node-h | 0 | Inf |
    | 34 | limit_use_mean: run time over limit | 0 | Inf |
    | 35-38 | hour_sin, hour_cos, weekday_sin, weekday_cos | -1 | 1 |

    ## Rewards
    0 while waiting; at submission -(interruption_h + w overlap_h) / (1 + w), hours (`weight` is w).

    ## Starting state
    A pair drawn uniformly from the table, at its first decision; or `options={"pair": i}`.

    ## Episode end
    Terminated when the successor is submitted; at the predecessor's exact end either action submits. Never truncated.
    `info` then holds `interruption_h` and `overlap_h`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(self, table: PairTable, *, weight: float = 1.0, every: int = 1) -> None:
        if not weight > 0:
            raise ValueError(f"weight of overlap {weight}; it must be positive")
        self.weight = weight
        self.pairs = BatchedPairs(table, every)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(FEATURES),), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32s, dict[str, Any]]:
        """At the first decision of a pair."""
        super().reset(seed=seed)
        pair = (options or {}).get("pair")
        chosen = int(self.np_random.integers(len(self.pairs.table))) if pair is None else int(pair)
        rows = self.pairs.reset(np.asarray([chosen], np.int64))
        return self._observe(rows), {"pair": chosen}

    def step(self, action: np.int64) -> tuple[Float32s, float, bool, bool, dict[str, Any]]:
        """Wait (0) or submit (1)."""
        after = self.pairs.step(np.asarray([int(action) == SUBMIT]))
        interruption, overlap, done = float(after.interruption_h[0]), float(after.overlap_h[0]), bool(after.done[0])
        info = {"interruption_h": interruption, "overlap_h": overlap} if done else {}
        return self._observe(after.rows), float(rewards(interruption, overlap, self.weight)), done, False, info

    def _observe(self, rows: Int64s) -> Float32s:
        found: Float32s = self.pairs.table.observations[rows[0]].copy()
        return found
