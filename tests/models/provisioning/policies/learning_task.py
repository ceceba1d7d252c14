"""A small task for every learner: the wait is half as long again as its estimate, or a quarter of it, in plain sight.

Where nodes are free, and so the estimate of an idle queue is nothing, the successor starts after a quarter of the
estimate, else after half as long again. No rule that scales the estimate does well on both, and a learner that does not
learn does no better than such a rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agent.artifact import Artifact
from features.observe import FEATURES
from models.provisioning.comparison.outcomes import cost_h
from models.provisioning.protocol import NONE, PairTable

STEP_S = 600
LIMIT_H = 8
FIRST_S = 1_600_000_000


def table(seed: int = 0, pairs: int = 64) -> PairTable:
    """Pairs of the task, one wait each whenever the successor is submitted."""
    rng = np.random.default_rng(seed)
    per_pair = LIMIT_H * 6 + 1
    estimate_h = rng.integers(2, 20, pairs) * 0.2
    free_nodes = np.where(np.arange(pairs) % 2, 40.0, 0.0)
    wait_s = np.rint(np.where(free_nodes > 0, 0.25, 1.5) * estimate_h * 3600).astype(np.int64)
    elapsed_h = np.arange(per_pair) / 6
    observations = np.zeros((pairs, per_pair, len(FEATURES)), np.float32)
    shown: dict[str, Any] = {
        "remaining_h": np.broadcast_to(LIMIT_H - elapsed_h, (pairs, per_pair)),
        "successor_nodes": 1.0,
        "free_nodes": free_nodes[:, None],
        **{f"start_estimate{kind}_h": estimate_h[:, None] for kind in ("", "_expected")},
        "start_estimate_idle_h": np.where(free_nodes > 0, 0.0, estimate_h)[:, None],
        "start_estimate_gap_h": estimate_h[:, None] - (LIMIT_H - elapsed_h),
        "recent_wait_mean_h": 1.0,
    }
    for name, values in shown.items():
        observations[:, :, FEATURES.index(name)] = values
    begin = FIRST_S + np.arange(pairs, dtype=np.int64) * 14_400
    decision = begin[:, None] + np.arange(per_pair) * STEP_S
    return PairTable(
        pair_nodes=np.ones(pairs, np.int64),
        limit_s=np.full(pairs, LIMIT_H * 3600, np.int64),
        submit_s=begin,
        predecessor_start_s=begin,
        predecessor_end_s=begin + LIMIT_H * 3600,
        user_start_s=np.full(pairs, NONE),
        offset=np.arange(pairs + 1, dtype=np.int64) * per_pair,
        decision_s=decision.ravel(),
        successor_start_s=(decision + wait_s[:, None]).ravel(),
        observations=observations.reshape(-1, len(FEATURES)),
    )


def shuffled(pairs: PairTable, seed: int = 5) -> PairTable:
    """The same observations with the waits of other pairs: nothing can be learned but their spread."""
    wait_s = (pairs.successor_start_s - pairs.decision_s).reshape(len(pairs), -1)
    other = np.random.default_rng(seed).permutation(wait_s).ravel()
    return PairTable(**{**pairs.__dict__, "successor_start_s": pairs.decision_s + other})


def lost_h(artifact: Artifact, setting: float = 1.0) -> float:
    """Mean interruption plus overlap on pairs of the task that no fit has seen, hours."""
    return float(cost_h(table(seed=9), artifact.with_setting(setting)).mean())
