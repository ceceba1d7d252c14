"""The twin of Lyra in plain Python: loans, reclaims, starts and growth, each computed directly from the rule.

Servers are returned by their cost, recomputed after each; extra GPUs are tried in every combination. The twin equals
`simulator.gpu.policies.lyra` with both of its switches, on nodes of any sizes and types, for a few elastic gangs at a
time. Among equal combinations, the first jobs get the fewest extra GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from simulator.gpu.round_policy import GpuMachine
from tests.twins.gpu.job import PlainGpuJob
from tests.twins.gpu.rounds import Placed, best_fit, holds, less, restart_s, speed


class PlainLyra:
    """The scheduler with its state between rounds; `in_use`: servers that inference needs at a time in s."""

    settled = False

    def __init__(
        self,
        machine: GpuMachine,
        inference_nodes: int,
        in_use: Callable[[float], int],
        round_s: float,
        most_times: float,
        loans: bool,
        grows: bool,
        pause_s: float | None,
    ) -> None:
        self.machine, self.in_use, self.round_s, self.pause_s = machine, in_use, round_s, pause_s
        self.most_times, self.loans, self.grows = most_times, loans, grows
        nodes = len(machine.gpus)
        self.training = range(nodes - inference_nodes)
        self.inference = range(nodes - inference_nodes, nodes)
        self.guests: dict[int, int] = {}
        self.loaned: set[int] = set()
        self.base: dict[int, Placed] = {}  # job -> place of its requested GPUs
        self.extra: dict[int, Placed] = {}  # job -> place of its extra GPUs
        self.reclaimed = 0

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, Placed]:
        """Decide as `tests.twins.gpu.rounds.PlainPolicy` requires."""
        numbers = [job.number for job in there]
        self.base = {number: self.base[number] for number in self.base if number in numbers}
        self.extra = {number: self.extra[number] for number in self.extra if number in numbers}
        self._lend(len(self.inference) - self.in_use(now) if self.loans else 0)
        for job in sorted(there, key=lambda job: (job.left, job.number)):
            found = self._find(self._free(), job.gpus, self.training, self.inference)
            if job.number not in self.base and found:
                self.base[job.number] = found
        if self.grows:
            self._grow([job for number in self.base for job in there if job.number == number and job.elastic])
        return {
            number: {node: base.get(node, 0) + extra.get(node, 0) for node in {**base, **extra}}
            for number, base in self.base.items()
            for extra in [self.extra.get(number, {})]
        }

    def _lend(self, idle: int) -> None:
        """Loan the first idle servers, or return those whose jobs lose least."""
        while len(self.loaned) > idle:
            server = min(self.loaned, key=lambda server: (self._cost(server), server))
            self.loaned.remove(server)
            hit = [number for number, placed in self.base.items() if server in placed]
            self.reclaimed += len(hit)
            for number in hit:
                del self.base[number]
                self.extra.pop(number, None)
            self.extra = {number: placed for number, placed in self.extra.items() if server not in placed}
        for server in self.inference:
            if len(self.loaned) < idle:
                self.loaned.add(server)

    def _cost(self, server: int) -> float:
        """Return the summed share of servers that each job would lose with this one; extra workers cost nothing."""
        return sum(1.0 / len(placed) for placed in self.base.values() if server in placed)

    def _free(self) -> list[int]:
        """Return the GPUs of each node that no requested GPUs occupy; 0 for servers that are not loaned."""
        is_open = [node in self.training or node in self.loaned for node in range(len(self.machine.gpus))]
        gpus = [gpus if ours else 0 for gpus, ours in zip(self.machine.gpus.tolist(), is_open, strict=True)]
        return less(gpus, *self.base.values())

    def _find(self, free: list[int], gpus: int, *kinds: range) -> Placed | None:
        """Place a gang on the first kind of server that can hold it alone, else on both kinds."""
        for kind in kinds:
            found = best_fit([left if node in kind else 0 for node, left in enumerate(free)], gpus)
            if found:
                return found
        return best_fit(free, gpus)

    def _grow(self, jobs: list[PlainGpuJob]) -> None:
        """Place each job's extra GPUs: where they were, if they are as many as before and free, else elsewhere."""
        free = self._free()
        had_before, self.extra = self.extra, {}
        for number, placed in had_before.items():  # other jobs may have these GPUs now
            if holds(less(free, *self.extra.values()), placed):
                self.extra[number] = placed
        sizes = self._best(jobs, sum(free))
        extra: dict[int, Placed] = {}
        for job in jobs:
            had = self.extra.get(job.number, {})
            if had and sum(had.values()) == sizes[job.number]:
                extra[job.number] = had
        for job in jobs:
            if sizes[job.number] and job.number not in extra:
                left = less(free, *extra.values())
                found = self._find(left, sizes[job.number], self.inference, self.training)
                if found:
                    extra[job.number] = found
        self.extra = extra

    def _best(self, jobs: list[PlainGpuJob], capacity: int) -> dict[int, int]:
        """Return the extra GPUs of each job that save the most seconds, over all combinations."""
        quarters = (1, 2, 3, 4)
        most = [int(job.gpus * (self.most_times - 1.0)) for job in jobs]
        choices = [sorted({0, *(quarter * gpus // 4 for quarter in quarters)}) for gpus in most]
        saved = [{gpus: self._saved(job, gpus) for gpus in sizes} for job, sizes in zip(jobs, choices, strict=True)]
        best: tuple[int, ...] = (0,) * len(jobs)
        best_s = 0.0
        for sizes in product(*choices):
            worth = sum(of_job[gpus] for of_job, gpus in zip(saved, sizes, strict=True))
            if sum(sizes) <= capacity and worth > best_s + 1e-9:
                best, best_s = sizes, worth
        return {job.number: gpus for job, gpus in zip(jobs, best, strict=True)}

    def _saved(self, job: PlainGpuJob, gpus: int) -> float:
        """Return the seconds by which the job ends sooner with `gpus` extra GPUs than with none, including restarts."""
        return self._end(job, 0) - self._end(job, gpus)

    def _end(self, job: PlainGpuJob, gpus: int) -> float:
        """Return the seconds to its end with `gpus` extra GPUs: the work, and a restart if it has run and its GPUs
        change.

        The extra GPUs are assumed to be on separate nodes, from the front of the machine.
        """
        placed, left = dict(self.base[job.number]), gpus
        for node, room in enumerate(self.machine.gpus.tolist()):
            if left > 0 and node not in placed:
                placed[node] = min(left, room)
                left -= placed[node]
        work_s = job.left / speed(job, placed, self.machine)
        return work_s + (restart_s(job, self.pause_s) if self._changes(job, gpus) else 0.0)

    def _changes(self, job: PlainGpuJob, gpus: int) -> bool:
        """Whether a job that has run pays a restart for `gpus` extra GPUs: it does unless it has that number now."""
        base, extra = self.base[job.number], self.extra.get(job.number, {})
        same = {node: base.get(node, 0) + extra.get(node, 0) for node in {**base, **extra}} == job.placed
        return job.start >= 0.0 and not (same and gpus == sum(extra.values()))
