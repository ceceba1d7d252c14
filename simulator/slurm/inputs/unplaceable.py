"""The distinct requests of jobs per node, and the jobs that can never start, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.slurm import world as w
from simulator.slurm.compiled.state import NO_CAP
from simulator.slurm.world import NONE
from traces.arrays import Bools, Int64s


class Shapes(NamedTuple):
    """The distinct requests per node: one row for each share and partition."""

    of_job: Int64s  # (jobs,)
    partition: Int64s  # (shapes,)
    share: Int64s  # (shapes, 3) CPUs, MB, GPUs
    exclusive: Bools  # (shapes,)
    nodes: Bools  # (shapes, nodes) nodes of the partition that hold the share when idle


def distinct(columns: Sequence[NDArray[np.generic]]) -> tuple[Int64s, Int64s]:
    """Return the distinct rows of integer columns, sorted, shape (kinds, columns), and the row of each job.

    Equal to `np.unique(axis=0)`, which would copy all columns several times.
    """
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, code = np.unique(column, return_inverse=True)
            key *= len(values)
            key += code
            key = np.unique(key, return_inverse=True)[1]  # small numbers again, so that no product overflows
    _, first, of_job = np.unique(key, return_index=True, return_inverse=True)
    return np.column_stack([column[first] for column in columns]).astype(np.int64), of_job


def request(jobs: w.SlurmJobs, tres: int) -> Int64s:
    """Return each job's total request of one TRES, shape (jobs,)."""
    if tres == w.NODE:
        return jobs.nodes
    share = {w.CPU: jobs.cpus_per_node, w.MEMORY: jobs.memory_per_node_mb, w.GPU: jobs.gpus_per_node}[tres]
    return jobs.nodes * share


def shapes_of(world: w.SlurmWorld) -> Shapes:
    """Return the distinct shares that jobs request; a job without a partition counts in partition row 0."""
    jobs, nodes, partitions = world.jobs, world.nodes, world.partitions
    partition = np.where((jobs.partition >= 0) & (jobs.partition < len(partitions)), jobs.partition, 0)
    gpu_type = np.where(jobs.gpus_per_node > 0, jobs.gpu_type, NONE)
    exclusive = jobs.exclusive | partitions.exclusive[partition]
    columns = (partition, jobs.cpus_per_node, jobs.memory_per_node_mb, jobs.gpus_per_node, gpu_type, exclusive)
    kinds, of_job = distinct(columns)
    of_partition, cpus, memory, gpus, kind, whole = (np.ascontiguousarray(column[:, None]) for column in kinds.T)
    able = (
        partitions.nodes[of_partition[:, 0]]
        & (nodes.cpus >= cpus)
        & (nodes.memory_mb >= memory)
        & (nodes.gpus >= gpus)
        & ((kind == NONE) | (nodes.gpu_type == kind))
    )
    share = np.ascontiguousarray(np.column_stack([cpus, memory, gpus]))
    return Shapes(of_job, of_partition[:, 0].copy(), share, whole[:, 0].astype(bool), able)


def unplaceable(
    world: w.SlurmWorld,
    shapes: Shapes,
    class_of_job: Int64s,
    pools: tuple[Int64s, Int64s, Int64s],
    pinned: Bools,
) -> Int64s:
    """Return why each job can never start, shape (jobs,): PLACEABLE, or the first reason of `world.REASONS`.

    `pools` are the first pool of each class, the pools and their limits (`limit_pools`). Limits and dependencies do not
    count for the jobs that are `pinned` (jobs,).
    """
    pool_first, pool_ids, pool_limit = pools
    jobs, partitions = world.jobs, world.partitions
    count = len(jobs)
    reason = np.full(count, w.PLACEABLE, np.int64)
    known = (jobs.partition >= 0) & (jobs.partition < len(partitions))
    partition = np.where(known, jobs.partition, 0)
    over = np.zeros(count, bool)
    partition_qos = partitions.qos[partition]
    all_qos = [jobs.qos, np.where(partition_qos == NONE, jobs.qos, partition_qos)]
    del partition_qos
    least = np.full((len(pool_first) - 1, 5), NO_CAP, np.int64)
    for row in range(len(least)):
        mine = pool_ids[pool_first[row] : pool_first[row + 1]]
        if mine.size:
            least[row] = pool_limit[mine].min(axis=0)
    limited = np.flatnonzero(class_of_job != NONE)
    over[limited] = least[class_of_job[limited], 0] < 1
    for tres in range(w.TRES):
        asked = request(jobs, tres)
        for qos in all_qos:
            over |= _over(world.qos.job_tres[qos, tres], asked)
        over[limited] |= asked[limited] > least[class_of_job[limited], tres + 1]
    del asked, all_qos
    for number, holds in (
        (w.UNKNOWN_PARTITION, ~known),
        (w.TOO_LARGE, shapes.nodes.sum(axis=1)[shapes.of_job] < jobs.nodes),
        (w.OVER_MAX_NODES, ~pinned & _over(partitions.max_nodes[partition], jobs.nodes)),
        (w.OVER_MAX_TIME, ~pinned & _over(partitions.max_time_s[partition], jobs.limit_s)),
        (w.OVER_LIMIT, ~pinned & over),
    ):
        reason[(reason == w.PLACEABLE) & holds] = number
    _by_dependencies(world, reason, pinned)
    return reason


def _over(limit: Int64s, values: Int64s) -> Bools:
    return (limit >= 0) & (values > limit)


def _by_dependencies(world: w.SlurmWorld, reason: Int64s, pinned: Bools) -> None:
    """Mark the jobs that wait for themselves, then those that wait for a job that never runs; no `pinned` one."""
    edges = world.dependencies
    explicit = edges.kind != w.SINGLETON
    job, parent, kind = edges.job[explicit], edges.parent[explicit], edges.kind[explicit]
    if not job.size:
        return
    for row in _cyclic(job, parent, len(reason)):
        if reason[row] == w.PLACEABLE and not pinned[row]:
            reason[row] = w.CYCLIC_DEPENDENCY
    needs_run = (kind == w.AFTER) | (kind == w.AFTEROK)
    all_edges = np.bincount(edges.job, minlength=len(reason))
    while True:
        hopeless = np.bincount(job[needs_run & (reason[parent] != w.PLACEABLE)], minlength=len(reason))
        never = np.where(world.jobs.any_dependency, (hopeless > 0) & (hopeless == all_edges), hopeless > 0)
        new = never & (reason == w.PLACEABLE) & ~pinned
        if not new.any():
            return
        reason[new] = w.NEVER_SATISFIED


def _cyclic(job: Int64s, parent: Int64s, count: int) -> list[int]:
    """Return the rows that reach themselves along parents."""
    remaining = np.ones(len(job), bool)
    while True:  # drop the edges of jobs that wait for no remaining job, or that no remaining job waits for
        waiting = np.bincount(job[remaining], minlength=count) > 0
        awaited = np.bincount(parent[remaining], minlength=count) > 0
        kept = remaining & waiting[parent] & awaited[job]
        if (kept == remaining).all():
            break
        remaining = kept
    above: dict[int, list[int]] = {}
    for child, awaited_job in zip(job[remaining].tolist(), parent[remaining].tolist(), strict=True):
        above.setdefault(child, []).append(awaited_job)
    return [row for row in above if _reaches(above, row)]


def _reaches(above: dict[int, list[int]], row: int) -> bool:
    seen: set[int] = set()
    ahead = list(above[row])
    while ahead:
        at = ahead.pop()
        if at == row:
            return True
        if at not in seen:
            seen.add(at)
            ahead.extend(above.get(at, ()))
    return False
