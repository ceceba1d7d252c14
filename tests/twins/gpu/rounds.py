"""The twin of the clock of rounds, and of the placement and speed of a gang: all recomputed each round.

It shares only the input types and the restart time of a job without a model with the fast clock. The profiles are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple, Protocol

from simulator.gpu.profiles.profile import RESTART_S
from simulator.gpu.profiles.scaling import goodput, packed_share
from simulator.gpu.round_policy import GpuJob, GpuMachine
from tests.twins.gpu.job import NEVER, PlainGpuJob

Placed = dict[int, int]  # node -> GPUs


class PlainPolicy(Protocol):
    """A scheduler of the twins."""

    round_s: float
    pause_s: float | None  # cost of a restart, s; None: the model's restart
    guests: dict[int, int]  # of the last decision: job -> the job whose GPUs it shares
    settled: bool  # whether the last decision remains valid until a job arrives or ends

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, Placed]:
        """Return job -> {node: GPUs} until the next round; `there` in order of arrival, settled at `now`."""
        ...


class PlainDecision(NamedTuple):
    """The place of each running job from `now_s` on, and the jobs that share GPUs."""

    now_s: float
    placed: dict[int, Placed]
    guests: dict[int, int]


class PlainRun(NamedTuple):
    """The jobs after the run, in the given order, and every decision."""

    jobs: list[PlainGpuJob]
    decisions: list[PlainDecision]


def simulate(machine: GpuMachine, jobs: Sequence[GpuJob], policy: PlainPolicy) -> PlainRun:
    """Run copies of `jobs` to the end of the last one."""
    everyone = [
        PlainGpuJob(job.number, job.submit_s, job.gpus, job.run_s, 0, job.run_s, job.model, job.elastic, app=job.app)
        for job in jobs
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
                    job.run_at(speed(job, job.placed, machine) * _share(job, there, policy.guests, machine.types))
        now += policy.round_s
    return PlainRun(everyone, decisions)


def restart_s(job: PlainGpuJob, pause_s: float | None) -> float:
    """Return the cost of a restart of the job, s, for a policy with `pause_s`."""
    if pause_s is not None:
        return pause_s
    return RESTART_S if job.model is None else job.model.restart_s


def _change(job: PlainGpuJob, placed: Placed, now: float, pause_s: float | None) -> None:
    """Apply a start, a stop, a move or a resize with its cost; no effect if the place is unchanged."""
    if placed == job.placed:
        return
    if placed:
        job.begin(placed, now, restart_s(job, pause_s))
    else:
        job.placed, job.end = {}, NEVER
        job.preemptions += 1


def _share(job: PlainGpuJob, there: list[PlainGpuJob], guests: dict[int, int], types: list[str]) -> float:
    """Return the share of its speed that a job keeps if another shares its GPUs and both have profiles, else 1."""
    for other in there:
        if guests.get(job.number) == other.number or guests.get(other.number) == job.number:
            if job.model is None or other.model is None:
                return 1.0
            return packed_share(job.model, other.model, types[min(job.placed)], job.gpus)
    return 1.0


def speed(job: PlainGpuJob, placed: Placed, machine: GpuMachine) -> float:
    """Return the work per second on `placed`: the goodput on its slowest type over that packed on the reference type.

    Without a profile it is the share of the requested GPUs that the job has.
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
    """Return {node: GPUs} for a gang, None if it does not fit; among equal nodes the first.

    The gang goes on the node with the fewest free GPUs that can hold it. Else it takes all free GPUs of the nodes with
    the most, and the rest on the node that fits it best.
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
    """Return the free GPUs of each node after `taken`."""
    return [gpus - sum(placed.get(node, 0) for placed in taken) for node, gpus in enumerate(free)]
