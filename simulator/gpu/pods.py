"""The nodes of a Kubernetes cluster with their pods: which can hold a pod, which is best, and what it displaces.

GPUs are devices of 1,000 thousandths. A pod of whole GPUs takes free devices; a pod that asks for a part takes it from
one device, which other parts may share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.gpu.algorithms.placement import node_gpus
from simulator.gpu.round_policy import GpuJob, GpuMachine
from traces.arrays import Bools, Int64s

WHOLE = 1000  # thousandths of a GPU
TOP_SCORE = 100  # of one scoring rule, as in Kubernetes


class Pod(NamedTuple):
    """A placed pod: its node, the devices that it has there, and whose it is."""

    node: int
    devices: tuple[int, ...]
    job: GpuJob
    since_s: float  # when it was placed


@dataclass(frozen=True)
class Scoring:
    """How nodes are scored: LeastAllocated, or with `pack` MostAllocated, and BalancedAllocation.

    CPUs and memory have weight 1, as by default in Kubernetes, and GPUs `gpu_weight`. GPUs have weight 1 where a log
    has no CPUs and memory.
    """

    pack: bool = False
    gpu_weight: float = 0.0


class PodNodes:
    """What is free on each node, and the placed pods."""

    def __init__(self, machine: GpuMachine, scoring: Scoring) -> None:
        others = np.zeros((len(machine.gpus), 0), dtype=np.int64) if machine.others is None else machine.others
        widest = int(machine.gpus.max())
        self.devices = WHOLE * (np.arange(widest) < machine.gpus[:, None]).astype(np.int64)  # thousandths free
        self.free = others.copy()  # (nodes, resources) besides GPUs
        self.pods: dict[int, list[Pod]] = {}  # job -> its placed pods
        self._scoring = scoring
        self._capacity = np.column_stack([others, WHOLE * machine.gpus])
        gpu_weight = scoring.gpu_weight if others.shape[1] else 1.0
        self._weights = np.array([1.0] * others.shape[1] + [gpu_weight])
        self._labels = np.array(machine.labels)
        self._accepts: dict[tuple[object, ...], Bools] = {}

    def accepts(self, job: GpuJob) -> Bools:
        """Return which nodes have a GPU model that the job asks for, (nodes,).

        All have, if it asks for none, or if the nodes of those models could not hold the job even if they were empty.
        """
        shape = (job.accepts, job.pods, job.pod_gpus, job.need)
        if shape not in self._accepts:
            named = np.isin(self._labels, job.accepts) if len(self._labels) else np.zeros(len(self.free), np.bool_)
            need = np.array([WHOLE, *(job.need or (0,) * self.free.shape[1])])
            capacity = np.column_stack([self._capacity[named, -1], self._capacity[named, :-1]])
            is_able = int(node_gpus(capacity, need, job.pod_gpus).sum()) >= job.gpus
            self._accepts[shape] = named if is_able else np.ones(len(self.free), dtype=np.bool_)
        return self._accepts[shape]

    def fits(self, job: GpuJob) -> Bools:
        """Return which nodes can hold a pod of the job now, (nodes,): Kubernetes' filters."""
        return self._have_room(job, slice(None)) & self.accepts(job)

    def place(self, job: GpuJob, now_s: float) -> bool:
        """Place a pod on the node with the highest score, ties by number; return whether one can hold it."""
        able = np.flatnonzero(self.fits(job))
        if len(able):
            self.put(job, int(able[np.argmax(self._scores(job, able))]), now_s)
        return len(able) > 0

    def _scores(self, job: GpuJob, nodes: Int64s) -> Int64s:
        """Return the score of each of `nodes` with the pod on it, in whole points as in Kubernetes."""
        need = np.array([*(job.need or (0,) * self.free.shape[1]), job.gpu_milli]) * job.pod_gpus
        counts = self._weights > 0
        capacity = self._capacity[nodes][:, counts]
        free = np.column_stack([self.free[nodes], self.devices[nodes].sum(axis=1)])[:, counts] - need[counts]
        part = (capacity - free if self._scoring.pack else free) * TOP_SCORE // capacity
        fit = (part * self._weights[counts]).sum(axis=1) // self._weights[counts].sum()
        spread = ((capacity - free) / capacity).std(axis=1)
        return np.asarray(fit + np.floor((1.0 - spread) * TOP_SCORE), dtype=np.int64)

    def put(self, job: GpuJob, node: int, now_s: float) -> None:
        """Place a pod on the node, on its fullest devices that can hold it."""
        free = self.devices[node]
        able = np.flatnonzero(free >= job.gpu_milli)
        devices = able[np.argsort(free[able], kind="stable")][: job.pod_gpus]
        pod = Pod(node, tuple(devices.tolist()), job, now_s)
        self.pods.setdefault(job.number, []).append(pod)
        self._take(pod, 1)

    def remove(self, number: int) -> None:
        """Delete all pods of the job."""
        for pod in self.pods.pop(number, ()):
            self._take(pod, -1)

    def _take(self, pod: Pod, sign: int) -> None:
        self.devices[pod.node, list(pod.devices)] -= sign * pod.job.gpu_milli
        if pod.job.need and self.free.shape[1]:
            self.free[pod.node] -= sign * np.array(pod.job.need) * pod.job.pod_gpus

    def restore(self, number: int, pods: Iterable[Pod]) -> None:
        """Bring back the pods of a job that were removed."""
        self.pods[number] = list(pods)
        for pod in self.pods[number]:
            self._take(pod, 1)

    def victims(self, job: GpuJob) -> list[GpuJob]:
        """Return the jobs to stop so that a pod of `job` fits on one node; [] if that is not enough anywhere.

        Only pods of lower priority are victims. On each node as many of them as possible are kept, the highest priority
        and the oldest first. The chosen node has the lowest highest priority among its victims. Ties: the least sum of
        their priorities, then the fewest victims, then the youngest victim of highest priority, then the first node.
        """
        lower: dict[int, list[Pod]] = {}
        for pods in self.pods.values():
            if pods[0].job.priority < job.priority:
                for pod in pods:
                    lower.setdefault(pod.node, []).append(pod)
        best: tuple[tuple[float, ...], list[Pod]] | None = None
        accepts = self.accepts(job)
        for node in sorted(lower):
            found = self._node_victims(job, node, lower[node]) if accepts[node] else []
            if found:
                top = max(pod.job.priority for pod in found)
                oldest_s = min(pod.since_s for pod in found if pod.job.priority == top)
                rank = (top, sum(pod.job.priority for pod in found), len(found), -oldest_s)
                if best is None or rank < best[0]:
                    best = rank, found
        return list({pod.job.number: pod.job for pod in best[1]}.values()) if best else []

    def _node_victims(self, job: GpuJob, node: int, lower: list[Pod]) -> list[Pod]:
        """Return the pods of `lower`, all on the node, that must go so that a pod of the job fits; [] if it cannot."""
        for pod in lower:
            self._take(pod, -1)
        gone = []
        if self._have_room(job, slice(node, node + 1))[0]:
            for pod in sorted(lower, key=lambda pod: (-pod.job.priority, pod.since_s, pod.job.number)):
                self._take(pod, 1)
                if not self._have_room(job, slice(node, node + 1))[0]:
                    self._take(pod, -1)
                    gone.append(pod)
            lower = gone
        for pod in lower:
            self._take(pod, 1)
        return gone

    def _have_room(self, job: GpuJob, nodes: slice) -> Bools:
        """Return which of `nodes` have the free GPUs, CPUs and memory of a pod, (nodes,)."""
        able = (self.devices[nodes] >= job.gpu_milli).sum(axis=1) >= job.pod_gpus
        if job.need and self.free.shape[1]:
            able &= (self.free[nodes] >= np.array(job.need) * job.pod_gpus).all(axis=1)
        return np.asarray(able, dtype=np.bool_)
