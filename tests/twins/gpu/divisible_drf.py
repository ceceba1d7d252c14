"""Dominant resource fairness for divisible tasks: the rule behind the policy `drf`, with its guarantees.

Ghodsi et al., "Dominant resource fairness: Fair allocation of multiple resource types" (NSDI 2011), section 4.1: the
shares of the dominant resource grow together, and a user who needs an exhausted resource stops growing. With divisible
tasks every user gets at least an equal share, no user prefers another's allocation, and nothing is wasted (section 5).
"""

from __future__ import annotations

import numpy as np

from traces.arrays import Float64s

_NOTHING = 1e-12


def progressive_filling(demands: Float64s, capacity: Float64s) -> Float64s:
    """Return the tasks of each user, (users,), for `demands` (users, resources) per task and `capacity` (resources,).

    Capacities are above 0. Each user must need at least one resource; a demand of 0 is allowed.
    """
    share_a_task = (demands / capacity).max(axis=1)
    rate = demands / share_a_task[:, None]  # use of each resource per unit of dominant share
    share = np.zeros(len(demands))
    grows = np.ones(len(demands), dtype=np.bool_)
    left = capacity.astype(np.float64)
    while grows.any():
        used = rate[grows].sum(axis=0)
        needed = used > _NOTHING
        step = float((left[needed] / used[needed]).min())
        share[grows] += step
        left = left - step * used
        is_empty = left <= _NOTHING * capacity
        grows &= ~(demands[:, is_empty] > 0.0).any(axis=1)
    return np.asarray(share / share_a_task, dtype=np.float64)
