"""Gavel's programmes on cases solved by hand, and against every allocation of a grid."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from simulator.gpu.algorithms.time_shares import (
    SLACK,
    SharedGpus,
    centre,
    equal_shares,
    finish_time_fair,
    highest_ratio,
    isolated_speed,
    least_makespan,
    max_min,
    most_throughput,
)
from traces.arrays import Float64s

GRID = 8  # steps of a fraction of time


def shared(speed: list[list[float]], gpus: list[float], capacity: list[float]) -> SharedGpus:
    return SharedGpus(np.array(speed), np.array(gpus), np.array(capacity))


def average(case: SharedGpus, shares: Float64s) -> Float64s:
    return np.asarray((case.speed * shares).sum(axis=1))


def is_allowed(case: SharedGpus, shares: Float64s) -> bool:
    return bool(
        (shares >= 0.0).all()
        and (shares.sum(axis=1) <= 1.0 + 1e-9).all()
        and (case.gpus @ shares <= case.capacity + 1e-9).all()
    )


def test_a_gang_of_two_has_half_the_time_of_a_single_job() -> None:
    case = shared([[1.0], [1.0]], [1.0, 2.0], [2.0])  # x + 2 y <= 2 and x = 2 y
    assert max_min(case) == pytest.approx(np.array([[1.0], [0.5]]), abs=1e-3)


def test_three_jobs_share_two_gpus() -> None:
    case = shared([[1.0]] * 3, [1.0] * 3, [2.0])
    assert max_min(case) == pytest.approx(np.full((3, 1), 2.0 / 3.0), abs=1e-3)


def test_each_job_gets_the_type_on_which_it_gains_most() -> None:
    """Speeds (1, 0.2) and (1, 0.5) on 1 and 2 GPUs: the normal speeds are 1.4 / 3 and 2 / 3.

    Both jobs run all the time, the first for x of it on the first type and the second for the rest:
    (x + 0.2 (1 - x)) / 1.4 = ((1 - x) + 0.5 x) / 2, so x = 10 / 23.
    """
    case = shared([[1.0, 0.2], [1.0, 0.5]], [1.0, 1.0], [1.0, 2.0])
    assert max_min(case) == pytest.approx(np.array([[10.0, 13.0], [13.0, 10.0]]) / 23.0, abs=1e-3)


def test_equal_shares_are_those_of_a_part_of_the_cluster() -> None:
    case = shared([[1.0, 0.5], [1.0, 0.5]], [1.0, 4.0], [2.0, 6.0])
    assert equal_shares(case).tolist() == [[0.25, 0.75], [0.25, 0.75]]  # 1 and 3 GPUs: all the time
    alone = shared([[1.0, 0.5]] * 4, [1.0, 4.0, 4.0, 4.0], [2.0, 6.0])
    assert equal_shares(alone)[1].tolist() == [0.125, 0.375]
    assert isolated_speed(alone)[1] == 0.125 + 0.1875


def test_a_job_is_never_on_a_type_that_cannot_hold_it() -> None:
    case = shared([[1.0, 0.0], [1.0, 1.0]], [4.0, 1.0], [4.0, 2.0])
    for found in (max_min(case), least_makespan(case, np.array([10.0, 10.0])), equal_shares(case)):
        assert found[0, 1] == 0.0 and found[0, 0] > 0.0


def random_case(seed: int) -> tuple[SharedGpus, Float64s, Float64s, Float64s]:
    """Two jobs on two types: the case, and age, remaining work and time alone of each job."""
    rng = np.random.default_rng(seed)
    case = SharedGpus(rng.uniform(0.1, 1.0, (2, 2)), rng.choice([1.0, 2.0], 2), rng.choice([1.0, 2.0], 2))
    age, left = rng.uniform(0.0, 500.0, 2), rng.uniform(10.0, 1000.0, 2)
    return case, age, left, rng.uniform(0.3, 1.0, 2) * age + left / isolated_speed(case)


OBJECTIVES: dict[
    str, Callable[[SharedGpus, Float64s, Float64s, Float64s], tuple[Callable[[Float64s], float], Float64s]]
] = {
    "max-min": lambda case, age, left, alone: (
        lambda speed: float((case.gpus * speed / (case.speed @ case.capacity / case.capacity.sum())).min()),
        max_min(case),
    ),
    "finish times": lambda case, age, left, alone: (
        lambda speed: -float(((age + left / np.maximum(speed, 1e-9)) / alone).max()),
        finish_time_fair(case, age, left, alone),
    ),
    "makespan": lambda case, age, left, alone: (
        lambda speed: -float((left / np.maximum(speed, 1e-9)).max()),
        least_makespan(case, left),
    ),
    "throughput": lambda case, age, left, alone: (
        lambda speed: float(speed.sum()),
        most_throughput(case, case.speed),
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_allocation_of_a_grid_is_better(name: str) -> None:
    steps = np.arange(GRID + 1) / GRID
    points = [np.array(point).reshape(2, 2) for point in product(steps, repeat=4)]
    for seed in range(6):
        case, age, left, alone = random_case(seed)
        value, found = OBJECTIVES[name](case, age, left, alone)
        assert is_allowed(case, found)
        best = max(value(average(case, point)) for point in points if is_allowed(case, point))
        own = value(average(case, found))
        loss = abs(own) * 2.0 * SLACK
        assert best <= own + loss
        assert own <= best + 0.4 * abs(best)  # the grid is coarse, but not that coarse


def test_one_gpu_type_needs_no_programme() -> None:
    """A second type on which no job runs leads to the linear programme, with the same ratio and shares."""
    rng = np.random.default_rng(1)
    for capacity in (2.0, 5.0, 50.0):
        speed, gpus, least = rng.uniform(0.1, 1.0, (6, 1)), rng.choice([1.0, 2.0, 4.0], 6), rng.uniform(0.1, 1.0, 6)
        one = highest_ratio(SharedGpus(speed, gpus, np.array([capacity])), least)
        two = highest_ratio(SharedGpus(np.hstack([speed, 0.0 * speed]), gpus, np.array([capacity, 1.0])), least)
        assert one[1] == pytest.approx(two[1])
        assert (speed * one[0])[:, 0] == pytest.approx(one[1] * least)


def test_the_centre_is_a_maximum_of_what_is_left() -> None:
    rng = np.random.default_rng(0)
    case = SharedGpus(rng.uniform(0.1, 1.0, (5, 3)), rng.choice([1.0, 2.0], 5), np.array([2.0, 2.0, 3.0]))
    least = np.full(5, 0.5)
    found, (_, ratio) = centre(case, least), highest_ratio(case, least)

    def left(shares: Float64s) -> float:
        rest = [1.0 - shares.sum(axis=1), case.capacity - case.gpus @ shares, shares.ravel()]
        rest.append(average(case, shares) - least * ratio * (1.0 - SLACK))
        return float(np.log(np.concatenate(rest)).sum())

    there = left(found)
    assert np.isfinite(there)
    for _ in range(50):
        step = rng.normal(size=found.shape) * found.min() * 0.01
        assert left(found + step) < there + 1e-6


@pytest.mark.parametrize("work_s", [50.0, 1234.0, 2e6, 3e7])
def test_a_makespan_by_bisection_is_at_most_its_precision_too_long(work_s: float) -> None:
    case = shared([[1.0], [1.0]], [1.0, 1.0], [2.0])
    left = np.array([work_s, work_s / 2.0])
    ends_s = left / average(case, least_makespan(case, left, 0.05))
    lowest = 100.0 if work_s < 100.0 else work_s  # the search begins there
    assert work_s <= ends_s.max() <= 1.05 * lowest * 1.001
    assert (left / average(case, least_makespan(case, left))).max() == pytest.approx(work_s, rel=1e-3)
