"""Generated pair tables: a queue whose backlog drains at one hour an hour and is filled by bursts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.observe import FEATURES
from models.provisioning.protocol import NONE, PairTable

STEP_S = 600


def backlog_h(rng: np.random.Generator, steps: int) -> NDArray[np.float64]:
    """Hours until the work in the queue is done, every 10 minutes (Lindley's recursion with bursts of arrivals)."""
    bursts = np.where(rng.random(steps) < 0.004, rng.lognormal(1.5, 0.8, steps), 0.0)
    trickle = rng.exponential(0.13, steps)
    found = np.zeros(steps)
    for t in range(1, steps):
        found[t] = max(0.0, found[t - 1] - STEP_S / 3600) + (bursts[t] + trickle[t] if found[t - 1] < 30 else 0.0)
    return np.maximum(found - 0.5, 0.0)


def queue_table(seed: int = 0, starts: int = 120, limit_h: int = 24, sizes: tuple[int, ...] = (1, 8)) -> PairTable:
    """Pairs every 4 h, with a start estimate that is near the truth and a recent mean wait that is late and noisy."""
    rng = np.random.default_rng(seed)
    per_pair = limit_h * 6 + 1
    steps = (starts * 4 + limit_h) * 6 + 400
    wait = {1: backlog_h(rng, steps)}
    wait[8] = 1.3 * wait[1]
    base, nodes, submit, offset, decision, start, observed = 1_600_000_000, [], [], [0], [], [], []
    for size in sizes:
        late = np.convolve(wait[size], np.full(144, 1 / 144))[:steps]
        estimate = wait[size] * 1.5 * rng.lognormal(0, 0.25, steps)
        expected = wait[size] * 0.8 * rng.lognormal(0, 0.3, steps)
        recent = late * rng.lognormal(0, 0.3, steps)
        for i in range(starts):
            at = 200 + i * 24 + np.arange(per_pair)
            now = base + at * STEP_S
            row = np.abs(rng.normal(size=(per_pair, len(FEATURES))))
            elapsed = np.arange(per_pair) / 6
            filled = {
                "remaining_h": limit_h - elapsed,
                "predecessor_elapsed_h": elapsed,
                "successor_nodes": float(size),
                "successor_limit_h": float(limit_h),
                "capacity_nodes": 80.0,
                "pending_node_h": 80 * wait[size][at] * rng.lognormal(0, 0.4, per_pair),
                "start_estimate_h": estimate[at],
                "start_estimate_gap_h": estimate[at] - (limit_h - elapsed),
                "start_estimate_expected_h": expected[at],
                "recent_wait_mean_h": recent[at],
            }
            for name, values in filled.items():
                row[:, FEATURES.index(name)] = values
            nodes.append(size)
            submit.append(now[0])
            offset.append(offset[-1] + per_pair)
            decision.append(now)
            start.append(now + np.rint(wait[size][at] * 3600).astype(np.int64))
            observed.append(row.astype(np.float32))
    submitted, of_both_s = np.asarray(submit, np.int64), limit_h * 3600
    return PairTable(
        pair_nodes=np.asarray(nodes, np.int64),
        limit_s=np.full(len(nodes), of_both_s, np.int64),
        submit_s=submitted,
        predecessor_start_s=submitted,
        predecessor_end_s=submitted + of_both_s,
        user_start_s=np.full(len(nodes), NONE),
        offset=np.asarray(offset, np.int64),
        decision_s=np.concatenate(decision),
        successor_start_s=np.concatenate(start),
        observations=np.concatenate(observed),
    )


def identity_table(seed: int = 0, pairs: int = 64, limit_h: int = 8) -> PairTable:
    """The identity environment of this problem: one wait a pair, in plain sight, so that no hour need be lost."""
    rng = np.random.default_rng(seed)
    per_pair = limit_h * 6 + 1
    wait_h = rng.integers(0, limit_h, pairs).astype(np.float64)
    begin = 1_600_000_000 + np.arange(pairs, dtype=np.int64) * 14400
    elapsed = np.arange(per_pair) / 6
    observations = np.zeros((pairs, per_pair, len(FEATURES)), np.float32)
    observations[:, :, FEATURES.index("remaining_h")] = limit_h - elapsed
    for name in ("start_estimate_h", "start_estimate_expected_h"):
        observations[:, :, FEATURES.index(name)] = wait_h[:, None]
    observations[:, :, FEATURES.index("start_estimate_gap_h")] = wait_h[:, None] - (limit_h - elapsed)
    decision = begin[:, None] + np.arange(per_pair) * STEP_S
    return PairTable(
        pair_nodes=np.ones(pairs, np.int64),
        limit_s=np.full(pairs, limit_h * 3600, np.int64),
        submit_s=begin,
        predecessor_start_s=begin,
        predecessor_end_s=begin + limit_h * 3600,
        user_start_s=np.full(pairs, NONE),
        offset=np.arange(pairs + 1, dtype=np.int64) * per_pair,
        decision_s=decision.ravel(),
        successor_start_s=(decision + (wait_h[:, None] * 3600).astype(np.int64)).ravel(),
        observations=observations.reshape(-1, len(FEATURES)),
    )
