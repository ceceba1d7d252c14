"""Sia's integer programme: choose at most one configuration per job within the available GPUs of each type.

With values G (`configurations.values`) and p < 0 it minimises

    sum over jobs i and configurations c of x_ic G_ic^p  +  lambda (jobs - sum of x_ic)

so a job that gets nothing costs lambda. As in Sia's released solver, p = -0.5, lambda = 1.1, and G^p is rounded to two
decimals and at most 3,000. The programme does not prefer a running job to an equal waiting job, so every round might
swap the two. Our tie rule chooses, among answers of equal cost, the one that leaves most jobs as they are. Then it
prefers the GPU types that come first, then the older job. Any answer within `gap` of the best is accepted, so the rule
holds only where the programme is solved exactly. The released program leaves ties to its solver. With GLPK_MI, 39 of 40
jobs of its first workload run on the first type at some time; with HiGHS, 28 do.

**The solution tries cheap methods first.** If there is room for every job's best configuration, that is the answer.
Otherwise jobs with equal rows become one variable with a count, and the linear relaxation is solved. Its vertex splits
at most one row per GPU type. The vertex is rounded down, filled up, and accepted if it is within `gap` of the
relaxation. Only otherwise the integer programme is solved. HiGHS solves both (Huangfu and Hall, "Parallelizing the dual
revised simplex method", 2018) through scipy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from simulator.gpu.algorithms.chatter import no_chatter
from simulator.gpu.algorithms.configurations import Configuration
from traces.arrays import Float64s, Int64s

POWER = -0.5
UNASSIGNED = 1.1
CLIP = 3000.0  # upper bound of G^p
DECIMALS = 2  # decimals of G^p
KEEP = 1e-6  # discount on a job's current configuration; below 0.01, the least difference, for up to 10,000 jobs
FIRST = 1e-8  # discount per position of a GPU type before the last; below KEEP for up to 100 types
SCALE = 1000.0  # of the objective in the solver, which stops at an absolute gap of 1e-6 and would ignore KEEP


class ConfigurationChoice(NamedTuple):
    """The allowed configurations of one job and their values."""

    allowed: Sequence[Configuration]
    values: Float64s  # (len(allowed),), above 0
    current: int | None = None  # position of its current configuration in `allowed`


class Assignment(NamedTuple):
    """The position of each job's configuration in its allowed ones, None for none; and whether the solver timed out."""

    chosen: list[int | None]
    timed_out: bool


def costs(values: Float64s) -> Float64s:
    """Return the cost of each value in the programme, G^p, of the same shape."""
    return np.asarray(np.round(np.minimum(values**POWER, CLIP), DECIMALS), dtype=np.float64)


class _Programme(NamedTuple):
    """The kinds of equal jobs and their columns, one per kind and configuration; a kind's columns are adjacent."""

    members: list[list[int]]  # of each kind: positions of its jobs, oldest first
    first: Int64s  # of each kind: its first column
    owner: Int64s  # of each column: its kind
    gains: Float64s  # of each column: change of the objective per job, below 0 if it pays
    gpus: Int64s  # of each column: number of GPUs
    gpu_type: Int64s  # of each column: position in `capacity`
    sizes: Int64s  # jobs of each kind
    capacity: Int64s  # GPUs of each type


def _programme(choices: Sequence[ConfigurationChoice], capacity: Mapping[str, int]) -> _Programme:
    sizes = np.array([len(choice.allowed) for choice in choices])
    ends = np.cumsum(sizes)
    gains = costs(np.concatenate([choice.values for choice in choices])) - UNASSIGNED
    has = np.array([n for n, choice in enumerate(choices) if choice.current is not None], dtype=np.int64)
    gains[(ends - sizes)[has] + np.array([choices[n].current for n in has], dtype=np.int64)] -= KEEP
    types = {gpu_type: number for number, gpu_type in enumerate(capacity)}
    gains += FIRST * np.array([types[given.gpu_type] for choice in choices for given in choice.allowed])
    kinds: dict[tuple[int, bytes], list[int]] = {}
    for n, (choice, end) in enumerate(zip(choices, ends, strict=True)):
        # The identity of the list identifies the configurations: equal lists are just not merged. KEEP marks `current`.
        kinds.setdefault((id(choice.allowed), gains[end - len(choice.allowed) : end].tobytes()), []).append(n)
    members = list(kinds.values())
    ones = np.array([same[0] for same in members])
    owner = np.repeat(np.arange(len(ones)), sizes[ones])
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
    """Return every job's best configuration, as jobs per column, if there is room: then no answer is better."""
    taken = np.zeros(len(programme.gains), dtype=np.int64)
    for first, last, count in zip(programme.first, [*programme.first[1:], len(taken)], programme.sizes, strict=True):
        best = first + int(np.argmin(programme.gains[first:last]))
        taken[best] = count if programme.gains[best] < 0.0 else 0
    return taken if (_used(programme, taken) <= programme.capacity).all() else None


def _solved(programme: _Programme, integer: bool, limit_s: float, gap: float) -> Any:
    """Solve the programme or its linear relaxation; return scipy's `OptimizeResult`, with `fun` times SCALE."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    columns, kinds = len(programme.gains), len(programme.sizes)
    rows = np.concatenate([programme.owner, kinds + programme.gpu_type])
    weights = np.concatenate([np.ones(columns), programme.gpus.astype(np.float64)])
    matrix = csr_array(
        (weights, (rows, np.tile(np.arange(columns), 2))), shape=(kinds + len(programme.capacity), columns)
    )
    with no_chatter():
        return milp(
            programme.gains * SCALE,
            integrality=np.full(columns, int(integer)),
            bounds=Bounds(0, programme.sizes[programme.owner].astype(np.float64)),
            constraints=LinearConstraint(matrix, -np.inf, np.concatenate([programme.sizes, programme.capacity])),
            options={"time_limit": limit_s, "mip_rel_gap": gap},
        )


def _filled(programme: _Programme, relaxed: Float64s) -> Int64s:
    """Round the relaxation down, then fill up: first the rows that it split, then by gain per GPU."""
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
    """Find the best assignment to `capacity` GPUs of each type, within the relative `gap`; `choices` oldest first.

    If the solver does not finish in `limit_s` seconds, its best answer so far is used. If it has none, every job keeps
    its current configuration, which is feasible. `timed_out` reports both cases.
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
        if taken is None or value - relaxed.fun / SCALE > gap * abs(value) + 1e-9:
            solved = _solved(programme, True, limit_s, gap)
            timed_out = solved.status == 1
            if solved.x is not None and (taken is None or solved.fun / SCALE < value):
                taken = np.rint(solved.x).astype(np.int64)
    if taken is None:
        return Assignment([choice.current for choice in choices], True)
    chosen: list[int | None] = [None] * len(choices)
    for column in np.flatnonzero(taken):
        kind = programme.owner[column]
        for _ in range(taken[column]):
            chosen[programme.members[kind].pop(0)] = int(column - programme.first[kind])
    return Assignment(chosen, timed_out)
