"""Kubernetes with gang scheduling (all pods of a job at once) or without it (each pod as soon as it fits).

Kubernetes' own scheduler places pods one by one in order of creation and ignores jobs; a pod that does not fit lets
others pass. A job of several pods makes progress once its last pod is placed; until then its placed pods hold idle
GPUs. Two jobs that each hold GPUs the other needs wait for each other until one gives up. A job gives up `timeout_s`
after its first pod was placed: its pods are deleted and created again, behind the waiting pods, after a back-off of 10
s that doubles up to 360 s (as in Kubernetes' Job controller). With `gang` (the coscheduling plugin, Volcano, Kueue) a
job is placed when all of its pods fit, and holds nothing before.

Our reading: decisions happen every `round_s`. Pods are tried in order of creation, the pods of one job together. In
both modes a pod goes to the fullest node that can hold it, so only the gang makes a difference. The time-out of ten
minutes is our choice, because Kubernetes has none. Pods are never preempted.
"""

from __future__ import annotations

import numpy as np

from simulator.gpu.algorithms.placement import take
from simulator.gpu.rounds import NOBODY, GpuJob, Placed, View, check_seconds
from simulator.gpu.scheduler import RoundScheduler
from simulator.metrics import PODS_HELD
from traces.arrays import Int64s
from traces.counted import counted

BACKOFF_S, MOST_BACKOFF_S = 10.0, 360.0


class Kubernetes:
    """Pods in order of creation: with `gang` a job at a time, else each pod separately."""

    pause_s: float | None = None
    guests = NOBODY

    def __init__(self, round_s: float = 60.0, gang: bool = False, timeout_s: float = 600.0) -> None:
        check_seconds("kubernetes", round_s=round_s, timeout_s=timeout_s)
        self.round_s, self.gang, self.timeout_s = round_s, gang, timeout_s
        self.settled = False
        self.timeouts = 0
        self.idle_gpu_s = 0.0  # GPU seconds held by pods of incomplete jobs
        self._held: dict[int, list[int]] = {}  # incomplete job -> node of each placed pod
        self._since_s: dict[int, float] = {}  # incomplete job -> when its first pod was placed
        self._created_s: dict[int, float] = {}  # job that gave up -> when its pods are created again
        self._tries: dict[int, int] = {}
        self._last_s = 0.0

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.rounds.RoundPolicy`."""
        free = view.machine.gpus.copy()
        placed = {job.number: job.placed for job in view.jobs if job.placed}
        for given in placed.values():
            take(free, given)
        waiting = [job for job in view.jobs if not job.placed]
        for job in waiting:
            nodes = self._held.get(job.number, [])
            self.idle_gpu_s += (view.now_s - self._last_s) * len(nodes) * job.pod_gpus
            if nodes and view.now_s - self._since_s[job.number] >= self.timeout_s:
                self._give_up(job, view.now_s)
            else:
                take(free, _gpus_on(nodes, job))
        self._last_s = view.now_s
        queue = [job for job in waiting if self._created(job) <= view.now_s]
        queue.sort(key=lambda job: (self._created(job), job.number))
        for job in self._whole(queue, free) if self.gang else self._by_pod(queue, free, view.now_s):
            placed[job.number] = _gpus_on(self._held.pop(job.number), job)
        self.settled = len(placed) == len(view.jobs)
        return placed

    def said(self) -> list[str]:
        """Return the assumptions and counts of the run as sentences for the user."""
        if self.gang:
            return ["kubernetes: with gang, a job holds nothing until all of its pods fit"]
        return [
            f"{PODS_HELD}{self.idle_gpu_s / 3600:,.0f} GPU hours idle, and jobs gave up "
            f"{counted(self.timeouts, 'time')} after {self.timeout_s:g} s"
        ]

    def _created(self, job: GpuJob) -> float:
        return self._created_s.get(job.number, job.submit_s)

    def _give_up(self, job: GpuJob, now_s: float) -> None:
        """Delete the job's pods, to be created again after the back-off."""
        del self._held[job.number]
        self.timeouts += 1
        tries = self._tries[job.number] = self._tries.get(job.number, 0) + 1
        self._created_s[job.number] = now_s + min(MOST_BACKOFF_S, BACKOFF_S * 2 ** (tries - 1))

    def _whole(self, queue: list[GpuJob], free: Int64s) -> list[GpuJob]:
        """Return the jobs whose pods all fit, in order; record their places in `_held` and subtract from `free`."""
        left = int(free.sum())
        for job in queue:
            if job.gpus <= left and int((free // job.pod_gpus).sum()) >= job.pods:  # pods of one job are equal
                self._held[job.number] = [_place(job, free) for _ in range(job.pods)]
                left -= job.gpus
        return [job for job in queue if job.number in self._held]

    def _by_pod(self, queue: list[GpuJob], free: Int64s, now_s: float) -> list[GpuJob]:
        """Place every pod that fits; return the jobs that are complete then."""
        widest = int(free.max())
        for job in queue:
            if widest == 0:
                break
            while job.pod_gpus <= widest and len(self._held.get(job.number, [])) < job.pods:
                self._since_s[job.number] = self._since_s[job.number] if job.number in self._held else now_s
                self._held.setdefault(job.number, []).append(_place(job, free))
                widest = int(free.max())
        return [job for job in queue if len(self._held.get(job.number, [])) == job.pods]


def _place(job: GpuJob, free: Int64s) -> int:
    """Place a pod on the fullest node that can hold it, ties by number; subtract its GPUs from `free`."""
    fits = np.flatnonzero(free >= job.pod_gpus)
    node = int(fits[np.argmin(free[fits])])
    free[node] -= job.pod_gpus
    return node


def _gpus_on(nodes: list[int], job: GpuJob) -> Placed:
    """Return the GPUs on each node of pods placed on `nodes`."""
    return {node: nodes.count(node) * job.pod_gpus for node in sorted(set(nodes))}


SCHEDULER = RoundScheduler(Kubernetes)
