"""The twins of the policies that share a cluster between groups: yarn, which counts GPUs, and drf, mesos and tetris."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.algorithms.placement import node_gpus, packed
from simulator.gpu.policies.tetris import LOOKED_AT
from tests.twins.gpu.job import NEVER, PlainGpuJob, PlainGpuWorld, start, start_on, stop

Free = NDArray[np.int64]


def yarn(world: PlainGpuWorld) -> None:
    """Serve the group furthest below its quota, then take lent GPUs back, then offer what is left of them."""
    there, free, quota = world.there, world.free, world.quota

    def most_nodes(job: PlainGpuJob) -> int | None:
        fewest = len(packed(world.cluster.capacity[:, 0], job.gpus) or ())
        return fewest if world.now - job.submit < world.knobs["hold_s"] else None

    def serve() -> None:
        _offer(
            there,
            free,
            lambda job: start(job, free, world.now, most_nodes(job)),
            lambda group: _used(there, group) / max(quota[group], 1e-9),
        )

    before = [job for job in there if job.placed]
    serve()
    if world.cluster.gpus - free[:, 0].sum() < world.knobs["reclaim_at"] * world.cluster.gpus:
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
    _offer(there, free, lambda job: start(job, free, world.now), lambda group: _share(world, group))


def mesos(world: PlainGpuWorld) -> None:
    """Offer everything free to one framework after the other; one that leaves GPUs and waits is deaf for a while."""
    decline_s, now, until = world.knobs["decline_s"], world.now, world.deaf_until
    waiting: dict[int, list[PlainGpuJob]] = {}
    for job in world.there:
        job.wake = NEVER
        if not job.placed:
            waiting.setdefault(job.group, []).append(job)
            if job.pended == now:
                until.pop(job.group, None)
    for group, end in list(until.items()):
        if end < now and world.left_over == 0:
            del until[group]
        elif end < now and decline_s:
            until[group] = end + math.ceil((now - end) / decline_s) * decline_s
        if group in waiting and until.get(group, now) > now:
            waiting[group][0].wake = until[group]
    hearing = [group for group in waiting if until.get(group, now) <= now]
    for group in sorted(hearing, key=lambda group: (_share(world, group), group)):
        if world.free[:, 0].sum() == 0:
            break
        started = [start(job, world.free, now) for job in waiting[group]]
        until.pop(group, None)
        if not all(started) and world.free[:, 0].sum() > 0:
            until[group] = now + decline_s
    world.left_over = int(world.free[:, 0].sum())


def tetris(world: PlainGpuWorld) -> None:
    """Start the job with the highest score until none fits."""
    while _tetris_starts_one(world):
        pass


def _used(there: list[PlainGpuJob], group: int) -> int:
    return sum(job.gpus for job in there if job.placed and job.group == group)


def _share(world: PlainGpuWorld, group: int) -> float:
    """Return the dominant share: the largest part of any resource that the group's jobs hold."""
    held = sum((job.gpus * job.need for job in world.there if job.placed and job.group == group), 0 * world.free[0])
    return float((held / world.cluster.capacity.sum(axis=0)).max())


def _offer(
    there: list[PlainGpuJob], free: Free, start_it: Callable[[PlainGpuJob], bool], share: Callable[[int], float]
) -> None:
    """Try each waiting job once; next is the first job of the group with the smallest share."""
    waiting: dict[int, list[PlainGpuJob]] = {}
    for job in there:
        if not job.placed:
            waiting.setdefault(job.group, []).append(job)
    while waiting and free[:, 0].sum() > 0:
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
        if fits_without(world, job, freed, most_nodes):
            for other in sorted(freed, key=lambda one: (one not in before, one.number)):
                fewer = [one for one in freed if one is not other]
                freed = fewer if fits_without(world, job, fewer, most_nodes) else freed
            for other in freed:
                stop_if_it_ran(world, other, before)
            assert start(job, world.free, world.now, most_nodes)
            return bool(freed)
    return False


def stop_if_it_ran(world: PlainGpuWorld, job: PlainGpuJob, before: Sequence[PlainGpuJob]) -> None:
    """Stop a job; one that is not among those that ran `before` this decision waits on as if it did not start."""
    stop(job, world.free, world.now)
    if job not in before:
        job.preemptions -= 1
        job.start = job.start if job.restarts else -1.0
        job.restarts = max(0, job.restarts - 1)


def fits_without(world: PlainGpuWorld, job: PlainGpuJob, freed: list[PlainGpuJob], most_nodes: int | None) -> bool:
    """Whether the job fits if these jobs stop."""
    free = world.free.copy()
    for other in freed:
        for node, gpus in other.placed.items():
            free[node] += gpus * other.need
    return packed(node_gpus(free, job.need, job.pod_gpus), job.gpus, most_nodes) is not None


def _tetris_starts_one(world: PlainGpuWorld) -> bool:
    """Start the candidate with the highest score that fits; return whether there was one."""
    free, knobs, room = world.free, world.knobs, world.cluster.capacity
    waiting = [job for job in world.there if not job.placed]
    groups = sorted({job.group for job in waiting}, key=lambda group: (_share(world, group), group))
    allowed = groups[: max(1, int((1.0 - knobs["fairness"]) * len(groups) + 0.999999))]
    candidates = [job for job in waiting if job.group in allowed and job.gpus <= free[:, 0].sum()][:LOOKED_AT]
    place = {job.number: _tetris_place(job, free, room) for job in candidates}
    work = {job.number: job.run * float((job.gpus * job.need / room.sum(axis=0)).sum()) for job in candidates}
    aligned = {number: score for number, (score, _node) in place.items()}
    if not sum(aligned.values()):
        return False
    unit = knobs["work_weight"] * sum(aligned.values()) / sum(work.values())
    for job in sorted(candidates, key=lambda job: -(aligned[job.number] - unit * work[job.number])):
        node = place[job.number][1]
        if node is not None:
            start_on(job, free, {node: job.gpus}, world.now)
            return True
        if aligned[job.number] and start(job, free, world.now):
            return True
    return False


def _tetris_place(job: PlainGpuJob, free: Free, room: Free) -> tuple[float, int | None]:
    """Return the best alignment and its node; without a node that holds the job, that of its part on one node."""
    parts = np.minimum(node_gpus(free, job.need, job.pod_gpus), job.gpus)
    dots = ((parts[:, None] * job.need / room) * (free / room)).sum(axis=1)
    whole = np.flatnonzero(parts == job.gpus)
    if len(whole):
        node = int(whole[np.argmax(dots[whole])])
        return float(dots[node]), node
    return float(dots.max()), None
