"""Random snapshots of a cluster, with what lies on the edge of a definition more often than chance would have it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.snapshot import NO_LIMIT, Snapshot

HOUR, DAY = 3600, 86400
SHARES = (0.0, 0.25, 0.5, 1.0)  # of a limit: elapsed of running jobs, and used by ended ones


def random_snapshot(seed: int, most_pending: int = 25) -> Snapshot:
    """Each list empty, short or long; overdue jobs, arrivals in the future, ages and times left of exactly 1, 4, 6, 12
    and 24 h, shares of limits that are alike; more running than in service; limits on users or none.

    Over 50 lines: a snapshot has many fields, each on a line of its own.
    """
    rng = np.random.default_rng(seed)
    now, capacity = 1_600_000_000 + int(rng.integers(0, 10**7)), int(rng.integers(1, 60))
    pending = int(rng.choice([0, 1, 8, most_pending]))
    running, recent, ended, arrived = (int(rng.choice([0, 1, 10, 30])) for _ in range(4))

    def nodes(count: int) -> NDArray[np.int64]:
        return rng.integers(1, max(2, capacity // 4 + 2), count)

    def limits(count: int) -> NDArray[np.int64]:
        return rng.choice([600, HOUR, 2 * HOUR, 8 * HOUR, DAY, 2 * DAY], count)

    def ages(count: int, most_s: int) -> NDArray[np.int64]:
        exact = rng.choice([0, HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY], count)
        return np.where(rng.random(count) < 0.5, exact, rng.integers(-HOUR, most_s, count))

    limit_s = limits(running)
    shares = np.where(rng.random(running) < 0.5, rng.choice(SHARES, running), rng.random(running) * 1.1)
    by_left = limit_s - rng.choice([HOUR, 4 * HOUR, 12 * HOUR, DAY], running)
    elapsed_s = np.where((rng.random(running) < 0.3) & (by_left >= 0), by_left, np.rint(shares * limit_s))
    start = now - int(rng.integers(0, 2 * DAY))
    used = np.where(rng.random(ended) < 0.5, rng.choice(SHARES[1:], ended), rng.random(ended))
    return Snapshot(
        now_s=now,
        capacity=capacity,
        usable=int(rng.integers(1, capacity + 1)) if seed % 2 else capacity,
        pending_nodes=nodes(pending),
        pending_limit_s=limits(pending),
        pending_submit_s=now - rng.integers(0, 6 * DAY, pending),
        pending_held=rng.integers(0, 2, pending) * (rng.random(pending) < 0.4),
        pending_user=rng.integers(0, 4, pending),
        running_nodes=nodes(running),
        running_limit_s=limit_s,
        running_start_s=now - elapsed_s.astype(np.int64),
        running_user=rng.integers(0, 4, running),
        recent_start_s=now - ages(recent, 2 * DAY),
        recent_wait_s=rng.integers(0, 4 * DAY, recent),
        recent_nodes=nodes(recent),
        ended_use=used,
        arrived_submit_s=now - ages(arrived, DAY + HOUR),
        arrived_node_s=nodes(arrived) * limits(arrived),
        predecessor_start_s=start,
        predecessor_wait_s=int(rng.integers(0, DAY)),
        predecessor_end_s=start + 2 * DAY,
        successor_nodes=int(rng.integers(1, capacity + 2)),
        successor_limit_s=int(rng.choice([HOUR, 8 * HOUR, 2 * DAY])),
        successor_user=int(rng.integers(0, 4)),
        successor_place=int(rng.integers(0, pending + 1)),
        user_max_jobs=int(rng.choice([1, 3, 8, NO_LIMIT])),
        user_max_nodes=int(rng.choice([2, 10, 50, NO_LIMIT])),
    )
