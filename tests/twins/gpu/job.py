"""A job of the GPU twins, how to start and stop it, and what a decision of the event clock works on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.algorithms.placement import node_gpus, packed
from simulator.gpu.cluster import GpuCluster
from simulator.gpu.profiles.profile import RESTART_S, Profile

NEVER = float("inf")


@dataclass(eq=False)
class PlainGpuJob:
    """One job; times in s from the origin. `placed` is {node: GPUs}, empty while it does not run."""

    number: int
    submit: float
    gpus: int
    run: float
    group: int
    left: float  # remaining part of `run`
    model: Profile | None = None
    elastic: bool = False
    service: float = 0.0
    level: int = 0
    since: float = 0.0
    resume: float = 0.0
    start: float = -1.0
    end: float = NEVER
    pended: float = 0.0
    waited: float = 0.0  # without GPUs until `pended`, since its last promotion
    restart_s: float = RESTART_S
    first_s: float = 0.0  # charge of its first start
    preemptions: int = 0
    restarts: int = 0
    speed: float = 1.0  # work per second
    need: NDArray[np.int64] = field(default_factory=lambda: np.ones(1, dtype=np.int64))  # per GPU, GPUs first
    pod_gpus: int = 1
    bound: int | None = None  # for single: its node, -1 if none holds it
    wake: float = NEVER  # for a policy that keeps it: when the job wakes the policy
    placed: dict[int, int] = field(default_factory=dict)
    app: int | None = None
    user: int = -1

    def settle(self, now: float) -> None:
        """Update its progress to `now` if it runs."""
        if self.placed:
            self.left = max(0.0, self.left - max(0.0, now - max(self.since, self.resume)) * self.speed)
            self.service += (now - self.since) * self.gpus
        self.since = now

    def begin(self, placed: dict[int, int], now: float, restart_s: float | None = None) -> None:
        """Run on `placed` from now on; a job that ran before pays for a restart of `restart_s` seconds."""
        self.placed, self.since = placed, now
        self.waited += now - self.pended if self.service else 0.0
        self.restarts += self.start >= 0.0
        self.resume = now + (self.first_s if self.start < 0.0 else self.restart_s if restart_s is None else restart_s)
        self.start = now if self.start < 0.0 else self.start
        self.end = self.resume + self.left

    def run_at(self, speed: float) -> None:
        """Work at `speed` from the instant to which it is settled."""
        self.speed = speed
        self.end = max(self.since, self.resume) + self.left / speed


@dataclass(eq=False)
class PlainQueue:
    """A queue of YARN. GPUs, but for `user_part` (a part of 1)."""

    parent: PlainQueue | None
    guaranteed: float
    most: float
    least: float = 0.0
    user_part: float = 1.0
    user_most: float = NEVER
    groups: set[int] = field(default_factory=set)  # of a leaf
    children: list[PlainQueue] = field(default_factory=list)  # in the order of ties

    def path(self) -> list[PlainQueue]:
        """Return the queue and those above it, the root last."""
        return [self] if self.parent is None else [self, *self.parent.path()]


@dataclass(eq=False)
class PlainGpuWorld:
    """What a policy decides on: the jobs present in order of arrival, and the free resources of each node."""

    cluster: GpuCluster
    knobs: dict[str, Any]
    quota: list[float]  # GPUs of each group
    free: NDArray[np.int64]  # (nodes, resources), GPUs first
    deaf_until: dict[int, float] = field(default_factory=dict)  # for mesos: group -> end of its filter
    left_over: int = 0  # for mesos: GPUs free after its last decision
    there: list[PlainGpuJob] = field(default_factory=list)
    ended: list[PlainGpuJob] = field(default_factory=list)
    queues: list[list[PlainGpuJob]] = field(default_factory=list)
    learned: list[PlainGpuJob] = field(default_factory=list)  # those of `ended` that the Gittins index uses
    now: float = 0.0
    tree: list[PlainQueue] = field(default_factory=list)  # for yarn: its queues, the root first


def start(job: PlainGpuJob, free: NDArray[np.int64], now: float, most_nodes: int | None = None) -> bool:
    """Start the job if it fits on the free resources, on up to `most_nodes` nodes; return whether it does.

    A job that ran before pays for a restart.
    """
    placed = packed(node_gpus(free, job.need, job.pod_gpus), job.gpus, most_nodes)
    if placed is None:
        return False
    start_on(job, free, placed, now)
    return True


def start_on(job: PlainGpuJob, free: NDArray[np.int64], placed: dict[int, int], now: float) -> None:
    """Start the job on `placed`."""
    for node, gpus in placed.items():
        free[node] -= gpus * job.need
    job.begin(placed, now)


def stop(job: PlainGpuJob, free: NDArray[np.int64], now: float) -> None:
    """Free the GPUs of a job that was settled at `now`."""
    for node, gpus in job.placed.items():
        free[node] += gpus * job.need
    job.placed, job.end, job.pended = {}, NEVER, now
    job.preemptions += 1
