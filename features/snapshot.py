"""What anyone may see of a cluster at an instant, in arrays: what simulated worlds and a live agent alike observe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

NO_LIMIT = 1_000_000  # jobs or nodes that a user may hold where nothing limits them


class Snapshot(NamedTuple):
    """The visible state of a cluster at one instant. Times are epoch seconds, sizes whole nodes, arrays int64.

    Everything here is in `squeue`, `sinfo` and `sacct` at that instant; nothing is learned later.
    """

    now_s: int
    capacity: int  # nodes of the cluster
    usable: int  # those in service
    pending_nodes: Int64s  # (pending,) in queue order, first to start first
    pending_limit_s: Int64s
    pending_submit_s: Int64s
    pending_held: Int64s  # 1: held by something other than the queue (squeue's Reason); 0
    pending_user: Int64s  # numbers of users
    running_nodes: Int64s  # (running,) in any order, the predecessor included
    running_limit_s: Int64s
    running_start_s: Int64s
    running_user: Int64s  # numbers of users
    recent_start_s: Int64s  # (up to RECENT,) jobs that started last, in any order
    recent_wait_s: Int64s
    recent_nodes: Int64s
    ended_use: Float64s  # (up to RECENT,) run time over limit of the jobs that ended last
    arrived_submit_s: Int64s  # (jobs submitted in the last 24 h,)
    arrived_node_s: Int64s  # their nodes x limit
    predecessor_start_s: int
    predecessor_wait_s: int
    predecessor_end_s: int
    successor_nodes: int
    successor_limit_s: int
    successor_user: int
    successor_place: int  # pending jobs that would go ahead of it, if it were submitted now
    user_max_jobs: int  # running jobs that a user may have; NO_LIMIT
    user_max_nodes: int  # nodes that a user may hold, but for a single job that is wider; NO_LIMIT
