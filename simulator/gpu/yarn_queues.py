"""The queues of YARN's schedulers for one cluster: a declared tree, or a queue a group below the root."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.events.queue_tree import (
    END_CHILDREN,
    ENTITLED,
    FIRST_CHILD,
    GUARANTEED,
    LEAST,
    MOST,
    PARENT,
    TABLE_ROWS,
    USER_MOST,
    USER_PART,
)
from simulator.gpu.events.state import JobQueues
from simulator.gpu.jobs import GpuJobs
from traces.arrays import Bools, Float64s, Int64s
from traces.files.queue_tree import REST, DeclaredQueue, check_groups

_DIGITS = 6  # to which GPUs are rounded, so that 70 % of 10 GPUs are 7


def flat_queues(gpus: int, jobs: GpuJobs, guaranteed: Float64s) -> JobQueues:
    """Return a leaf queue a group, of `guaranteed` (groups,) GPUs, without limits, below the root."""
    leaves = len(guaranteed)
    table = _table(leaves + 1)
    table[MOST, : leaves + 1] = gpus
    table[GUARANTEED, : leaves + 1] = [float(gpus), *guaranteed]
    table[FIRST_CHILD, 0], table[END_CHILDREN, 0] = 1, leaves + 1
    table[PARENT, : leaves + 1] = [-1.0, *np.zeros(leaves)]
    table[ENTITLED] = table[GUARANTEED]
    return JobQueues(table, np.arange(leaves) + 1, np.full(len(jobs), -1, dtype=np.int64))


def tree_queues(gpus: int, jobs: GpuJobs, declared: Sequence[DeclaredQueue], with_users: bool) -> JobQueues:
    """Return the queues of a declared tree on a cluster of `gpus` GPUs.

    Siblings are numbered by capacity, the largest first, then as declared, which is the order of ties. `with_users`:
    whether limits of users count. Raises InputError for a group without a leaf queue.
    """
    ordered = _breadth_first(declared)
    at = {queue.path: number for number, queue in enumerate(ordered, 1)}
    leaf = _leaves(jobs, at, declared)
    users, user = np.unique(np.stack([leaf[jobs.group], jobs.user]), axis=1, return_inverse=True)
    table = _table(max(len(ordered) + 1, users.shape[1]))
    table[PARENT, 0], table[GUARANTEED, 0], table[MOST, 0], table[LEAST, 0] = -1.0, gpus, gpus, gpus
    parents = [0 if queue.parent is None else at[queue.parent] for queue in ordered]
    for number, queue in enumerate(ordered, 1):
        parent = parents[number - 1]
        if parent not in parents[: number - 1]:
            table[FIRST_CHILD, parent] = number
            table[END_CHILDREN, parent] = number + parents.count(parent)
        table[PARENT, number] = parent
        for row, percentage in ((GUARANTEED, queue.capacity), (MOST, queue.most), (LEAST, queue.least)):
            table[row, number] = round(table[row, parent] * percentage / 100.0, _DIGITS)
        own = table[GUARANTEED, number]
        table[USER_PART, number] = queue.user_limit / 100.0
        table[USER_MOST, number] = gpus if queue.user_limit_factor is None or not own else own * queue.user_limit_factor
    table[ENTITLED] = table[GUARANTEED]
    none = np.full(len(jobs), -1, dtype=np.int64)
    return JobQueues(table, leaf, user.reshape(-1).astype(np.int64) if with_users and jobs.users else none)


def above_most(cluster: GpuCluster, jobs: GpuJobs, declared: Sequence[DeclaredQueue]) -> Bools:
    """Return which jobs ask for more GPUs than the most capacity of one of their queues, (jobs,): they never start."""
    queues = tree_queues(cluster.gpus, jobs, declared, with_users=False)
    return np.asarray(jobs.gpus > queues.table[MOST, queues.leaf[jobs.group]], dtype=np.bool_)


def _table(columns: int) -> Float64s:
    table = np.zeros((TABLE_ROWS, columns))
    table[PARENT] = -1.0
    return table


def _breadth_first(declared: Sequence[DeclaredQueue]) -> list[DeclaredQueue]:
    """Order the queues so that parents come before their children, and siblings are neighbours."""
    ordered: list[DeclaredQueue] = []
    level: list[str | None] = [None]
    while level:
        below = [
            sorted((queue for queue in declared if queue.parent == parent), key=lambda queue: -queue.capacity)
            for parent in level
        ]
        ordered += [queue for siblings in below for queue in siblings]
        level = [queue.path for siblings in below for queue in siblings]
    return ordered


def _leaves(jobs: GpuJobs, at: dict[str, int], declared: Sequence[DeclaredQueue]) -> Int64s:
    """Return the number of each group's leaf queue, (groups,), -1 for a group without a job in no queue."""
    groups = {jobs.groups[group] for group in np.unique(jobs.group)}
    leaves = {queue.name: at[queue.path] for queue in declared if queue.is_leaf}
    check_groups(tuple(declared), groups, set(leaves))
    of_group = [leaves.get(group, leaves.get(REST, -1)) for group in jobs.groups]
    return np.array(of_group, dtype=np.int64)
