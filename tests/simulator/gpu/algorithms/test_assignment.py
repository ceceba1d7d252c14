"""Sia's programme against every assignment there is, its configurations, and what becomes of a solver cut short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.gpu.algorithms.assignment import UNASSIGNED, ConfigurationChoice, assign, costs
from simulator.gpu.algorithms.configurations import Configuration, Pool, configurations, moving, restart_factor, values
from simulator.gpu.algorithms.packing import pairs

POOLS = [Pool("V100", 2, 4), Pool("A100", 1, 2)]


def test_powers_of_two_inside_a_node_then_whole_nodes() -> None:
    assert configurations(POOLS) == [
        ("V100", 1, 1),
        ("V100", 1, 2),
        ("V100", 1, 4),
        ("V100", 2, 8),
        ("A100", 1, 1),
        ("A100", 1, 2),
    ]
    assert configurations([Pool("K80", 2, 6)]) == [("K80", 1, gpus) for gpus in (1, 2, 4, 6)] + [("K80", 2, 12)]


def test_the_restart_factor_is_what_is_left_after_one_more() -> None:
    assert restart_factor(10.0, 3, 30.0) == 1.0  # younger than one restart
    assert restart_factor(300.0, 0, 30.0) == pytest.approx(300 / 330)
    assert restart_factor(300.0, 2, 30.0) == pytest.approx(240 / 330)
    assert restart_factor(300.0, 50, 30.0) == 0.01


def test_a_row_is_scaled_to_its_least_gpus_and_moving_costs() -> None:
    allowed = [Configuration("V100", 1, gpus) for gpus in (2, 4)]
    row = values(lambda configuration: 100.0 * configuration.gpus**0.5, allowed)
    assert moving(row, 0, 0.8) == pytest.approx([2.0, 2.0 * 2**0.5 * 0.8])
    assert moving(row, None, 0.8) == pytest.approx([2.0, 2.0 * 2**0.5])
    assert values(lambda _: 7.0, allowed) == pytest.approx([2.0, 2.0])


def choice(rows: list[tuple[int, float]]) -> ConfigurationChoice:
    allowed = configurations(POOLS)
    chosen = [allowed[position] for position, _ in rows]
    return ConfigurationChoice(chosen, np.array([value for _, value in rows]))


def cost(choices: list[ConfigurationChoice], chosen: Sequence[int | None]) -> float:
    """The objective that the programme minimises."""
    return sum(
        UNASSIGNED if index is None else float(costs(choice.values[index : index + 1])[0])
        for choice, index in zip(choices, chosen, strict=True)
    )


choices = st.lists(
    st.lists(
        st.tuples(st.integers(0, 5), st.floats(0.3, 40.0)), min_size=1, max_size=4, unique_by=lambda row: row[0]
    ).map(choice),
    min_size=1,
    max_size=4,
)


def gpus(choices: list[ConfigurationChoice], chosen: tuple[int | None, ...], gpu_type: str) -> int:
    given = [choice.allowed[index] for choice, index in zip(choices, chosen, strict=True) if index is not None]
    return sum(configuration.gpus for configuration in given if configuration.gpu_type == gpu_type)


@settings(max_examples=60, deadline=None)
@given(choices, st.integers(0, 8), st.integers(0, 2))
def test_no_other_assignment_costs_less(choices: list[ConfigurationChoice], v100: int, a100: int) -> None:
    capacity = {"V100": v100, "A100": a100}
    found = assign(choices, capacity, gap=0.0)
    every = product(*([None, *range(len(choice.allowed))] for choice in choices))
    possible = [chosen for chosen in every if all(gpus(choices, chosen, kind) <= capacity[kind] for kind in capacity)]
    assert not found.timed_out and tuple(found.chosen) in possible
    assert cost(choices, found.chosen) == pytest.approx(min(cost(choices, chosen) for chosen in possible), abs=1e-6)


def test_a_solver_cut_short_leaves_everyone_where_it_is() -> None:
    rng = np.random.default_rng(0)
    allowed = configurations([Pool("V100", 60, 8)])
    many = [
        ConfigurationChoice(allowed, rng.uniform(1.0, 90.0, len(allowed)), current=1 if job < 3 else None)
        for job in range(200)
    ]
    found = assign(many, {"V100": 480}, limit_s=0.0)
    assert found.timed_out and found.chosen == [1, 1, 1] + [None] * 197


def test_of_equal_answers_who_runs_stays_and_then_the_older_goes_first() -> None:
    allowed, row = [Configuration("V100", 1, 1)], np.array([1.0])
    alike = [
        ConfigurationChoice(allowed, row, None),
        ConfigurationChoice(allowed, row, None),
        ConfigurationChoice(allowed, row, 0),
        ConfigurationChoice(allowed, row, None),
    ]
    assert assign(alike, {"V100": 1}).chosen == [None, None, 0, None]
    assert assign(alike, {"V100": 2}).chosen == [0, None, 0, None]


@settings(max_examples=30, deadline=None)
@example([(0, 0), (4, 2), (0, 2), (4, 2), (4, 2)], 5)  # the solver's absolute gap hid the preference to stay
@given(st.lists(st.tuples(st.sampled_from(range(6)), st.integers(0, 2)), min_size=1, max_size=5), st.integers(0, 5))
def test_alike_jobs_are_as_good_together_as_one_by_one(kinds: list[tuple[int, int]], v100: int) -> None:
    allowed = configurations(POOLS)
    rows = [np.array([1.0, 1.7, 2.4, 2.9, 1.3 + kind, 2.6]) for kind in range(3)]
    choices = [ConfigurationChoice(allowed, rows[kind], current if kind else None) for current, kind in kinds]
    capacity = {"V100": v100, "A100": 2}
    found = assign(choices, capacity, gap=0.0)
    every = product(*([None, *range(len(allowed))] for _ in choices))
    possible = [chosen for chosen in every if all(gpus(choices, chosen, kind) <= capacity[kind] for kind in capacity)]
    least = min(cost(choices, chosen) for chosen in possible)
    assert tuple(found.chosen) in possible and cost(choices, found.chosen) == pytest.approx(least, abs=1e-6)
    stay = max(kept(choices, chosen) for chosen in possible if cost(choices, chosen) < least + 1e-6)
    assert kept(choices, tuple(found.chosen)) == stay


def kept(choices: list[ConfigurationChoice], chosen: tuple[int | None, ...]) -> int:
    return sum(index is not None and index == choice.current for choice, index in zip(choices, chosen, strict=True))


def test_nothing_to_assign() -> None:
    assert assign([], {"V100": 4}) == ([], False)


def test_the_best_pairs_of_equal_jobs_are_packed() -> None:
    kept = {(1, 2): 1.2, (1, 4): 1.6, (2, 4): 0.9, (3, 5): 2.0}
    jobs = [(1, 1), (2, 1), (3, 4), (4, 1), (5, 4)]
    assert pairs(jobs, lambda a, b: kept[a, b]) == [(3, 5), (1, 4)]
    assert pairs(jobs, lambda a, b: 1.0) == []
