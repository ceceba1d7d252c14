"""Gavel's allocations: the fraction of time that each job should spend on each GPU type, by linear programmes.

Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads" (OSDI 2020), section 4.
With time fractions X, job m runs on average at `speed[m] @ X[m]`. Every allocation satisfies

    X >= 0,   sum over types of X[m, j] <= 1,   sum over jobs of gpus[m] X[m, j] <= capacity[j].

All objectives but the largest sum of throughputs (`most_throughput`) state a wanted speed of every job, `least`. They
maximise the smallest ratio of speed to `least`. Each is one linear programme (`highest_ratio`), which HiGHS solves
through scipy.

**Ties.** Usually many allocations are optimal, and the paper does not choose between them. Our reading: the analytic
centre of the allocations that attain the optimum to within SLACK (`centre`). The interior-point solver of the released
program (ECOS) ends near it. A vertex would leave GPUs without a job wherever the slowest job cannot use them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from traces.arrays import Bools, Float64s
from traces.counted import counted
from traces.errors import WorkError

SLACK = 1e-4  # relative loss of the objective that `centre` may use
CLOSE = 1e-6  # error of the smallest finish-time ratio, absolute and relative
MOST_STEPS = 300  # of Newton's method, which needs 20 to 60
FIRST_MAKESPANS_S = (100.0, 1e6)  # between these the released program searches for the makespan


class SharedGpus(NamedTuple):
    """Jobs, and the GPU types between which their time is divided."""

    speed: Float64s  # (jobs, types) progress per second on GPUs of the type; 0 if the job does not fit there
    gpus: Float64s  # (jobs,) GPUs of each job
    capacity: Float64s  # (types,) GPUs of each type


def equal_shares(shared: SharedGpus) -> Float64s:
    """Return the fractions that give each job 1 / jobs of the GPUs of each type, (jobs, types): the paper's X^isolated.

    A job whose part of the cluster is larger than its GPUs runs all the time, in the same proportions.
    """
    shares = shared.capacity / len(shared.gpus) / shared.gpus[:, None]
    shares = np.where(shared.speed > 0.0, shares, 0.0)
    return np.asarray(shares / np.maximum(1.0, shares.sum(axis=1))[:, None], dtype=np.float64)


def isolated_speed(shared: SharedGpus) -> Float64s:
    """Return the average speed of each job with its equal share, (jobs,)."""
    return np.asarray((shared.speed * equal_shares(shared)).sum(axis=1), dtype=np.float64)


def max_min(shared: SharedGpus) -> Float64s:
    """Return the shares of max-min fairness (section 4.1), (jobs, types).

    They maximise the smallest of `gpus * speed / normal`. `normal` is the speed of a job that divides all of its time
    between the types in proportion to their GPUs (the paper's X^equal).
    """
    normal = shared.speed @ shared.capacity / shared.capacity.sum()
    return centre(shared, normal / shared.gpus)


def finish_time_fair(shared: SharedGpus, age_s: Float64s, left: Float64s, alone_s: Float64s) -> Float64s:
    """Return the shares of finish-time fairness (section 4.2; Themis, NSDI 2020), (jobs, types).

    They minimise the largest ratio of `age_s + left / speed` to `alone_s`. All arrays are (jobs,). `age_s` is the time
    since the submission, s, `left` the remaining work in seconds at speed 1, and `alone_s` the time from submission to
    end with equal shares, s.
    """

    from scipy.optimize import brentq

    def least(rho: float) -> Float64s:
        return np.asarray(left / (rho * alone_s - age_s), dtype=np.float64)

    def worst(speed: Float64s) -> float:
        return float(((age_s + left / speed) / alone_s).max())

    def too_fast(rho: float) -> float:
        return highest_ratio(shared, least(rho))[1] - 1.0

    rho = worst(shared.speed.max(axis=1))  # nothing is better
    if too_fast(rho) < 0.0:
        equal = worst(isolated_speed(shared))  # this is possible
        rho = brentq(too_fast, rho, equal * (1.0 + CLOSE), xtol=CLOSE, rtol=CLOSE)
    return centre(shared, least(rho))


def least_makespan(shared: SharedGpus, left: Float64s, precision: float = 0.0) -> Float64s:
    """Return the shares with which the last job ends first (section 4.2), (jobs, types); `left` as above.

    With a `precision`, bisection finds the makespan until the bounds differ by that part, as in the released program
    (0.05). Every job may then end as late as the upper bound.
    """
    least_s = 1.0 / highest_ratio(shared, left)[1]
    accepted_s = _bisected(least_s, precision) if precision else least_s
    return centre(shared, left, max(SLACK, 1.0 - least_s / accepted_s))


def _bisected(least_s: float, precision: float) -> float:
    """Return the upper bound, s, at which a bisection for `least_s` ends."""
    low, high = FIRST_MAKESPANS_S
    while high < least_s:
        low, high = high, 10.0 * high
    while (1.0 + precision) * low < high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if middle >= least_s else (middle, high)
    return high


def highest_ratio(shared: SharedGpus, least: Float64s) -> tuple[Float64s, float]:
    """Return shares (jobs, types) that maximise the smallest ratio of speed to `least` (jobs,), and that ratio.

    On one GPU type, all ratios are equal, as high as the GPUs or the whole time of a job allow. Raises WorkError if the
    solver fails.
    """
    from scipy.sparse import csr_array, hstack, vstack

    jobs, types = shared.speed.shape
    if types == 1 and shared.speed.all():
        wanted = least / shared.speed[:, 0]
        highest = min(1.0 / float(wanted.max()), float(shared.capacity[0] / (shared.gpus @ wanted)))
        return highest * wanted[:, None], highest
    of_job, of_type = _limits(shared)
    cells = (np.repeat(np.arange(jobs), types), np.arange(jobs * types))
    missing = csr_array((-(shared.speed / least[:, None]).ravel(), cells))
    ratio = csr_array(np.concatenate([np.zeros(jobs + types), np.ones(jobs)])[:, None])
    gain = np.append(np.zeros(jobs * types), 1.0)
    found = _most(shared, gain, hstack([vstack([of_job, of_type, missing]), ratio]), np.zeros(jobs))
    return np.asarray(found[:-1].reshape(jobs, types), dtype=np.float64), float(found[-1])


def most_throughput(shared: SharedGpus, throughput: Float64s) -> Float64s:
    """Return shares (jobs, types) with the largest sum of `throughput` (jobs, types), which may have any one unit.

    Raises WorkError if the solver fails.
    """
    from scipy.sparse import vstack

    found = _most(shared, throughput.ravel(), vstack(_limits(shared)), np.zeros(0))
    return np.asarray(found.reshape(throughput.shape), dtype=np.float64)


def _limits(shared: SharedGpus) -> tuple[Any, Any]:
    """Return the rows of the programme for the time of each job and for the GPUs of each type."""
    from scipy.sparse import csr_array, eye_array, kron

    jobs, types = shared.speed.shape
    cells = (np.repeat(np.arange(jobs), types), np.arange(jobs * types))
    return csr_array((np.ones(jobs * types), cells)), kron(shared.gpus[None, :], eye_array(types))


def _most(shared: SharedGpus, gain: Float64s, rows: Any, more: Float64s) -> Float64s:
    """Return the variables that maximise `gain`, with `rows` limited by the jobs' time, the GPUs, and `more`."""
    from scipy.optimize import linprog

    jobs, types = shared.speed.shape
    limits = np.concatenate([np.ones(jobs), shared.capacity, more])
    found = linprog(-gain, A_ub=rows, b_ub=limits, method="highs")
    if found.x is None:
        shown = f"{counted(jobs, 'job')} on {counted(types, 'GPU type')}"
        raise WorkError(f"the linear programme of {shown} failed: {found.message}")
    return np.asarray(found.x, dtype=np.float64)


def centre(shared: SharedGpus, least: Float64s, slack: float = SLACK) -> Float64s:
    """Return the analytic centre of the shares whose ratio is within `slack` of the highest, (jobs, types).

    It maximises the sum of the logarithms of all that is left (`_rest`). Newton's method with backtracking (Boyd and
    Vandenberghe, "Convex optimization", section 9.5) starts between a vertex and half of the equal shares.
    """
    vertex, ratio = highest_ratio(shared, least)
    least = least * ratio * (1.0 - slack)
    allowed = np.asarray(shared.speed > 0.0, dtype=np.bool_)
    shares = np.asarray(vertex + 0.5 * slack * (0.5 * equal_shares(shared) - vertex), dtype=np.float64)
    shares = np.where(allowed, shares, 0.0)
    for _ in range(MOST_STEPS):
        step, decrease = _newton(shared, least, shares, allowed)
        if decrease < 1e-9:
            break
        size, value = 1.0, _barrier(shared, least, shares, allowed)
        while size > 1e-9 and _barrier(shared, least, shares + size * step, allowed) > value - 0.1 * size * decrease:
            size *= 0.5
        if size <= 1e-9:
            break
        shares = shares + size * step
    return shares


def _rest(shared: SharedGpus, least: Float64s, shares: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """Return what is left of each job's time (jobs,), of each type's GPUs (types,) and of each job's speed (jobs,)."""
    return (
        1.0 - shares.sum(axis=1),
        shared.capacity - shared.gpus @ shares,
        (shared.speed * shares).sum(axis=1) - least,
    )


def _barrier(shared: SharedGpus, least: Float64s, shares: Float64s, allowed: Bools) -> float:
    parts = (*_rest(shared, least, shares), shares[allowed])
    if any((part <= 0.0).any() for part in parts):
        return float("inf")
    return -sum(float(np.log(part).sum()) for part in parts)


def _newton(shared: SharedGpus, least: Float64s, shares: Float64s, allowed: Bools) -> tuple[Float64s, float]:
    """Return Newton's step (jobs, types) on the barrier, and the decrease that it promises.

    The Hessian has one block per job, plus one term of rank 1 per type, whose GPUs couple the jobs (Woodbury).
    """
    idle, free, spare = _rest(shared, least, shares)
    types = np.eye(len(free))
    own = np.where(allowed, shares, 1.0)
    rate = shared.speed / spare[:, None]  # 0 where the job does not fit
    held = np.where(allowed, shared.gpus[:, None], 0.0) / free
    slope = np.where(allowed, (1.0 / idle)[:, None] - 1.0 / own, 0.0) + held - rate
    both = allowed[:, :, None] & allowed[:, None, :]
    blocks = np.where(both, (1.0 / idle**2)[:, None, None], 0.0) + rate[:, :, None] * rate[:, None, :]
    blocks += types * (1.0 / own**2)[:, :, None]
    solved = np.linalg.solve(blocks, np.concatenate([slope[:, :, None], held[:, None, :] * types], axis=2))
    direct, coupled = solved[:, :, 0], solved[:, :, 1:]
    inner = types + np.einsum("mj,mjk->jk", held, coupled)
    step = coupled @ np.linalg.solve(inner, (held * direct).sum(axis=0)) - direct
    return np.asarray(step, dtype=np.float64), float(-(slope * step).sum())
