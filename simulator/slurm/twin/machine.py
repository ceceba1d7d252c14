"""The twin's jobs and nodes: what a job asks for, what is idle, and which nodes a placement takes.

docs/schedulers/slurm.md, "Words" and "Placement".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.slurm import world as w


@dataclass
class Job:
    """One job: its request, which stays, and where it stands."""

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
    accrue: int = 0
    static: float = 0.0
    priority: int = 0
    start: int = w.NONE
    first_start: int = w.NONE  # a requeue takes `start` back, not this
    end: int = w.NONE
    expected_end: int = w.NONE
    held: list[int] = field(default_factory=list)
    restarts: int = 0
    by_backfill: bool = False

    @property
    def request(self) -> list[int]:
        """CPUs, MB, nodes and GPUs that limits, usage and priority count."""
        cpus, memory, gpus = (self.nodes * share for share in self.share)
        return [cpus, memory, self.nodes, gpus]


class Machine:
    """What is idle on each node. A copy is what a look ahead plays with."""

    def __init__(self, world: w.World) -> None:
        self.world = world
        self.total = list(
            zip(world.nodes.cpus.tolist(), world.nodes.memory_mb.tolist(), world.nodes.gpus.tolist(), strict=True)
        )
        self.idle = [list(total) for total in self.total]
        self.running_on: list[list[int]] = [[] for _ in self.total]

    def copy(self) -> Machine:
        other = Machine.__new__(Machine)
        other.world, other.total = self.world, self.total
        other.idle = [list(idle) for idle in self.idle]
        other.running_on = [list(rows) for rows in self.running_on]
        return other

    def _takes(self, job: Job, node: int) -> tuple[int, ...]:
        return self.total[node] if job.whole else job.share

    def put(self, job: Job, nodes: list[int]) -> None:
        for node in nodes:
            self.running_on[node].append(job.row)
            self.idle[node] = [has - need for has, need in zip(self.idle[node], self._takes(job, node), strict=True)]

    def remove(self, job: Job) -> None:
        for node in job.held:
            self.running_on[node].remove(job.row)
            self.idle[node] = [has + need for has, need in zip(self.idle[node], self._takes(job, node), strict=True)]

    def could_hold(self, job: Job, node: int) -> bool:
        """Whether the node holds the share with nothing running on it."""
        kind = int(self.world.nodes.gpu_type[node])
        return not (job.gpu_type != w.NONE and job.share[2] > 0 and kind != job.gpu_type) and all(
            has >= need for has, need in zip(self.total[node], job.share, strict=True)
        )

    def holds(self, job: Job, node: int) -> bool:
        if not self.could_hold(job, node):
            return False
        if job.whole:
            return not self.running_on[node]
        return all(has >= need for has, need in zip(self.idle[node], job.share, strict=True))

    def place(self, job: Job, available: set[int]) -> list[int] | None:
        """The nodes that the job would get of the available ones, rising; None where they do not suffice."""
        fit = [node for node in sorted(available) if self.holds(job, node)]
        if len(fit) < job.nodes:
            return None
        weight = self.world.nodes.weight
        if self.world.partitions.least_loaded[job.partition]:
            return sorted(sorted(fit, key=lambda node: (weight[node], -self.idle[node][0], node))[: job.nodes])
        runs: list[list[int]] = []
        for node in fit:
            if runs and runs[-1][-1] == node - 1 and weight[node] == weight[node - 1]:
                runs[-1].append(node)
            else:
                runs.append([node])
        chosen: list[int] = []
        while len(chosen) < job.nodes:
            missing = job.nodes - len(chosen)
            run = min(runs, key=lambda run: self._rank(run, missing))
            runs.remove(run)
            chosen += run[:missing]
        return sorted(chosen)

    def _rank(self, run: list[int], missing: int) -> tuple[int, bool, int, int]:
        enough = len(run) >= missing
        return int(self.world.nodes.weight[run[0]]), not enough, len(run) if enough else -len(run), run[0]
