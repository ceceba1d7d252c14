"""Fit policies in separate processes, with arithmetic that is the same on every x86-64 machine.

What a network learns from a seed depends on the last bit of every sum, and numpy, torch and MKL each choose their
instructions by the machine. They read the settings that fix this choice once, when they are loaded. A fit therefore
runs in a fresh process that starts with those settings (`models.engine`). Two machines then make the same artifact from
the same pairs, byte for byte (docs/decisions/0012). Each process uses one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.artifact import Artifact
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.provisioning.protocol import PairTable, Policy

MOST_PROCESSES = 8  # each loads torch and holds the pairs: half a gigabyte
Fitted = tuple[Artifact, dict[str, list[float]], float]  # with its metrics, and how long it took, s


class Made(NamedTuple):
    """One fit."""

    policy: str
    seed: int
    artifact: Artifact
    metrics: dict[str, list[float]]
    wall_s: float


def fit_each(fits: Sequence[tuple[Policy, int]], pairs: PairTable, engine: Engine = each_here) -> Iterator[Made]:
    """Make the fits (policy, seed). Yields each as soon as it is ready, so not in the order of `fits`.

    A policy's class must be importable, so it cannot come from a notebook: the other process makes it again. Raises
    what a policy's `fit` raised, and WorkError if a process or a job ended early.
    """
    tasks = [Task(f"the fit of {policy.name!r}, seed {seed}", (policy, seed), policy.name) for policy, seed in fits]
    work = Work(fit_one, tasks, pairs, sorted({type(policy).__module__ for policy, _seed in fits}), is_exact=True)
    for at, (artifact, metrics, wall_s) in engine(work, MOST_PROCESSES):
        policy, seed = fits[at]
        yield Made(policy.name, seed, artifact, metrics, wall_s)


def fit_one(pairs: PairTable, fit: tuple[Policy, int]) -> Fitted:
    """Make one fit (policy, seed)."""
    began = time.perf_counter()
    artifact, metrics = fit[0].fit(pairs, fit[1])
    return artifact, metrics, time.perf_counter() - began
