"""The twins of the policies that share a cluster between groups: yarn, drf and tetris. GPUs are the only resource."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.algorithms.placement import packed
from simulator.gpu.cluster import GpuCluster
from simulator.gpu.policies.tetris import LOOKED_AT
from tests.twins.gpu.job import PlainGpuJob, PlainGpuWorld, start, stop

Free = NDArray[np.int64]


def yarn(world: PlainGpuWorld) -> None:
    """Serve the group furthest below its quota, then take lent GPUs back, then offer what is left of them."""
    there, free, quota = world.there, world.free, world.quota
    widest = int(world.cluster.capacity[:, 0].max())

    def most_nodes(job: PlainGpuJob) -> int | None:
        return -(-job.gpus // widest) if world.now - job.submit < world.knobs["hold_s"] else None

    def serve() -> None:
        _offer(
            there,
            free,
            lambda job: start(job, free, world.now, most_nodes(job)),
            lambda group: _used(there, group) / max(quota[group], 1e-9),
        )

    before = [job for job in there if job.placed]
    serve()
    if world.cluster.gpus - free.sum() < world.knobs["reclaim_at"] * world.cluster.gpus:
        return
    stopped = False
    for job in there:
        if not job.placed and _used(there, job.group) + job.gpus <= quota[job.group]:
            stopped |= _reclaim(world, job, most_nodes(job), before)
    if stopped:
        serve()


def drf(world: PlainGpuWorld) -> None:
    """Serve the group with the smallest share of the GPUs."""
    there, free = world.there, world.free
    _offer(there, free, lambda job: start(job, free, world.now), lambda group: _used(there, group) / world.cluster.gpus)


def tetris(world: PlainGpuWorld) -> None:
    """Start the job with the highest score until none fits."""
    while _tetris_starts_one(world.there, world.free, world.now, world.cluster, world.knobs):
        pass


def _used(there: list[PlainGpuJob], group: int) -> int:
    return sum(job.gpus for job in there if job.placed and job.group == group)


def _offer(
    there: list[PlainGpuJob], free: Free, start_it: Callable[[PlainGpuJob], bool], share: Callable[[int], float]
) -> None:
    """Try each waiting job once; next is the first job of the group with the smallest share."""
    waiting: dict[int, list[PlainGpuJob]] = {}
    for job in there:
        if not job.placed:
            waiting.setdefault(job.group, []).append(job)
    while waiting and free.sum() > 0:
        group = min(waiting, key=lambda number: (share(number), number))
        start_it(waiting[group].pop(0))
        if not waiting[group]:
            del waiting[group]


def _reclaim(world: PlainGpuWorld, job: PlainGpuJob, most_nodes: int | None, before: list[PlainGpuJob]) -> bool:
    """Stop the youngest jobs over quota that the job needs, and start it; try jobs of at least 1, 2, 4, ... GPUs.

    Jobs that were not running before this decision come first. Return whether it stopped jobs.
    """
    youngest = sorted(world.there, key=lambda one: (one in before, -one.number))
    for least in (2**power for power in range(job.gpus.bit_length())):
        freed: list[PlainGpuJob] = []
        used = {group: _used(world.there, group) for group in range(len(world.quota))}
        for other in youngest:
            if other.placed and other.gpus >= least and used[other.group] - other.gpus >= world.quota[other.group]:
                used[other.group] -= other.gpus
                freed.append(other)
        if _fits_without(world, job, freed, most_nodes):
            for other in sorted(freed, key=lambda one: (one not in before, one.number)):
                fewer = [one for one in freed if one is not other]
                freed = fewer if _fits_without(world, job, fewer, most_nodes) else freed
            for other in freed:
                stop(other, world.free, world.now)
                if other not in before:  # it has not run
                    other.preemptions -= 1
                    other.start = other.start if other.restarts else -1.0
                    other.restarts = max(0, other.restarts - 1)
            assert start(job, world.free, world.now, most_nodes)
            return bool(freed)
    return False


def _fits_without(world: PlainGpuWorld, job: PlainGpuJob, freed: list[PlainGpuJob], most_nodes: int | None) -> bool:
    """Whether the job fits if these jobs stop."""
    free = world.free.copy()
    for other in freed:
        for node, gpus in other.placed.items():
            free[node] += gpus
    return packed(free, job.gpus, most_nodes) is not None


def _tetris_starts_one(
    there: list[PlainGpuJob], free: Free, now: float, cluster: GpuCluster, knobs: dict[str, float]
) -> bool:
    """Start the candidate with the highest score that fits; return whether there was one."""
    waiting = [job for job in there if not job.placed]
    groups = sorted({job.group for job in waiting}, key=lambda group: (_used(there, group), group))
    allowed = groups[: max(1, int((1.0 - knobs["fairness"]) * len(groups) + 0.999999))]
    candidates = [job for job in waiting if job.group in allowed and job.gpus <= free.sum()][:LOOKED_AT]
    room = cluster.capacity[:, 0]
    aligned = {
        job.number: max(min(job.gpus, have) / of * (have / of) for have, of in zip(free.tolist(), room, strict=True))
        for job in candidates
    }
    work = {job.number: job.run * job.gpus for job in candidates}
    if not sum(aligned.values()):
        return False
    unit = knobs["work_weight"] * sum(aligned.values()) / sum(work.values())
    by_score = sorted(candidates, key=lambda job: -(aligned[job.number] - unit * work[job.number]))
    return any(start(job, free, now) for job in by_score)
