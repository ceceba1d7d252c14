"""The state of the twin as plain data: jobs, idle resources of each node, usage, and the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.slurm import world as w

ENDED = (w.COMPLETED, w.FAILED, w.TIMEOUT, w.CANCELLED, w.PREEMPTED, w.UNPLACEABLE)


@dataclass
class PlainSlurmJob:
    """One job: its fixed request and its current state. Times in s of the trace's clock."""

    row: int
    submit: int
    eligible: int
    cancel: int
    run: int
    limit: int
    nodes: int
    share: tuple[int, int, int]  # CPUs, MB and GPUs of each of its nodes
    gpu_type: int
    whole: bool  # takes its nodes whole
    partition: int
    qos: int
    state: int = w.FUTURE
    reason: int = w.PLACEABLE
    queued: bool = False
    accrue: int = 0  # second from which its age counts
    static: float = 0.0  # the part of the priority that does not change while it waits
    priority: int = 0
    start: int = w.NONE
    first_start: int = w.NONE  # a requeue resets `start` but not this
    end: int = w.NONE
    expected_end: int = w.NONE
    held: list[int] = field(default_factory=list)  # the nodes it runs on, rising
    restarts: int = 0
    by_backfill: bool = False

    @property
    def request(self) -> list[int]:
        """Return the CPUs, MB, nodes and GPUs that limits, usage and priority count."""
        cpus, memory, gpus = (self.nodes * share for share in self.share)
        return [cpus, memory, self.nodes, gpus]


@dataclass
class PlainMachine:
    """The idle resources of each node. Looking ahead works on a copy."""

    world: w.SlurmWorld
    total: list[tuple[int, int, int]]  # CPUs, MB and GPUs of each node
    idle: list[list[int]]  # CPUs, MB and GPUs of each node that no job holds
    running_on: list[list[int]]  # rows of the jobs on each node

    def copy(self) -> PlainMachine:
        """Return an independent copy."""
        return PlainMachine(
            self.world, self.total, [list(idle) for idle in self.idle], [list(rows) for rows in self.running_on]
        )


@dataclass
class PlainUsage:
    """The usage of the associations and the resulting fair-share factors; lists by association."""

    children: dict[int, list[int]]  # association -> rows below it; -1 -> the root
    decayed: list[float]  # TRES seconds up to the last calculation, halved every half life
    fresh: list[int]  # thousandths of them since then
    since: dict[int, int]  # row of a running job -> second up to which it is charged
    factor: dict[int, float]  # association -> factor, 0 for accounts


@dataclass
class PlainController:
    """The simulated world and its changing state."""

    world: w.SlurmWorld
    free_from: int  # only pinned starts happen before this second
    until: int  # the last simulated second
    jobs: list[PlainSlurmJob]
    machine: PlainMachine
    usage: PlainUsage
    now: int = 0
    out: set[int] = field(default_factory=set)  # nodes out of service because the capacity is below their number
    last_main: float = -math.inf  # last main pass that was full or requested
    last_backfill: float = -math.inf
    requested: bool = False  # whether a main pass is requested

    @property
    def settings(self) -> w.SlurmSettings:
        """slurm.conf."""
        return self.world.settings

    @property
    def running(self) -> list[PlainSlurmJob]:
        """Return the running jobs by row."""
        return [job for job in self.jobs if job.state == w.RUNNING]


def at_the_beginning(world: w.SlurmWorld, free_from: int, until: int) -> PlainController:
    """Return the initial state: no job is submitted, every node is idle, and no usage is recorded."""
    tree = world.associations
    children: dict[int, list[int]] = {row: [] for row in range(-1, len(tree))}
    for row, parent in enumerate(tree.parent.tolist()):
        children[parent].append(row)
    total = list(zip(world.nodes.cpus.tolist(), world.nodes.memory_mb.tolist(), world.nodes.gpus.tolist(), strict=True))
    return PlainController(
        world, free_from, until,
        jobs=[_job(world, row) for row in range(len(world.jobs))],
        machine=PlainMachine(world, total, [list(each) for each in total], [[] for _ in total]),
        usage=PlainUsage(children, [0.0] * len(tree), [0] * len(tree), {}, {}),
    )  # fmt: skip


def _job(world: w.SlurmWorld, row: int) -> PlainSlurmJob:
    jobs, partition = world.jobs, int(world.jobs.partition[row])
    whole = bool(jobs.exclusive[row]) or (partition != w.NONE and bool(world.partitions.exclusive[partition]))
    return PlainSlurmJob(
        row, int(jobs.submit_s[row]), int(jobs.eligible_s[row]), int(jobs.cancel_s[row]), int(jobs.run_s[row]),
        int(jobs.limit_s[row]), int(jobs.nodes[row]),
        (int(jobs.cpus_per_node[row]), int(jobs.memory_per_node_mb[row]), int(jobs.gpus_per_node[row])),
        int(jobs.gpu_type[row]), whole, partition, int(jobs.qos[row]),
    )  # fmt: skip
