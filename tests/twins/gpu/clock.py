"""The twin of the compiled clock in plain Python; `groups` has the policies that share between groups.

It uses dictionaries and supports no profiles, no GPU types and no racks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, origin_s
from tests.twins.gpu import groups
from tests.twins.gpu.job import NEVER, PlainGpuJob, PlainGpuWorld, start, start_on, stop

NEAR = 1e-6


def simulate(
    cluster: GpuCluster, jobs: GpuJobs, name: str, knobs: dict[str, float], quota: Sequence[float] = ()
) -> list[tuple[float, float, int]]:
    """Return (start, end, preemptions) of each job, s from the origin; `quota`: GPUs of each group, for yarn."""
    origin = origin_s(jobs)
    columns = (jobs.submit_s - origin, jobs.gpus, jobs.run_s, jobs.group)
    everyone = [
        PlainGpuJob(at, submit, gpus, run, group, left=run, need=jobs.need[at], pod_gpus=int(jobs.pod_gpus[at]))
        for at, (submit, gpus, run, group) in enumerate(zip(*(one.tolist() for one in columns), strict=True))
    ]
    policy, coming = POLICIES[name], list(everyone)
    world = PlainGpuWorld(cluster, knobs, list(quota), cluster.capacity.copy())
    while coming or world.there:
        ahead = [job.submit for job in coming[:1]] + [job.end for job in world.there]
        wakes = [policy.wake(job, world.now, knobs) for job in world.there]
        world.now = now = max(world.now, min(ahead + wakes))
        for job in world.there:
            job.settle(min(now, job.end))
            if job.end <= now:
                for node, gpus in job.placed.items():
                    world.free[node] += gpus * job.need
                job.placed = {}
        world.there = [job for job in world.there if job.end > now]
        while coming and coming[0].submit <= now:
            job = coming.pop(0)
            job.pended = job.since = now
            world.there.append(job)
        policy.decide(world)
    return [(job.start, job.end, job.preemptions) for job in everyone]


def _fifo(world: PlainGpuWorld) -> None:
    for job in world.there:
        if not job.placed and not start(job, world.free, world.now):
            return


def _sjf(world: PlainGpuWorld) -> None:
    for job in sorted(world.there, key=lambda job: job.run):
        if not job.placed:
            start(job, world.free, world.now)


def _single(world: PlainGpuWorld) -> None:
    room, blocked = world.cluster.capacity, set()
    for job in world.there:
        if job.bound is None:
            load = [
                sum(other.gpus for other in world.there if other.bound == node) / room[node, 0]
                for node in range(len(room))
            ]
            able = [node for node in range(len(room)) if (job.gpus * job.need <= room[node]).all()]
            job.bound = min(able, key=lambda node: load[node], default=-1)
    for job in world.there:
        if job.placed or job.bound is None or job.bound in blocked:
            continue
        if job.bound == -1:
            start(job, world.free, world.now)
        elif (job.gpus * job.need <= world.free[job.bound]).all():
            start_on(job, world.free, {job.bound: job.gpus}, world.now)
        else:
            blocked.add(job.bound)


def _srtf(world: PlainGpuWorld) -> None:
    _follow(sorted(world.there, key=lambda job: job.left), world)


def _tiresias(world: PlainGpuWorld) -> None:
    for job in world.there:
        _level(job, world.now, world.knobs)
    _follow(sorted(world.there, key=lambda job: (job.level, not job.placed)), world)


def _thresholds(knobs: dict[str, float]) -> list[float]:
    return [knobs["threshold_1"], knobs["threshold_2"]]


def _level(job: PlainGpuJob, now: float, knobs: dict[str, float]) -> None:
    if job.placed:
        job.level = max([job.level] + [i + 1 for i, at in enumerate(_thresholds(knobs)) if job.service >= at - NEAR])
    elif job.level and knobs["promote"] and now - job.pended >= knobs["promote"] * job.ran - NEAR:
        job.level, job.service = 0, 0.0


def _never(job: PlainGpuJob, now: float, knobs: dict[str, float]) -> float:
    """Ask for no wake-up."""
    return NEVER


def _yarn_wake(job: PlainGpuJob, now: float, knobs: dict[str, float]) -> float:
    relaxed = job.submit + knobs["hold_s"]
    return relaxed if not job.placed and relaxed > now else NEVER


def _mesos_wake(job: PlainGpuJob, now: float, knobs: dict[str, float]) -> float:
    return job.wake


def _tiresias_wake(job: PlainGpuJob, now: float, knobs: dict[str, float]) -> float:
    if job.placed and job.level < 2:
        return job.since + max(0.0, _thresholds(knobs)[job.level] - job.service) / job.gpus
    if not job.placed and job.level and knobs["promote"]:
        return job.pended + knobs["promote"] * job.ran
    return NEVER


def _follow(order: list[PlainGpuJob], world: PlainGpuWorld) -> None:
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


class PlainGpuPolicy(NamedTuple):
    """The twin of a policy: its decision, the next time at which a job wakes it, and whether it stops jobs."""

    decide: Callable[[PlainGpuWorld], None]
    wake: Callable[[PlainGpuJob, float, dict[str, float]], float] = _never  # (job, now of the last decision, knobs)
    preempts: bool = False


POLICIES = {
    "fifo": PlainGpuPolicy(_fifo),
    "sjf": PlainGpuPolicy(_sjf),
    "srtf": PlainGpuPolicy(_srtf, preempts=True),
    "yarn": PlainGpuPolicy(groups.yarn, _yarn_wake, preempts=True),
    "drf": PlainGpuPolicy(groups.drf),
    "mesos": PlainGpuPolicy(groups.mesos, _mesos_wake),
    "tetris": PlainGpuPolicy(groups.tetris),
    "single": PlainGpuPolicy(_single),
    "tiresias": PlainGpuPolicy(_tiresias, _tiresias_wake, preempts=True),
}
