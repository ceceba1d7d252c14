"""What a scheduler of rounds decides about: the machine, the jobs, and how fast a job runs on which GPUs.

`simulator.gpu.rounds` is the clock that calls a `RoundPolicy` and carries out its decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol

from simulator.gpu.algorithms.placement import fewest_nodes, packed_whole
from simulator.gpu.profiles.profile import RESTART_S, Placement, Profile, rotated
from simulator.gpu.profiles.scaling import goodput
from simulator.gpu.training import Training
from traces.arrays import Int64s

Placed = dict[int, int]  # node -> GPUs

NOBODY: Mapping[int, int] = MappingProxyType({})  # the guests of a policy that packs no jobs


@dataclass(frozen=True, eq=False)
class GpuMachine:
    """The cluster: GPUs and GPU type of each node, (nodes,) each, and the reference type of recorded run times."""

    gpus: Int64s
    types: list[str]
    reference: str
    others: Int64s | None = None  # (nodes, resources): what nodes have besides GPUs, if known
    labels: tuple[str, ...] = ()  # GPU model of each node as the machine list names it, if known
    quotas: Mapping[str, float] = field(default_factory=dict)  # GPUs of each group, for a policy that has quotas

    @cached_property
    def total(self) -> int:
        """Return the GPUs of all nodes."""
        return int(self.gpus.sum())

    @cached_property
    def widest(self) -> int:
        """Return the GPUs of the largest node of the reference type."""
        own = [int(gpus) for gpus, kind in zip(self.gpus, self.types, strict=True) if kind == self.reference]
        return max(own)


@dataclass(slots=True, eq=False)
class GpuJob:
    """One job and its current state. A policy may read it but not change it."""

    number: int
    submit_s: float
    gpus: int  # GPUs requested
    run_s: float  # run time on those GPUs
    group: str = ""  # virtual cluster or user, if the trace has one
    model: Profile | None = None
    elastic: bool = False
    pod_gpus: int = 1  # GPUs of a pod, all on one node; divides `gpus`
    batch: float | None = None  # samples of a step over all GPUs, if the user gives it
    work: float | None = None  # total work, in steps of the model's own batch, if the user gives it
    least: int = 1  # least GPUs of an elastic job
    most: int | None = None  # most GPUs of an elastic job; None: the policy's own rule
    restart_s: float | None = None  # seconds of a checkpoint and a start from it; None: the model's
    app: int | None = None  # application whose trials share it
    need: tuple[int, ...] = ()  # other resources per GPU, in the order of `GpuMachine.others`
    gpu_milli: int = 1000  # thousandths that it takes of each of its GPUs
    priority: int = 0
    accepts: tuple[str, ...] = ()  # GPU models that it asks for; () is any
    counted_batch: float | None = None  # batch up to which a scheduler counts on a job that chooses its batch
    training: Training | None = None  # progress of a job that declares its work; the clock makes it
    fails_s: float | None = None  # run time of its first attempt, if that fails by an error that shows on one GPU
    hopeless_s: float | None = None  # run time until its first failure that no retry cures; the rest are retries
    left_s: float = 0.0  # remaining part of run_s at `since_s`
    gpu_s: float = 0.0  # attained GPU seconds, including charges
    gpu_s_by_type: dict[str, float] = field(default_factory=dict)  # the same on each GPU type
    lost_gpu_s: float = 0.0  # GPU seconds spent on charges
    restarts: int = 0
    preemptions: int = 0
    placed: Placed = field(default_factory=dict)
    speed: float = 0.0
    since_s: float = 0.0  # last change of the allocation, or last call of the policy
    resume_s: float = 0.0  # when progress resumes after a charge
    start_s: float = -1.0
    end_s: float = -1.0
    ran_s: float = 0.0  # seconds in which it held GPUs

    @property
    def pods(self) -> int:
        """Return the number of pods, for policies that place pods."""
        return self.gpus // self.pod_gpus

    @property
    def restart_cost_s(self) -> float:
        """Return the seconds of a checkpoint and a start from it: the job's own, else its model's, else RESTART_S."""
        if self.restart_s is not None:
            return self.restart_s
        return RESTART_S if self.model is None else self.model.restart_s

    @property
    def held(self) -> float:
        """Return the number of GPUs that it has now; the part of one that it shares counts as a part."""
        return sum(self.placed.values()) * self.gpu_milli / 1000


class View(NamedTuple):
    """The input of a decision: the instant, the machine, and the present jobs in order of arrival."""

    now_s: float
    machine: GpuMachine
    jobs: Sequence[GpuJob]


def first_that_fit(jobs: Sequence[GpuJob], gpus: int) -> list[GpuJob]:
    """Return the first jobs that together need at most `gpus` GPUs; a job that does not fit lets others pass."""
    chosen = []
    for job in jobs:
        if job.gpus <= gpus:
            chosen.append(job)
            gpus -= job.gpus
    return chosen


class RoundPolicy(Protocol):
    """A scheduler that decides about the whole cluster every `round_s` seconds."""

    round_s: float
    pause_s: float | None  # cost of stopping and resuming a job; None: the model's restart

    @property
    def guests(self) -> Mapping[int, int]:
        """Return job -> the job whose GPUs it shares, for the last decision of a policy that packs jobs."""
        ...

    def decide(self, view: View) -> dict[int, Placed]:
        """Return job number -> {node: GPUs} of every job that runs until the next tick; all other jobs are stopped."""
        ...


def speed(job: GpuJob, placed: Placed, machine: GpuMachine) -> float:
    """Return the progress per second on `placed`; 1 on the requested GPUs, packed on the reference type.

    A gang on several types runs at the speed of its slowest GPUs. A job that trains counts the steps of its batch.
    """
    gpus, nodes = sum(placed.values()), len(placed)
    if job.model is None:
        return gpus / job.gpus
    if job.training is not None:
        own = job.training.steps_per_s((machine.reference,), packed_whole(job.gpus, machine.widest))
        return job.training.steps_per_s(*shape(placed, machine)) / own
    own = goodput(job.model, machine.reference, job.gpus, fewest_nodes(job.gpus, machine.widest), job.gpus)
    return (
        min(goodput(job.model, kind, gpus, nodes, job.gpus) for kind in {machine.types[node] for node in placed}) / own
    )


def shape(placed: Placed, machine: GpuMachine) -> tuple[tuple[str, ...], Placement]:
    """Return the GPU types of `placed`, and its GPUs on each node up to rotation: what its speed follows from."""
    types = tuple(sorted({machine.types[node] for node in placed}))
    return types, rotated(tuple(placed[node] for node in sorted(placed)))
