"""The twin of Sia in plain Python: it computes the cost of every answer of a round.

Several answers may be best, and the rule does not choose between them. So the twin receives the scheduler's answers. It
follows an answer that has the least cost and, among those, leaves the most jobs unchanged; any other answer is an
error. The twin computes places, costs and ends of jobs by itself. It equals `simulator.gpu.policies.sia` on nodes of
any sizes and types, for gangs with and without profiles, elastic and rigid, that fit the nodes of some kind, in rounds
with a total cost below ten. There the solver's gap is smaller than the least difference of two costs. The gap does not
guarantee that most jobs stay unchanged; the twin requires it nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from simulator.gpu.algorithms.assignment import UNASSIGNED
from simulator.gpu.profiles.profile import RESTART_S
from simulator.gpu.profiles.scaling import goodput
from simulator.gpu.round_policy import GpuMachine
from tests.twins.gpu.job import PlainGpuJob
from tests.twins.gpu.rounds import Placed, best_fit, less


class Given(NamedTuple):
    """A number of GPUs of one pool, on the fewest nodes that hold them there."""

    pool: int
    gpus: int
    nodes: int


class Cost(NamedTuple):
    """The cost of an answer, lower is better: hundredths first, then the number of changed jobs."""

    hundredths: int
    moved: int


class PlainSia:
    """The scheduler with its state between rounds, and the `answers` that it receives, one per round."""

    pause_s: float | None = None
    settled = False

    def __init__(
        self, machine: GpuMachine, round_s: float, most_times: int, answers: Sequence[dict[int, Placed]]
    ) -> None:
        self.round_s, self.most_times = round_s, most_times
        self.guests: dict[int, int] = {}
        self.answers: Iterator[dict[int, Placed]] = iter(answers)
        self.free = machine.gpus.tolist()
        alike = sorted({(kind, gpus) for kind, gpus in zip(machine.types, self.free, strict=True)})
        self.kinds = [kind for kind, _ in alike]
        self.sizes = [gpus for _, gpus in alike]
        nodes = range(len(self.free))
        self.pools = [[node for node in nodes if (machine.types[node], self.free[node]) == one] for one in alike]
        self.given: dict[int, Given] = {}

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, Placed]:
        """Decide as `PlainPolicy` requires. Raises ValueError for an answer that is not one of the best."""
        result = {number: self._told(placed) for number, placed in next(self.answers).items()}
        self.given = {job.number: self.given[job.number] for job in there if job.placed}
        pinned = {job.number for job in there if job.placed and job.resume > now}
        wanted = {number: self.given[number] for number in pinned}
        room = [
            len(nodes) * size - sum(given.gpus for given in wanted.values() if given.pool == pool)
            for pool, (nodes, size) in enumerate(zip(self.pools, self.sizes, strict=True))
        ]
        asking = [job for job in there if job.number not in pinned]
        tables = {job.number: self._costs(job, now) for job in asking}
        answer = {job.number: result.get(job.number) for job in asking}
        found = _sum([tables[number][given] for number, given in answer.items()])
        if any(result.get(number) != given for number, given in wanted.items()) or found != best(tables, room):
            raise ValueError(f"at {now:.0f} s the answer costs {found}, but the best costs {best(tables, room)}")
        wanted |= {number: given for number, given in answer.items() if given is not None}
        return self._place({job.number: job for job in there}, wanted)

    def _told(self, placed: Placed) -> Given:
        (pool,) = {pool for pool, nodes in enumerate(self.pools) for node in placed if node in nodes}
        gpus = sum(placed.values())
        return Given(pool, gpus, ceil(gpus / self.sizes[pool]))

    def _allowed(self, job: PlainGpuJob) -> list[Given]:
        held = self.given[job.number].gpus if job.placed else job.gpus
        found = []
        for pool, (nodes, size) in enumerate(zip(self.pools, self.sizes, strict=True)):
            if job.elastic:
                most = min(self.most_times * job.gpus, max(1, 2 * held))
                inside = [2**power for power in range(size) if 2**power < size]
                counts = [gpus for gpus in (*inside, *(size * n for n in range(1, len(nodes) + 1))) if gpus <= most]
            else:
                counts = [job.gpus] if job.gpus <= size * len(nodes) else []
            found += [Given(pool, gpus, ceil(gpus / size)) for gpus in counts]
        return found

    def _costs(self, job: PlainGpuJob, now: float) -> dict[Given | None, Cost]:
        """Return the cost of each allocation of the job, with None for no allocation."""
        allowed, has = self._allowed(job), self.given[job.number] if job.placed else None
        useful = [self._goodput(job, given) for given in allowed]
        restart_s = RESTART_S if job.model is None else job.model.restart_s
        age_s = now - job.submit
        left = 1.0 if age_s < restart_s else max(0.01, (age_s - job.restarts * restart_s) / (age_s + restart_s))
        found: dict[Given | None, Cost] = {None: Cost(round(100 * UNASSIGNED), int(has is not None))}
        for given, one in zip(allowed, useful, strict=True):
            value = one / min(useful) * min(other.gpus for other in allowed)
            stays = has is None or given == has
            cost = np.round(min((value if stays else value * left) ** -0.5, 3000.0), 2)
            found[given] = Cost(round(100 * float(cost)), int(has is not None and given != has))
        return found

    def _goodput(self, job: PlainGpuJob, given: Given) -> float:
        if job.model is None:
            return float(given.gpus)
        return goodput(job.model, self.kinds[given.pool], given.gpus, given.nodes, job.gpus)

    def _place(self, jobs: dict[int, PlainGpuJob], wanted: dict[int, Given]) -> dict[int, Placed]:
        """Place the jobs: unchanged jobs keep their GPUs; then the others, most GPUs first."""
        placed = {number: jobs[number].placed for number, given in wanted.items() if self.given.get(number) == given}
        for number, given in sorted(wanted.items(), key=lambda one: (-one[1].gpus, one[0])):
            if number not in placed:
                free = less(self.free, *placed.values())
                inside = best_fit([free[node] for node in self.pools[given.pool]], given.gpus)
                if inside is not None:
                    placed[number] = {self.pools[given.pool][node]: gpus for node, gpus in inside.items()}
        self.given = {number: wanted[number] for number in placed}
        return placed


def best(tables: dict[int, dict[Given | None, Cost]], room: list[int]) -> Cost:
    """Return the least cost of any answer, from the cheapest way to each number of GPUs left, job by job."""
    ways = {tuple(room): Cost(0, 0)}
    for table in tables.values():
        following: dict[tuple[int, ...], Cost] = {}
        for left, so_far in ways.items():
            for given, cost in table.items():
                rest = list(left)
                if given is not None:
                    rest[given.pool] -= given.gpus
                if min(rest) >= 0:
                    total = _sum([so_far, cost])
                    following[tuple(rest)] = min(total, following.get(tuple(rest), total))
        ways = following
    return min(ways.values())


def _sum(costs: list[Cost]) -> Cost:
    return Cost(sum(cost.hundredths for cost in costs), sum(cost.moved for cost in costs))
