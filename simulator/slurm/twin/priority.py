"""The twin's priorities: docs/schedulers/slurm.md, "Priority"."""

from __future__ import annotations

import math

from simulator.slurm import world as w
from simulator.slurm.twin.machine import Job


def static_priority(world: w.World, job: Job) -> float:
    """The terms that do not change while the job waits."""
    settings, jobs, request = world.settings, world.jobs, job.request
    every_node, every_cpu = len(world.nodes), int(world.nodes.cpus.sum())
    size = 0.0
    if settings.weight_job_size:
        if settings.favor_small:
            factor = 0.5 * ((every_node - job.nodes) / every_node + (every_cpu - request[w.CPU]) / every_cpu)
        else:
            factor = 0.5 * (job.nodes / every_node + request[w.CPU] / every_cpu)
        size = settings.weight_job_size * min(1.0, max(0.0, factor))
    factors = world.partitions.priority_job_factor.tolist()
    partition = settings.weight_partition * (factors[job.partition] / max(factors)) if max(factors) else 0.0
    priorities = world.qos.priority.tolist()
    qos = settings.weight_qos * (priorities[job.qos] / max(priorities)) if max(priorities) else 0.0
    members = world.partitions.nodes[job.partition]
    totals = [
        int(world.nodes.cpus[members].sum()),
        int(world.nodes.memory_mb[members].sum()),
        int(members.sum()),
        int(world.nodes.gpus[members].sum()),
    ]
    tres = 0.0
    for weight, need, total in zip(settings.weight_tres, request, totals, strict=True):
        if total:
            tres += weight * (need / total)
    return ((((size + partition) + qos) + tres) + float(jobs.site_factor[job.row])) - int(jobs.nice[job.row])


class FairTree:
    """Usage of the associations, decayed, and the factor that each user association has from it."""

    def __init__(self, world: w.World) -> None:
        self.world = world
        tree = world.associations
        self.children: dict[int, list[int]] = {row: [] for row in range(-1, len(tree))}
        for row, parent in enumerate(tree.parent.tolist()):
            self.children[parent].append(row)
        self.usage = [0.0] * len(tree)
        self.fresh = [0] * len(tree)
        self.since: dict[int, int] = {}  # running job -> second up to which it is charged
        self.factor = self._factors()

    def begin(self, row: int, now: int) -> None:
        self.since[row] = now

    def charge(self, job: Job, now: int, *, ends: bool) -> None:
        """Charge a running job up to now to its association and all above."""
        seconds = now - self.since.pop(job.row)
        if not ends:
            self.since[job.row] = now
        world = self.world
        billing = 0.0
        for weight, need in zip(world.partitions.billing[job.partition].tolist(), job.request, strict=True):
            billing += weight * need
        rate = round(1000 * float(world.qos.usage_factor[job.qos]) * billing)
        association = int(world.jobs.association[job.row])
        while association != w.NONE:
            self.fresh[association] += rate * seconds
            association = int(world.associations.parent[association])

    def calculate(self, running: list[Job], now: int) -> None:
        """One decay period is over."""
        settings = self.world.settings
        for job in running:
            self.charge(job, now, ends=False)
        decay = 1.0
        if settings.decay_half_life_s:
            decay = (1 - 0.693 / settings.decay_half_life_s) ** settings.calc_period_s
        self.usage = [used * decay + fresh for used, fresh in zip(self.usage, self.fresh, strict=True)]
        self.fresh = [0] * len(self.fresh)
        self.factor = self._factors()

    def _level_fairshare(self, row: int) -> float:
        tree = self.world.associations
        siblings = self.children[int(tree.parent[row])]
        if self.usage[row] == 0:
            return math.inf
        if tree.shares[row] == 0:
            return 0.0
        shares = int(tree.shares[row]) / int(sum(tree.shares[other] for other in siblings))
        used = 0.0
        for other in siblings:  # by row: sums of doubles depend on their order
            used += self.usage[other]
        return shares / (self.usage[row] / used)

    def _factors(self) -> dict[int, float]:
        users = int((self.world.associations.user != w.NONE).sum())
        factor: dict[int, float] = dict.fromkeys(range(len(self.usage)), 0.0)
        self.next_rank = users

        def walk(rows: list[int]) -> None:
            """Siblings (of one account, or of several that are walked as one) in falling order of fair share."""
            is_user = self.world.associations.user != w.NONE
            order = sorted(rows, key=lambda row: (-self._level_fairshare(row), not is_user[row], row))
            at = 0
            while at < len(order):
                same = [order[at]]
                for row in order[at + 1 :]:
                    equal = self._level_fairshare(row) == self._level_fairshare(same[0])
                    if not equal or is_user[row] != is_user[same[0]]:
                        break
                    same.append(row)
                at += len(same)
                if is_user[same[0]]:
                    for row in same:
                        factor[row] = self.next_rank / users
                    self.next_rank -= len(same)
                else:
                    walk([child for row in same for child in self.children[row]])

        walk(self.children[0])
        return factor
