"""The twin of the compiled clock in plain Python; `groups` has the policies that share between groups.

It uses dictionaries and supports no profiles, no resources other than GPUs, no GPU types and no racks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, origin_s
from tests.twins.gpu import groups
from tests.twins.gpu.job import NEVER, PlainGpuJob, start, stop

BY_GROUP = ("yarn", "drf", "tetris")
NEAR = 1e-6


def simulate(
    cluster: GpuCluster, jobs: GpuJobs, name: str, knobs: dict[str, float], quota: Sequence[float] = ()
) -> list[tuple[float, float, int]]:
    """Return (start, end, preemptions) of each job, s from the origin; `quota`: GPUs of each group, for yarn."""
    origin = origin_s(jobs)
    columns = (jobs.submit_s - origin, jobs.gpus, jobs.run_s, jobs.group)
    everyone = [
        PlainGpuJob(at, submit, gpus, run, group, left=run)
        for at, (submit, gpus, run, group) in enumerate(zip(*(one.tolist() for one in columns), strict=True))
    ]
    free = cluster.capacity[:, 0].copy()
    there: list[PlainGpuJob] = []
    coming = list(everyone)
    now = 0.0
    while coming or there:
        ahead = [job.submit for job in coming[:1]] + [job.end for job in there]
        now = max(now, min(ahead + [_wake(job, now, name, knobs) for job in there]))
        for job in there:
            job.settle(min(now, job.end))
            if job.end <= now:
                for node, gpus in job.placed.items():
                    free[node] += gpus
                job.placed = {}
        there = [job for job in there if job.end > now]
        while coming and coming[0].submit <= now:
            job = coming.pop(0)
            job.pended = job.since = now
            there.append(job)
        if name == "fifo":
            for job in there:
                if not job.placed and not start(job, free, now):
                    break
        elif name == "sjf":
            for job in sorted(there, key=lambda job: job.run):
                if not job.placed:
                    start(job, free, now)
        elif name == "srtf":
            _follow(sorted(there, key=lambda job: job.left), free, now, cluster.gpus)
        elif name in BY_GROUP:
            groups.decide(name, there, free, now, cluster, list(quota), knobs)
        else:
            for job in there:
                _level(job, now, knobs)
            _follow(sorted(there, key=lambda job: (job.level, not job.placed)), free, now, cluster.gpus)
    return [(job.start, job.end, job.preemptions) for job in everyone]


def _thresholds(knobs: dict[str, float]) -> list[float]:
    return [knobs["threshold_1"], knobs["threshold_2"]]


def _level(job: PlainGpuJob, now: float, knobs: dict[str, float]) -> None:
    if job.placed:
        job.level = max([job.level] + [i + 1 for i, at in enumerate(_thresholds(knobs)) if job.service >= at - NEAR])
    elif job.level and knobs["promote"] and now - job.pended >= knobs["promote"] * job.ran - NEAR:
        job.level, job.service = 0, 0.0


def _wake(job: PlainGpuJob, now: float, name: str, knobs: dict[str, float]) -> float:
    """Return the next wake-up time that the policy requests without an event; `now` is its last decision."""
    if name == "yarn" and not job.placed and job.submit + knobs["hold_s"] > now:
        return job.submit + knobs["hold_s"]
    if name != "tiresias":
        return NEVER
    if job.placed and job.level < 2:
        return job.since + max(0.0, _thresholds(knobs)[job.level] - job.service) / job.gpus
    if not job.placed and job.level and knobs["promote"]:
        return job.pended + knobs["promote"] * job.ran
    return NEVER


def _follow(order: list[PlainGpuJob], free: NDArray[np.int64], now: float, room: int) -> None:
    """Run the first jobs in order that the GPUs can hold, stop the others, and fill the remaining GPUs."""
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
