"""The publicly visible state of a cluster at one instant, in arrays. Simulated worlds and the live agent build it."""

from __future__ import annotations

from typing import Any, NamedTuple

from traces.arrays import Float64s, Int64s

NO_LIMIT = 1_000_000  # jobs or nodes that a user may hold where no limit is set


class Snapshot(NamedTuple):
    """The visible state of a cluster at one instant. Times are epoch seconds, sizes whole nodes, arrays int64.

    All of it is available from `squeue`, `sinfo` and `sacct` at that instant; nothing comes from later.
    """

    now_s: int
    capacity: int  # nodes of the cluster
    usable: int  # nodes in service
    pending_nodes: Int64s  # (pending,) in queue order, first to start first
    pending_limit_s: Int64s
    pending_submit_s: Int64s
    pending_held: Int64s  # 1 if held by something other than the queue (squeue's Reason), else 0
    pending_user: Int64s  # numbers of users
    running_nodes: Int64s  # (running,) in any order, the predecessor included
    running_limit_s: Int64s
    running_start_s: Int64s
    running_user: Int64s  # numbers of users
    recent_start_s: Int64s  # (up to RECENT,) starts of the jobs that started last, in any order
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
    successor_place: int  # pending jobs that would be ahead of it if it were submitted now
    user_max_jobs: int  # running jobs that a user may have, or NO_LIMIT
    user_max_nodes: int  # nodes that a user may hold (a single wider job may exceed it), or NO_LIMIT


def world_snapshot(seen: Any, now_s: int, pair: tuple[int, int, int, int, int, int], place: int) -> Snapshot:
    """Build the snapshot of a simulated world; plain Python that numba also compiles.

    seen: what the world shows at `now_s`, a `simulator.cluster.Visible`. pair: start, wait and end of the predecessor,
    nodes, limit and user of the successor. place: the number of pending jobs ahead of the successor.
    """
    start_s, wait_s, end_s, nodes, limit_s, user = pair
    return Snapshot(
        now_s=now_s,
        capacity=seen.capacity,
        usable=seen.usable,
        pending_nodes=seen.pending_nodes,
        pending_limit_s=seen.pending_limit_s,
        pending_submit_s=seen.pending_submit_s,
        pending_held=seen.pending_held,
        pending_user=seen.pending_user,
        running_nodes=seen.running_nodes,
        running_limit_s=seen.running_limit_s,
        running_start_s=seen.running_start_s,
        running_user=seen.running_user,
        recent_start_s=seen.recent_start_s,
        recent_wait_s=seen.recent_wait_s,
        recent_nodes=seen.recent_nodes,
        ended_use=seen.ended_use,
        arrived_submit_s=seen.arrived_submit_s,
        arrived_node_s=seen.arrived_node_s,
        predecessor_start_s=start_s,
        predecessor_wait_s=wait_s,
        predecessor_end_s=end_s,
        successor_nodes=nodes,
        successor_limit_s=limit_s,
        successor_user=user,
        successor_place=place,
        user_max_jobs=seen.user_max_jobs,
        user_max_nodes=seen.user_max_nodes,
    )
