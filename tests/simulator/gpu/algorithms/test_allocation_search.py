"""Pollux's search beside plain twins: objectives, limits and fronts, and the best of every state on small clusters."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from simulator.gpu.algorithms.allocation_search import AllocationProblem, evaluate, mutate, repair, search_allocations
from simulator.gpu.algorithms.fronts import fronts, survivors
from traces.arrays import Float64s, Int64s


def problem(
    random: np.random.Generator, jobs: int, nodes: int, most_gpus: int = 4, **settings: bool
) -> AllocationProblem:
    """Jobs whose speedups grow with the GPUs, and shrink with the nodes."""
    gpus = random.integers(1, most_gpus + 1, nodes)
    on, held = np.arange(nodes + 1)[:, None], np.arange(int(gpus.sum()) + 1)
    speedup = np.stack([held ** random.uniform(0.2, 1.0) * random.uniform(0.7, 1.0) ** on for _ in range(jobs)])
    made = AllocationProblem(
        gpus,
        np.zeros((jobs, nodes), dtype=np.int64),
        speedup,
        random.uniform(0.5, 1.0, jobs),
        random.integers(1, 3, jobs),
        random.integers(2, int(gpus.sum()) + 2, jobs).clip(max=int(gpus.sum())),
        **settings,
    )
    current = random.integers(0, 2, (jobs, nodes))
    repair(made, current, random)
    return made._replace(current=current)


def plain_values(problem: AllocationProblem, state: Int64s) -> tuple[float, float]:
    """The objectives by their definition, one job after the other."""
    nodes, total, speedups, penalised = len(problem.gpus), int(problem.gpus.sum()), [], []
    for job, row in enumerate(state):
        speedups.append(problem.speedup[job, np.count_nonzero(row), row.sum()])
        stays = np.array_equal(row, problem.current[job])
        penalised.append(speedups[-1] * nodes / total * (1.0 if stays else problem.factor[job]))
    mean = np.mean([1.0 / (each + 1e-3) for each in penalised]) ** -1.0
    used = problem.gpus[state.any(axis=0)].sum()
    return -float(mean), -float(sum(speedups) / max(1, used)) if problem.by_utility else 0.0


def is_allowed(problem: AllocationProblem, state: Int64s) -> bool:
    held = state.sum(axis=1)
    spread = (state > 0)[np.count_nonzero(state, axis=1) > 1]
    return bool(
        (state >= 0).all()
        and (state.sum(axis=0) <= problem.gpus).all()
        and (held <= problem.most).all()
        and ((held == 0) | (held >= problem.least)).all()
        and (not problem.avoids or (spread.sum(axis=0) <= 1).all())
    )


@pytest.mark.parametrize("settings", [{}, {"avoids": False}, {"by_utility": False}])
def test_changed_and_repaired_states_keep_all_limits(settings: dict[str, bool]) -> None:
    random = np.random.default_rng(1)
    spread = grown = 0
    for _ in range(200):
        made = problem(random, int(random.integers(1, 7)), int(random.integers(1, 6)), **settings)
        state = random.integers(0, 5, made.current.shape)
        repair(made, state, random)
        assert is_allowed(made, state)
        again = state.copy()
        repair(made, again, random)
        assert np.array_equal(again, state), "an allowed state is left alone"
        mutate(made, state, random)
        grown += int(state.sum() > again.sum())
        repair(made, state, random)
        assert is_allowed(made, state)
        spread += not is_allowed(made._replace(avoids=True), state)
        values = np.zeros(2)
        evaluate(made, state, values)
        np.testing.assert_allclose(values, plain_values(made, state))
    assert grown > 20 and (spread > 0) == (settings == {"avoids": False})


def test_jobs_in_front_keep_their_gpus() -> None:
    random = np.random.default_rng(0)
    made = problem(random, 3, 2)._replace(gpus=np.array([3, 3]), least=np.ones(3, dtype=np.int64), most=np.full(3, 4))
    state = np.array([[2, 0], [2, 2], [3, 3]])
    repair(made, state, random)
    assert state.tolist() == [[2, 0], [1, 2], [0, 0]]


def plain_fronts(values: Float64s) -> list[set[int]]:
    left, found = set(range(len(values))), []
    while left:
        best = {
            one
            for one in left
            if not any((values[other] <= values[one]).all() and (values[other] < values[one]).any() for other in left)
        }
        found.append(best)
        left -= best
    return found


def plain_crowding(values: Float64s, front: set[int]) -> dict[int, float]:
    order = sorted(front, key=lambda one: (*values[one].tolist(), one))
    extent = np.abs(values[order[-1]] - values[order[0]])
    found = dict.fromkeys(order, np.inf)
    for before, one, after in zip(order, order[1:], order[2:], strict=False):
        gaps = np.abs(values[after] - values[before])
        found[one] = float(np.mean([gap / all_ if all_ else 0.0 for gap, all_ in zip(gaps, extent, strict=True)]))
    for before, one in pairwise(order):
        if (values[before] == values[one]).all():
            found[one] = 0.0
    return found


def test_fronts_and_survivors_equal_their_definition() -> None:
    random = np.random.default_rng(2)
    for count in [1, 2, 3, *random.integers(4, 40, 100)]:
        values = random.integers(0, 7, (count, 2)).astype(float)
        values[:, 1] *= random.integers(0, 2)
        expected = plain_fronts(values)
        order, front = fronts(values)
        assert (
            sorted(order) == list(range(count))
            and [set(np.flatnonzero(front == at)) for at in range(len(expected))] == expected
        )
        most = int(random.integers(1, count + 1))
        kept, distance, first = survivors(values, most)
        assert len(set(kept.tolist())) == most and first == min(most, len(expected[0]))
        of_points = {one: gap for front_ in expected for one, gap in plain_crowding(values, front_).items()}
        for number, own in enumerate(expected):
            chosen = [one for one in kept.tolist() if one in own]
            if len(chosen) < len(own):  # nothing of later fronts, and the least crowded of this one
                assert not set(kept.tolist()) & set().union(*expected[number + 1 :])
                gaps = sorted((of_points[one] for one in own), reverse=True)
                assert sorted((of_points[one] for one in chosen), reverse=True) == gaps[: len(chosen)]
        np.testing.assert_allclose(distance, [of_points[one] for one in kept.tolist()])


@pytest.mark.parametrize("by_utility", [False, True])
def test_the_best_state_is_found(by_utility: bool) -> None:
    random = np.random.default_rng(3)
    for _ in range(12):
        made = problem(random, 3, 2, 2, by_utility=by_utility)
        rows = list(product(*(range(int(gpus) + 1) for gpus in made.gpus)))
        states = [np.array(state) for state in product(rows, repeat=3)]
        least = min(plain_values(made, state)[0] for state in states if is_allowed(made, state))
        best, kept = search_allocations(made, made.current[None], random)
        assert is_allowed(made, best) and plain_values(made, best)[0] == pytest.approx(least)
        assert all(is_allowed(made, state) for state in kept)


def test_the_same_seed_finds_the_same_states() -> None:
    made = problem(np.random.default_rng(4), 8, 4)
    one, other = (search_allocations(made, made.current[None], np.random.default_rng(5), 20) for _ in range(2))
    assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])
