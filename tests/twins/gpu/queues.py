"""The twins of the policies that stop jobs in an order: a pass over an order, and Tiresias with both of its indices."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cache
from math import ceil, inf
from typing import Any

from tests.twins.gpu.job import NEVER, PlainGpuJob, PlainGpuWorld, start, stop

NEAR = 1e-6


def follow(order: list[PlainGpuJob], world: PlainGpuWorld) -> None:
    """Run the first jobs in order that the GPUs can hold, stop the others, and fill the remaining GPUs."""
    room, free, now = world.cluster.gpus, world.free, world.now
    begins, stopped = [], []
    for job in order:
        if job.gpus <= room:
            room -= job.gpus
            begins += [] if job.placed else [job]
        elif job.placed:
            stopped.append(job)
    for job in stopped:
        stop(job, free, now)
    for job in begins:
        start(job, free, now)
    for job in order:
        if not job.placed:
            start(job, free, now)


def tiresias(world: PlainGpuWorld) -> None:
    """Serve the queues in order; within one, jobs by their first start, or as the released program keeps its lists."""
    _change_queues(world)
    if not world.knobs["released"]:
        follow(sorted(world.there, key=lambda job: (job.level, job.start if job.start >= 0.0 else inf)), world)
        return
    follow([job for queue in world.queues for job in queue], world)
    for queue in world.queues:
        queue.sort(key=lambda job: not job.placed)


def gittins(world: PlainGpuWorld) -> None:
    """Serve the queues in order; within one, jobs by their Gittins index."""
    _change_queues(world)
    if world.there and len(world.ended) > len(world.learned) + len(world.learned) // 10:
        world.learned = list(world.ended)
    edges, samples = _columns(tuple(job.run * job.gpus for job in world.learned), world.knobs["samples"])
    index = cache(lambda level, column: _index(level, column, edges, samples, world.knobs))
    order = sorted(world.there, key=lambda job: (job.level, -index(job.level, bisect_right(edges, job.service))))
    follow(order, world)


def wake(job: PlainGpuJob, now: float, knobs: dict[str, Any]) -> float:
    """Return when the job reaches its next threshold or is promoted."""
    if job.placed and job.level < len(knobs["thresholds"]):
        threshold = knobs["thresholds"][job.level]
        if knobs["released"]:
            return float(now + ceil((threshold - job.service / job.gpus) / job.gpus))
        return float(job.since + max(0.0, threshold - job.service) / job.gpus)
    return job.pended + _patience(job, knobs) if not job.placed and job.level and knobs["promote"] else NEVER


def _patience(job: PlainGpuJob, knobs: dict[str, Any]) -> float:
    limit = knobs["promote"] * job.service / job.gpus
    return float(int(limit) if knobs["released"] else limit) - job.waited


def _change_queues(world: PlainGpuWorld) -> None:
    knobs, thresholds = world.knobs, world.knobs["thresholds"]
    world.queues = world.queues or [[] for _ in range(len(thresholds) + 1)]
    known = {job.number for queue in world.queues for job in queue}
    world.queues = [[job for job in queue if job in world.there] for queue in world.queues]
    world.queues[0] += [job for job in world.there if job.number not in known]
    for job in world.there:
        before = job.level
        if job.placed:
            reached = max([job.level] + [at + 1 for at, one in enumerate(thresholds) if job.service >= one - NEAR])
            job.level = min(reached, before + 1) if knobs["released"] else reached
        elif job.level and knobs["promote"] and world.now - job.pended >= _patience(job, knobs) - NEAR:
            job.level, job.service, job.waited, job.pended = 0, 0.0, 0.0, world.now
        if job.level != before:
            world.queues[before].remove(job)
            world.queues[job.level].append(job)


@cache
def _columns(learned: tuple[float, ...], given: tuple[float, ...]) -> tuple[list[float], list[list[float]]]:
    """The upper end of each column of GPU seconds, and the samples in it."""
    edges = sorted(set(given)) if given else [1.021**power for power in range(1000)]
    samples: list[list[float]] = [[] for _ in edges]
    for one in given or learned:
        samples[bisect_left(edges, one)].append(one)
    return edges, samples


def _index(level: int, column: int, edges: list[float], samples: list[list[float]], knobs: dict[str, Any]) -> float:
    values = [one for own in samples[column:] for one in own]
    if not values:
        return 0.0
    age = edges[column] - 1.0 if knobs["released"] else (edges[column - 1] if column else 0.0)
    upper = [*knobs["thresholds"], inf][level]
    delta = knobs["delta"] if knobs["delta"] is not None else 3250.0 if knobs["released"] else upper
    inside = [one for own in samples[column : bisect_right(edges, age + delta)] for one in own]
    beyond = len(values) - len(inside)
    if not knobs["released"]:
        expected = sum(one - age for one in inside) + (delta * beyond if beyond else 0.0)
        return len(inside) / expected
    done, done_s = len(inside), sum(inside)
    if not beyond:
        last = [own for own in samples if own][-1]
        done, done_s = done - 1, done_s - sum(last) / len(last)
    expected = round((done_s + delta * (len(values) - done)) / len(values), 5)
    return round(round(done / len(values), 5) * 1e6 / expected, 4)
