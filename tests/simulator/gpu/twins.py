"""A scheduler of rounds beside its plain twin: every decision and every job of both, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np

from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, RoundPolicy, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.models import MODELS
from tests.twins.gpu import rounds
from tests.twins.gpu.rounds import PlainDecision, PlainRun


class Between:
    """A policy between the clock and a test."""

    def __init__(self, policy: RoundPolicy) -> None:
        self.policy, self.round_s, self.pause_s = policy, policy.round_s, policy.pause_s

    @property
    def guests(self) -> Mapping[int, int]:
        return self.policy.guests

    @property
    def settled(self) -> bool:
        return getattr(self.policy, "settled", False)

    def interfered(self, placed: dict[int, Placed]) -> Mapping[int, float]:
        return self.policy.interfered(placed) if hasattr(self.policy, "interfered") else {}

    @property
    def wake_s(self) -> float:
        return getattr(self.policy, "wake_s", np.inf)

    @property
    def shares_gpus(self) -> bool:
        return getattr(self.policy, "shares_gpus", False)

    @property
    def loaned_gpus(self) -> int:
        return getattr(self.policy, "loaned_gpus", 0)

    def extended(self, machine: GpuMachine) -> GpuMachine:
        return self.policy.extended(machine) if hasattr(self.policy, "extended") else machine


class Noted(Between):
    """A policy whose decisions are kept."""

    def __init__(self, policy: RoundPolicy) -> None:
        super().__init__(policy)
        self.decisions: list[PlainDecision] = []

    def decide(self, view: View) -> dict[int, Placed]:
        placed = self.policy.decide(view)
        self.decisions.append(PlainDecision(view.now_s, deepcopy(placed), dict(self.policy.guests)))
        return placed


def assert_equal(
    machine: GpuMachine, jobs: Sequence[GpuJob], policy: RoundPolicy, twin: rounds.PlainPolicy
) -> PlainRun:
    """Start for start, allocation for allocation, finish for finish; returns the twin's run."""
    noted = Noted(policy)
    plain = rounds.simulate(noted.extended(machine), jobs, twin)
    result = simulate_rounds(jobs, machine, noted)
    for decided, expected in zip(noted.decisions, plain.decisions, strict=False):
        assert decided == expected
    assert len(noted.decisions) == len(plain.decisions)
    assert result.start_s.tolist() == [job.start for job in plain.jobs]
    np.testing.assert_allclose(result.end_s, [job.end for job in plain.jobs], rtol=0.0, atol=1e-6)
    assert result.preemptions.tolist() == [job.preemptions for job in plain.jobs]
    assert result.restarts.tolist() == [job.restarts for job in plain.jobs]
    return plain


def instance(
    seed: int, count: int, kinds: Sequence[str] = ("T4",), most_nodes: int = 4, elastic: float = 0.4
) -> tuple[GpuMachine, list[GpuJob]]:
    """A small crowded machine and `count` jobs, a fifth of them without profile; the last come after an idle time."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, most_nodes + 1)) if len(kinds) == 1 else most_nodes
    types = [kinds[node % len(kinds)] for node in range(nodes)]
    machine = GpuMachine(rng.choice([2, 4, 8], size=nodes), types, kinds[0])
    widest = min(sum(machine.gpus[node] for node in range(nodes) if types[node] == kind) for kind in set(types))
    gpus = np.minimum(rng.choice([1, 1, 2, 2, 3, 4, 8], count), widest).tolist()
    run_s = rng.integers(60, 6000, count).tolist()
    span_s = sum(a * b for a, b in zip(gpus, run_s, strict=True)) / machine.total / 1.5
    submit_s = np.sort(rng.integers(0, int(span_s) + 1, count)).astype(float)
    submit_s[-count // 5 :] += 200_000.0
    models = [None if rng.random() < 0.2 else list(MODELS.values())[rng.integers(len(MODELS))] for _ in range(count)]
    return machine, [
        GpuJob(
            n, submit_s[n], gpus[n], float(run_s[n]), model=models[n], elastic=gpus[n] > 1 and rng.random() < elastic
        )
        for n in range(count)
    ]
