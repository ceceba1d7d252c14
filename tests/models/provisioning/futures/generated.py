"""A generated record of four nodes, on which futures are played."""

from __future__ import annotations

import numpy as np

from simulator.recorded.record import RecordedTrace

HOUR, DAY = 3600, 86400
FIRST_S = 1_672_617_600  # a Monday


def busy(seed: int = 0, days: int = 36) -> RecordedTrace:
    """Jobs of four users, each with two scripts, one after the other on four nodes: first come, first served."""
    rng = np.random.default_rng(seed)
    count = 8 * days
    submit_s = FIRST_S + np.sort(rng.integers(0, days * DAY, count))
    user, name, size = rng.integers(0, 4, count), rng.integers(0, 2, count), rng.integers(1, 3, count)
    limit_s = np.where(name == 0, 4 * HOUR, 12 * HOUR)
    run_s = np.where(name == 0, rng.integers(600, 4 * HOUR, count), 12 * HOUR)
    free_s, start_s = np.zeros(4), np.zeros(count, np.int64)
    for job in range(count):
        nodes = np.argsort(free_s)[: size[job]]
        start_s[job] = max(submit_s[job], int(free_s[nodes].max()), start_s[job - 1] if job else 0)
        free_s[nodes] = start_s[job] + run_s[job]
    keys = [str(job) for job in range(count)]
    return RecordedTrace(submit_s, start_s, start_s + run_s, size, limit_s, user, 0 * user, keys, name + 2 * user)
