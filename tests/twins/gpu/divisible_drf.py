"""Dominant resource fairness for work that can be divided: the rule behind the policy `drf`, and what it promises.

Ghodsi et al., "Dominant resource fairness: Fair allocation of multiple resource types" (NSDI 2011), section 4.1: shares
of the dominant resource grow together; who needs a resource that is used up stops growing. With divisible tasks the
outcome gives everybody at least an equal share, makes nobody want another's, and wastes nothing (section 5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NOTHING = 1e-12


def progressive_filling(demands: Floats, capacity: Floats) -> Floats:
    """Tasks of each user, (users,), for `demands` (users, resources) a task and `capacity` (resources,), all above 0.

    Each user must need some resource. A demand of 0 is allowed.
    """
    share_a_task = (demands / capacity).max(axis=1)
    rate = demands / share_a_task[:, None]  # of each resource, while the dominant share grows by 1
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
