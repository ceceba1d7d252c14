"""The twin of the compiled clock in plain Python; `groups` has the policies that share between groups.

It uses dictionaries and supports no profiles, no GPU types and no racks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, origin_s
from simulator.gpu.profiles.profile import RESTART_S
from tests.twins.gpu import groups, queues, yarn_tree
from tests.twins.gpu.job import NEVER, PlainGpuJob, PlainGpuWorld, start, start_on
from traces.files.queue_tree import DeclaredQueue


def simulate(
    cluster: GpuCluster,
    jobs: GpuJobs,
    name: str,
    knobs: dict[str, Any],
    quota: Sequence[float] = (),
    tree: Sequence[DeclaredQueue] = (),
) -> list[tuple[float, float, int]]:
    """Return (start, end, preemptions) of each job, s from the origin; yarn has quotas or a tree of declared queues."""
    origin = origin_s(jobs)
    columns = (jobs.submit_s - origin, jobs.gpus, jobs.run_s, jobs.group)
    restart_s = RESTART_S if knobs["restart_s"] is None else knobs["restart_s"]
    everyone = [
        PlainGpuJob(
            at,
            submit,
            gpus,
            run,
            group,
            left=run,
            restart_s=restart_s,
            first_s=restart_s * knobs["first_start"],
            need=jobs.need[at],
            pod_gpus=int(jobs.pod_gpus[at]),
            user=-1 if name == "yarn-fair" else int(jobs.user[at]),
        )
        for at, (submit, gpus, run, group) in enumerate(zip(*(one.tolist() for one in columns), strict=True))
    ]
    policy, coming = POLICIES[name], list(everyone)
    world = PlainGpuWorld(cluster, knobs, list(quota), cluster.capacity.copy())
    world.tree = yarn_tree.plain_tree(cluster.gpus, jobs.groups, tree)
    if tree:
        policy = policy._replace(decide=yarn_tree.capacity if name == "yarn" else yarn_tree.fair)
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
        world.ended += [job for job in world.there if job.end <= now]
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
        if not job.placed and not start(job, world.free, world.now) and not world.knobs["pass"]:
            return


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
    queues.follow(sorted(world.there, key=lambda job: job.left), world)


def _never(job: PlainGpuJob, now: float, knobs: dict[str, Any]) -> float:
    """Ask for no wake-up."""
    return NEVER


def _yarn_wake(job: PlainGpuJob, now: float, knobs: dict[str, Any]) -> float:
    relaxed = job.submit + knobs["hold_s"]
    return relaxed if not job.placed and relaxed > now else NEVER


def _mesos_wake(job: PlainGpuJob, now: float, knobs: dict[str, Any]) -> float:
    return job.wake


class PlainGpuPolicy(NamedTuple):
    """The twin of a policy: its decision, the next time at which a job wakes it, and whether it stops jobs."""

    decide: Callable[[PlainGpuWorld], None]
    wake: Callable[[PlainGpuJob, float, dict[str, Any]], float] = _never  # (job, now of the last decision, knobs)
    preempts: bool = False


POLICIES = {
    "fifo": PlainGpuPolicy(_fifo),
    "sjf": PlainGpuPolicy(_sjf),
    "srtf": PlainGpuPolicy(_srtf, preempts=True),
    "yarn": PlainGpuPolicy(groups.yarn, _yarn_wake, preempts=True),
    "yarn-fair": PlainGpuPolicy(yarn_tree.fair, _yarn_wake, preempts=True),
    "drf": PlainGpuPolicy(groups.drf),
    "mesos": PlainGpuPolicy(groups.mesos, _mesos_wake),
    "tetris": PlainGpuPolicy(groups.tetris),
    "single": PlainGpuPolicy(_single),
    "tiresias": PlainGpuPolicy(queues.tiresias, queues.wake, preempts=True),
    "tiresias-gittins": PlainGpuPolicy(queues.gittins, queues.wake, preempts=True),
}
