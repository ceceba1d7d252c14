"""The plain twin of the compiled clock, for the schedulers that go by one order: fifo, sjf, srtf and tiresias.

Obvious Python on dictionaries, without profiles, resources other than GPUs, types or racks. Slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.gpu.algorithms.placement import packed
from simulator.gpu.cluster import Cluster
from simulator.gpu.jobs import GpuJobs, origin_s
from simulator.gpu.rounds import RESTART_S

NEVER = float("inf")
NEAR = 1e-6


@dataclass(eq=False)
class _Job:
    number: int
    submit: float
    gpus: int
    run: float
    left: float
    service: float = 0.0
    level: int = 0
    ran: float = 0.0
    since: float = 0.0
    resume: float = 0.0
    start: float = -1.0
    end: float = NEVER
    pended: float = 0.0
    preemptions: int = 0
    placed: dict[int, int] = field(default_factory=dict)

    def settle(self, now: float) -> None:
        """Brings it up to `now`, if it runs."""
        if self.placed:
            self.left = max(0.0, self.left - max(0.0, now - max(self.since, self.resume)))
            self.service += (now - self.since) * self.gpus
            self.ran += now - self.since
        self.since = now


def simulate(cluster: Cluster, jobs: GpuJobs, name: str, knobs: dict[str, float]) -> list[tuple[float, float, int]]:
    """(start, end, preemptions) of each job, s from the origin."""
    origin = origin_s(jobs)
    everyone = [
        _Job(at, float(jobs.submit_s[at]) - origin, int(jobs.gpus[at]), float(jobs.run_s[at]), float(jobs.run_s[at]))
        for at in range(len(jobs))
    ]
    free = cluster.capacity[:, 0].copy()
    there: list[_Job] = []
    coming = list(everyone)
    now = 0.0
    while coming or there:
        ahead = [job.submit for job in coming[:1]] + [job.end for job in there]
        now = max(now, min(ahead + [_wake(job, knobs) for job in there if name == "tiresias"]))
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
                if not job.placed and not _start(job, free, now):
                    break
        elif name == "sjf":
            for job in sorted(there, key=lambda job: job.run):
                if not job.placed:
                    _start(job, free, now)
        elif name == "srtf":
            _follow(sorted(there, key=lambda job: job.left), free, now, cluster.gpus)
        else:
            for job in there:
                _level(job, now, knobs)
            _follow(sorted(there, key=lambda job: (job.level, not job.placed)), free, now, cluster.gpus)
    return [(job.start, job.end, job.preemptions) for job in everyone]


def _thresholds(knobs: dict[str, float]) -> list[float]:
    return [knobs["threshold_1"], knobs["threshold_2"]]


def _level(job: _Job, now: float, knobs: dict[str, float]) -> None:
    if job.placed:
        job.level = max([job.level] + [i + 1 for i, at in enumerate(_thresholds(knobs)) if job.service >= at - NEAR])
    elif job.level and knobs["promote"] and now - job.pended >= knobs["promote"] * job.ran - NEAR:
        job.level, job.service = 0, 0.0


def _wake(job: _Job, knobs: dict[str, float]) -> float:
    if job.placed and job.level < 2:
        return job.since + max(0.0, _thresholds(knobs)[job.level] - job.service) / job.gpus
    if not job.placed and job.level and knobs["promote"]:
        return job.pended + knobs["promote"] * job.ran
    return NEVER


def _start(job: _Job, free: object, now: float) -> bool:
    placed = packed(free, job.gpus)  # type: ignore[arg-type]
    if placed is None:
        return False
    for node, gpus in placed.items():
        free[node] -= gpus  # type: ignore[index]
    job.placed, job.since = placed, now
    job.resume = now if job.start < 0.0 else now + RESTART_S
    job.start = now if job.start < 0.0 else job.start
    job.end = job.resume + job.left
    return True


def _follow(order: list[_Job], free: object, now: float, room: int) -> None:
    """The first in order that the GPUs hold run; who runs behind them is stopped; the rest takes what is left."""
    begins, stopped = [], []
    for job in order:
        if job.gpus <= room:
            room -= job.gpus
            begins += [] if job.placed else [job]
        elif job.placed:
            stopped.append(job)
    for job in stopped:
        for node, gpus in job.placed.items():
            free[node] += gpus  # type: ignore[index]
        job.placed, job.end, job.pended = {}, NEVER, now
        job.preemptions += 1
    for job in begins:
        _start(job, free, now)
    for job in order:
        if not job.placed:
            _start(job, free, now)
