"""The twins of the policies that share a cluster between groups: yarn, drf and tetris. GPUs are the only resource."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.policies.tetris import LOOKED_AT
from tests.twins.gpu.job import PlainGpuJob, PlainGpuWorld, start, stop

Free = NDArray[np.int64]


def yarn(world: PlainGpuWorld) -> None:
    """Serve the group furthest below its quota, then take lent GPUs back."""
    there, free, now, quota = world.there, world.free, world.now, world.quota
    widest = int(world.cluster.capacity[:, 0].max())

    def start_it(job: PlainGpuJob) -> bool:
        holds_out = now - job.submit < world.knobs["hold_s"]
        return start(job, free, now, -(-job.gpus // widest) if holds_out else None)

    _offer(there, free, start_it, lambda group: _used(there, group) / max(quota[group], 1e-9))
    if world.cluster.gpus - free.sum() < world.knobs["reclaim_at"] * world.cluster.gpus:
        return
    for job in there:
        if not job.placed and _used(there, job.group) + job.gpus <= quota[job.group]:
            _reclaim(job, there, free, now, quota)


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


def _reclaim(job: PlainGpuJob, there: list[PlainGpuJob], free: Free, now: float, quota: list[float]) -> None:
    lent = sum(max(0.0, _used(there, group) - own) for group, own in enumerate(quota))
    if free.sum() + lent < job.gpus:
        return
    while not start(job, free, now):
        over = [it for it in there if it.placed and _used(there, it.group) - it.gpus >= quota[it.group]]
        if not over:
            return
        stop(over[-1], free, now)


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
