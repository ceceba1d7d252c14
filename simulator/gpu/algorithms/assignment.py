"""Sia's integer programme: at most one configuration a job, no more GPUs of a type than there are.

With values G (`configurations.values`) and p < 0 it minimises

    sum over jobs i and configurations c of x_ic G_ic^p  +  lambda (jobs - sum of x_ic)

so a job that gets nothing costs lambda. p = -0.5, lambda = 1.1, G^p rounded to two decimals and at most 3,000 are the
released solver's (Sia). Nothing in it prefers a job that runs to one like it that waits, so every round might swap the
two; our tie rule: of answers that cost the same the one that leaves most jobs as they are, then the older job. An
answer within `gap` of the best is taken as it is, so the rule holds where the programme is solved exactly.

**Solved from the cheap end.** Everyone's best is the answer where there is room for it. Jobs of equal rows are one
variable with a count. Then the linear relaxation, of which a vertex splits at most as many rows as there are GPU types:
rounded down and filled up it is taken if it is within `gap` of the relaxation, and only else the integer programme is
solved. Both by HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018) through scipy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.algorithms.configurations import Configuration

POWER = -0.5
UNASSIGNED = 1.1
CLIP = 3000.0  # of G^p
DECIMALS = 2  # of G^p
KEEP = 1e-6  # that what a job has is cheaper by: under .01, the least difference, for up to 10,000 jobs

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]


class ConfigurationChoice(NamedTuple):
    """One job: what it may be given and what that is worth."""

    allowed: Sequence[Configuration]
    values: Floats  # (len(allowed),), above 0
    current: int | None = None  # position of what it has among `allowed`


class Assignment(NamedTuple):
    """Position of each job's configuration among those allowed it, None for none; and whether the solver was cut
    short.
    """

    chosen: list[int | None]
    timed_out: bool


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


def costs(values: Floats) -> Floats:
    """What each value costs in the programme, G^p, of the same shape."""
    return np.asarray(np.round(np.minimum(values**POWER, CLIP), DECIMALS), dtype=np.float64)


def cost(choices: Sequence[ConfigurationChoice], chosen: Sequence[int | None]) -> float:
    """What the programme minimises."""
    return sum(
        UNASSIGNED if index is None else float(costs(choice.values[index : index + 1])[0])
        for choice, index in zip(choices, chosen, strict=True)
    )


class _Programme(NamedTuple):
    """Kinds of alike jobs and their columns, one a kind and configuration; each kind's columns lie together."""

    members: list[list[int]]  # of each kind: positions of its jobs, the oldest first
    first: Int64s  # of each kind: its first column
    owner: Int64s  # of each column: its kind
    gains: Floats  # of each column: what a job adds to the costs, under 0 where it is worth it
    gpus: Int64s  # of each column
    gpu_type: Int64s  # of each column: position in `capacity`
    sizes: Int64s  # jobs of each kind
    capacity: Int64s  # GPUs of each type


def _programme(choices: Sequence[ConfigurationChoice], capacity: Mapping[str, int]) -> _Programme:
    sizes = np.array([len(choice.allowed) for choice in choices])
    ends = np.cumsum(sizes)
    gains = costs(np.concatenate([choice.values for choice in choices])) - UNASSIGNED
    has = np.array([n for n, choice in enumerate(choices) if choice.current is not None], dtype=np.int64)
    gains[(ends - sizes)[has] + np.array([choices[n].current for n in has], dtype=np.int64)] -= KEEP
    kinds: dict[tuple[int, bytes], list[int]] = {}
    for n, (choice, end) in enumerate(zip(choices, ends, strict=True)):
        # The same list means the same configurations (equal ones in two are only not merged); KEEP marks `current`.
        kinds.setdefault((id(choice.allowed), gains[end - len(choice.allowed) : end].tobytes()), []).append(n)
    members = list(kinds.values())
    ones = np.array([same[0] for same in members])
    owner = np.repeat(np.arange(len(ones)), sizes[ones])
    types = {gpu_type: number for number, gpu_type in enumerate(capacity)}
    given = [configuration for n in ones for configuration in choices[n].allowed]
    return _Programme(
        members,
        np.concatenate([[0], np.cumsum(sizes[ones])[:-1]]).astype(np.int64),
        owner,
        np.concatenate([gains[ends[n] - sizes[n] : ends[n]] for n in ones]),
        np.array([configuration.gpus for configuration in given], dtype=np.int64),
        np.array([types[configuration.gpu_type] for configuration in given], dtype=np.int64),
        np.array([len(same) for same in members], dtype=np.int64),
        np.array(list(capacity.values()), dtype=np.int64),
    )


def _used(programme: _Programme, taken: Int64s) -> Int64s:
    weights = (taken * programme.gpus).astype(np.float64)
    return np.bincount(programme.gpu_type, weights, len(programme.capacity)).astype(np.int64)


def _best_for_all(programme: _Programme) -> Int64s | None:
    """Everyone's best, jobs a column, where there is room for it: then no answer is better."""
    taken = np.zeros(len(programme.gains), dtype=np.int64)
    for first, last, count in zip(programme.first, [*programme.first[1:], len(taken)], programme.sizes, strict=True):
        best = first + int(np.argmin(programme.gains[first:last]))
        taken[best] = count if programme.gains[best] < 0.0 else 0
    return taken if (_used(programme, taken) <= programme.capacity).all() else None


def _solved(programme: _Programme, integer: bool, limit_s: float, gap: float) -> Any:
    """The programme, or its linear relaxation, as scipy's `OptimizeResult`."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    columns, kinds = len(programme.gains), len(programme.sizes)
    rows = np.concatenate([programme.owner, kinds + programme.gpu_type])
    weights = np.concatenate([np.ones(columns), programme.gpus.astype(np.float64)])
    matrix = csr_array(
        (weights, (rows, np.tile(np.arange(columns), 2))), shape=(kinds + len(programme.capacity), columns)
    )
    with _no_chatter():
        return milp(
            programme.gains,
            integrality=np.full(columns, int(integer)),
            bounds=Bounds(0, programme.sizes[programme.owner].astype(np.float64)),
            constraints=LinearConstraint(matrix, -np.inf, np.concatenate([programme.sizes, programme.capacity])),
            options={"time_limit": limit_s, "mip_rel_gap": gap},
        )


def _filled(programme: _Programme, relaxed: Floats) -> Int64s:
    """The relaxation rounded down, then filled up: what it split first, then by gain a GPU."""
    taken = np.floor(relaxed + 1e-6).astype(np.int64)
    open_jobs = programme.sizes - np.bincount(programme.owner, taken, len(programme.sizes)).astype(np.int64)
    left = programme.capacity - _used(programme, taken)
    is_whole = relaxed - taken < 1e-6
    for column in np.lexsort((programme.gains / programme.gpus, is_whole)):
        kind, gpu_type, gpus = programme.owner[column], programme.gpu_type[column], programme.gpus[column]
        more = min(open_jobs[kind], left[gpu_type] // gpus) if programme.gains[column] < 0.0 else 0
        if more > 0:
            taken[column] += more
            open_jobs[kind] -= more
            left[gpu_type] -= more * gpus
    return taken


def assign(
    choices: Sequence[ConfigurationChoice], capacity: Mapping[str, int], limit_s: float = 5.0, gap: float = 1e-3
) -> Assignment:
    """The best assignment to `capacity` GPUs of each type, within the relative `gap`; `choices` oldest first.

    Where the solver has not ended in `limit_s` seconds its best answer so far is taken, and where it has none, everyone
    stays with what it has and nothing is given to others: a feasible answer, and `timed_out`.
    """
    if not choices:
        return Assignment([], False)
    programme = _programme(choices, capacity)
    taken, timed_out = _best_for_all(programme), False
    if taken is None:
        relaxed = _solved(programme, False, limit_s, gap)
        if relaxed.status == 0:
            taken = _filled(programme, np.asarray(relaxed.x))
            value = float(programme.gains @ taken)
        if taken is None or value - relaxed.fun > gap * abs(value) + 1e-9:
            solved = _solved(programme, True, limit_s, gap)
            timed_out = solved.status == 1
            if solved.x is not None and (taken is None or solved.fun < value):
                taken = np.rint(solved.x).astype(np.int64)
    if taken is None:
        return Assignment([choice.current for choice in choices], True)
    chosen: list[int | None] = [None] * len(choices)
    for column in np.flatnonzero(taken):
        kind = programme.owner[column]
        for _ in range(taken[column]):
            chosen[programme.members[kind].pop(0)] = int(column - programme.first[kind])
    return Assignment(chosen, timed_out)
