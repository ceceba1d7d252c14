"""Sia's integer programme: at most one configuration a job, no more GPUs of a type than there are.

With values G (`configurations.values`) and p < 0 it minimises

    sum over jobs i and configurations c of x_ic G_ic^p  +  lambda (jobs - sum of x_ic)

so a job that gets nothing costs lambda (Sia; p = -0.5 and lambda = 1.1 are the released solver's). Solved by
HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018) through scipy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.algorithms.configurations import Configuration

POWER = -0.5
UNASSIGNED = 1.1
CLIP = 3000.0  # of G: the released solver's


class Choice(NamedTuple):
    """One job: what it may be given and what that is worth."""

    allowed: Sequence[Configuration]
    values: NDArray[np.float64]  # (len(allowed),), above 0
    current: int | None = None  # position of what it has among `allowed`


class Assignment(NamedTuple):
    """Position of each job's configuration among those allowed it, None for none; and whether the solver was cut
    short.
    """

    chosen: list[int | None]
    timed_out: bool


def cost(choices: Sequence[Choice], chosen: Sequence[int | None]) -> float:
    """What the programme minimises."""
    return sum(
        UNASSIGNED if index is None else float(min(choice.values[index], CLIP) ** POWER)
        for choice, index in zip(choices, chosen, strict=True)
    )


@contextmanager
def _no_chatter() -> Iterator[None]:
    """Keeps standard output clean: HiGHS writes remarks for its developers there, which no option turns off."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def assign(
    choices: Sequence[Choice], capacity: Mapping[str, int], limit_s: float = 5.0, gap: float = 1e-3
) -> Assignment:
    """The best assignment to `capacity` GPUs of each type, within the relative `gap`.

    Where the solver has not ended in `limit_s` seconds its best answer so far is taken, and where it has none, everyone
    stays with what it has and nothing is given to others: a feasible answer, and `timed_out`.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    if not choices:
        return Assignment([], False)
    sizes = [len(choice.allowed) for choice in choices]
    first = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(len(choices)), sizes)
    gains = np.concatenate([np.minimum(choice.values, CLIP) ** POWER for choice in choices]) - UNASSIGNED
    types = {gpu_type: number for number, gpu_type in enumerate(capacity)}
    given = [configuration for choice in choices for configuration in choice.allowed]
    rows = np.concatenate([owner, len(choices) + np.array([types[configuration.gpu_type] for configuration in given])])
    columns = np.tile(np.arange(len(given)), 2)
    weights = np.concatenate([np.ones(len(given)), [float(configuration.gpus) for configuration in given]])
    bounds = np.concatenate([np.ones(len(choices)), [float(capacity[gpu_type]) for gpu_type in types]])
    matrix = csr_array((weights, (rows, columns)), shape=(len(choices) + len(types), len(given)))
    with _no_chatter():
        solved = milp(
            gains,
            integrality=np.ones(len(given)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, -np.inf, bounds),
            options={"time_limit": limit_s, "mip_rel_gap": gap},
        )
    timed_out = solved.status == 1
    if solved.x is None:
        return Assignment([choice.current for choice in choices], True)
    taken = np.flatnonzero(np.asarray(solved.x) > 0.5)
    chosen: list[int | None] = [None] * len(choices)
    for column in taken:
        chosen[owner[column]] = int(column - first[owner[column]])
    return Assignment(chosen, timed_out)
