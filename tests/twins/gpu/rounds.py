"""The plain twin of the clock of rounds, and of the placement and the speed of a gang: all worked out again each round.

Of the fast clock it shares the types of what goes in and the restart of a job without model; the profiles are the
same. Slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple, Protocol

from simulator.gpu.profiles.scaling import goodput, packed_share
from simulator.gpu.rounds import RESTART_S, GpuJob, GpuMachine
from tests.twins.gpu.job import NEVER, PlainGpuJob

Placed = dict[int, int]  # node -> GPUs


class PlainPolicy(Protocol):
    """A scheduler in its plain form."""

    round_s: float
    pause_s: float | None  # what a restart costs, s; None: what it costs the model
    guests: dict[int, int]  # of the last decision: a job -> the one whose GPUs it shares
    settled: bool  # the last decision stands until a job comes or ends

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, Placed]:
        """Job -> {node: GPUs} until the next round; `there` in order of arrival, settled at `now`."""
        ...


class PlainDecision(NamedTuple):
    """Who runs where from `now_s` on, and who shares whose GPUs."""

    now_s: float
    placed: dict[int, Placed]
    guests: dict[int, int]


class PlainRun(NamedTuple):
    """The jobs as they ended, in the order given, and every decision."""

    jobs: list[PlainGpuJob]
    decisions: list[PlainDecision]


def simulate(machine: GpuMachine, jobs: Sequence[GpuJob], policy: PlainPolicy) -> PlainRun:
    """Runs `jobs`, which are left as they are, to the last one's end."""
    everyone = [
        PlainGpuJob(job.number, job.submit_s, job.gpus, job.run_s, 0, job.run_s, job.model, job.elastic) for job in jobs
    ]
    coming, now = sorted(everyone, key=lambda job: (job.submit, job.number)), 0.0
    there: list[PlainGpuJob] = []
    decisions: list[PlainDecision] = []
    while coming or there:
        if not there:
            now = ceil(coming[0].submit / policy.round_s) * policy.round_s
        before = list(there)
        for job in there:
            job.settle(min(now, job.end))
            job.since = now
        there = [job for job in there if job.end > now]
        while coming and coming[0].submit <= now:
            there.append(coming.pop(0))
        if there and not (policy.settled and there == before):
            placed = policy.decide(there, now)
            decisions.append(PlainDecision(now, placed, dict(policy.guests)))
            for job in there:
                _change(job, placed.get(job.number, {}), now, policy.pause_s)
            for job in there:
                if job.placed:
                    job.run_at(speed(job, job.placed, machine) * _share(job, there, policy.guests))
        now += policy.round_s
    return PlainRun(everyone, decisions)


def restart_s(job: PlainGpuJob, pause_s: float | None) -> float:
    """Seconds that a restart costs the job, where the policy's is `pause_s`."""
    if pause_s is not None:
        return pause_s
    return RESTART_S if job.model is None else job.model.restart_s


def _change(job: PlainGpuJob, placed: Placed, now: float, pause_s: float | None) -> None:
    """A start, a stop, a move or a resize, each with what it costs; nothing where it runs as before."""
    if placed == job.placed:
        return
    if placed:
        job.begin(placed, now, restart_s(job, pause_s))
    else:
        job.placed, job.end = {}, NEVER
        job.preemptions += 1


def _share(job: PlainGpuJob, there: list[PlainGpuJob], guests: dict[int, int]) -> float:
    """What it keeps of its speed beside the other on its GPUs, if there is one and both have profiles."""
    for other in there:
        if guests.get(job.number) == other.number or guests.get(other.number) == job.number:
            return 1.0 if job.model is None or other.model is None else packed_share(job.model, [other.model])
    return 1.0


def speed(job: PlainGpuJob, placed: Placed, machine: GpuMachine) -> float:
    """Work a second on `placed`: over its goodput packed on the reference type that of the slowest type among `placed`.

    Without profile it is the share of its own GPUs that it has.
    """
    gpus = sum(placed.values())
    if job.model is None:
        return gpus / job.gpus
    widest = max(
        room for room, kind in zip(machine.gpus.tolist(), machine.types, strict=True) if kind == machine.reference
    )
    asked = goodput(job.model, machine.reference, job.gpus, ceil(job.gpus / widest), job.gpus)
    return min(goodput(job.model, machine.types[node], gpus, len(placed), job.gpus) for node in placed) / asked


def best_fit(free: list[int], gpus: int) -> Placed | None:
    """{node: GPUs} for a gang, None where it does not fit; of nodes that are alike the first.

    The node with the least free that can hold it. Else the nodes with the most free, each whole, and what then remains
    on the node that fits it best.
    """
    found: Placed = {}
    while gpus > 0:
        rest = [node for node in range(len(free)) if free[node] > 0 and node not in found]
        if not rest:
            return None
        holding = [node for node in rest if free[node] >= gpus]
        node = min(holding, key=lambda node: free[node]) if holding else max(rest, key=lambda node: free[node])
        found[node] = min(gpus, free[node])
        gpus -= found[node]
    return found


def holds(free: list[int], placed: Placed) -> bool:
    """Whether all of `placed` is free."""
    return all(free[node] >= gpus for node, gpus in placed.items())


def less(free: list[int], *taken: Placed) -> list[int]:
    """GPUs of each node that are free when all of `taken` is taken."""
    return [gpus - sum(placed.get(node, 0) for placed in taken) for node, gpus in enumerate(free)]
