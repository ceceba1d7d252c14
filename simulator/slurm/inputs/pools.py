"""Represent the limits of QOS and associations uniformly: as pools of running jobs and TRES that a job counts in."""

from __future__ import annotations

import numpy as np

from simulator.slurm.compiled.state import NO_CAP
from simulator.slurm.inputs.unplaceable import distinct
from simulator.slurm.world import NONE, SlurmWorld
from traces.arrays import Int64s


def limit_pools(world: SlurmWorld) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the pools of every job: class of each job, pools of each class, limits of each pool.

    Returns the class of each job, shape (jobs,), NONE for an unlimited job; the first pool of each class, shape
    (classes + 1,); the pools, shape (sum,); and the limits, shape (pools, 5): running jobs, CPU, MEMORY, NODE, GPU.
    """
    jobs, partitions = world.jobs, world.partitions
    partition_qos = np.full(len(jobs), NONE, np.int64)
    known = (jobs.partition >= 0) & (jobs.partition < len(partitions))
    partition_qos[known] = partitions.qos[jobs.partition[known]]
    kinds, class_of_job = distinct((jobs.qos, partition_qos, jobs.user, jobs.association))
    pools: dict[tuple[str, int, int], int] = {}
    limits: list[list[int]] = []
    first, ids = [0], []
    for qos, of_partition, user, association in kinds.tolist():
        for key, limit in _limits(world, qos, of_partition, user, association):
            if min(limit) == NO_CAP:
                continue
            if key not in pools:
                pools[key] = len(limits)
                limits.append(limit)
            ids.append(pools[key])
        first.append(len(ids))
    pool_first = np.array(first, np.int64)
    class_of_job = np.where(np.diff(pool_first)[class_of_job] > 0, class_of_job, NONE) if len(jobs) else class_of_job
    return class_of_job, pool_first, np.array(ids, np.int64), np.array(limits, np.int64).reshape(-1, 5)


def _limits(
    world: SlurmWorld, qos: int, of_partition: int, user: int, association: int
) -> list[tuple[tuple[str, int, int], list[int]]]:
    """Return each limit that applies to jobs of this QOS, partition QOS, user and association, with its pool's name."""
    table, tree = world.qos, world.associations
    account = int(tree.account[association])
    limits: list[tuple[tuple[str, int, int], list[int]]] = []
    for q in [qos] + ([of_partition] if of_partition not in (NONE, qos) else []):
        limits.append((("qos", q, NONE), _capped(table.group_jobs[q], table.group_tres[q])))
        limits.append((("qos user", q, user), _capped(table.user_jobs[q], table.user_tres[q])))
        limits.append((("qos account", q, account), _capped(table.account_jobs[q], table.account_tres[q])))
    limits.append((("association", association, NONE), _capped(tree.max_jobs[association], np.full(4, NONE))))
    row = association
    while row != NONE:
        limits.append((("association group", row, NONE), _capped(tree.group_jobs[row], tree.group_tres[row])))
        row = int(tree.parent[row])
    return limits


def _capped(jobs: np.int64, tres: Int64s) -> list[int]:
    return [int(value) if value >= 0 else NO_CAP for value in (jobs, *tres)]
