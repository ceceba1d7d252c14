"""Kubernetes with and without gang scheduling: all pods of a job or none, or each pod as soon as it fits somewhere.

Kubernetes' own scheduler places pods one by one, in order of their creation, and knows nothing of jobs; a pod that does
not fit lets others pass. A job of several pods works once the last is placed, and until then those that have a place
hold their GPUs idle. Two jobs that each hold what the other lacks wait for each other, until one gives up: `timeout_s`
after its first pod was placed its pods are deleted and created again, behind those that wait by then, after a back-off
of 10 s that doubles up to 360 s (that of Kubernetes' Job controller). With `gang` (the coscheduling plugin, Volcano,
Kueue) a job is placed when all of its pods fit, and holds nothing before.

Our reading: decisions every `round_s`; pods are tried in order of creation, those of one job together; a pod goes to
the fullest node that holds it in both, so that nothing but the gang differs; the time-out of ten minutes is stated, for
Kubernetes has none. Pods are never preempted.
"""

from __future__ import annotations

import numpy as np

from simulator.gpu.algorithms.placement import Int64s, take
from simulator.gpu.rounds import NOBODY, GpuJob, Placed, View, check_seconds
from traces.counted import counted

BACKOFF_S, MOST_BACKOFF_S = 10.0, 360.0


class Kubernetes:
    """Pods in order of creation, a job at a time with `gang`, else each by itself."""

    pause_s: float | None = None
    guests = NOBODY

    def __init__(self, round_s: float = 60.0, gang: bool = False, timeout_s: float = 600.0) -> None:
        check_seconds("kubernetes", round_s=round_s, timeout_s=timeout_s)
        self.round_s, self.gang, self.timeout_s = round_s, gang, timeout_s
        self.settled = False
        self.timeouts = 0
        self.idle_gpu_s = 0.0  # held by pods whose job was not whole
        self._held: dict[int, list[int]] = {}  # job without all of its pods -> node of each pod that is placed
        self._since_s: dict[int, float] = {}  # of those: when the first was
        self._created_s: dict[int, float] = {}  # of jobs that gave up: when their pods are there again
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
        """What was assumed and counted, for the person who asked."""
        if self.gang:
            return ["kubernetes: with gang a job holds nothing before all of its pods fit"]
        return [
            f"kubernetes: pods whose job was not whole held {self.idle_gpu_s / 3600:,.0f} GPU hours idle, and "
            f"{counted(self.timeouts, 'time')} a job gave up after {self.timeout_s:g} s"
        ]

    def _created(self, job: GpuJob) -> float:
        return self._created_s.get(job.number, job.submit_s)

    def _give_up(self, job: GpuJob, now_s: float) -> None:
        """Its pods are deleted, and created again after the back-off."""
        del self._held[job.number]
        self.timeouts += 1
        tries = self._tries[job.number] = self._tries.get(job.number, 0) + 1
        self._created_s[job.number] = now_s + min(MOST_BACKOFF_S, BACKOFF_S * 2 ** (tries - 1))

    def _whole(self, queue: list[GpuJob], free: Int64s) -> list[GpuJob]:
        """The jobs all of whose pods fit, in order; their places are `_held` and taken out of `free`."""
        left = int(free.sum())
        for job in queue:
            if job.gpus <= left and int((free // job.pod_gpus).sum()) >= job.pods:  # pods of one job are alike
                self._held[job.number] = [_place(job, free) for _ in range(job.pods)]
                left -= job.gpus
        return [job for job in queue if job.number in self._held]

    def _by_pod(self, queue: list[GpuJob], free: Int64s, now_s: float) -> list[GpuJob]:
        """Places every pod that fits; the jobs that are whole then."""
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
    """The fullest node that holds one pod of the job, by number where alike; its GPUs are taken out of `free`."""
    fits = np.flatnonzero(free >= job.pod_gpus)
    node = int(fits[np.argmin(free[fits])])
    free[node] -= job.pod_gpus
    return node


def _gpus_on(nodes: list[int], job: GpuJob) -> Placed:
    """GPUs on each node of the pods that lie on `nodes`."""
    return {node: nodes.count(node) * job.pod_gpus for node in sorted(set(nodes))}
