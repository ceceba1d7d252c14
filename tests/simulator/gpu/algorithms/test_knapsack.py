"""The multiple-choice knapsack against every choice there is; the reclaimed servers against the rule, word by word."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.algorithms.knapsack import Group, choose
from simulator.gpu.algorithms.reclaim import choose_servers

items = st.tuples(st.integers(1, 6), st.floats(-2.0, 9.0))
groups = st.lists(st.lists(items, max_size=4), max_size=5)


def worth(groups: list[Group], chosen: list[int]) -> tuple[int, float]:
    picked = [group[index] for group, index in zip(groups, chosen, strict=True) if index >= 0]
    return sum(weight for weight, _ in picked), sum(value for _, value in picked)


@settings(max_examples=150, deadline=None)
@given(groups, st.integers(0, 14))
def test_no_other_choice_is_worth_more(groups: list[Group], capacity: int) -> None:
    weight, value = worth(groups, choose(groups, capacity))
    every = [worth(groups, list(chosen)) for chosen in product(*(range(-1, len(group)) for group in groups))]
    assert weight <= capacity
    assert abs(value - max(value for weight, value in every if weight <= capacity)) < 1e-9


def test_nothing_is_chosen_for_nothing() -> None:
    assert choose([[(1, 0.0)], [(2, -1.0)], []], 5) == [-1, -1, -1]


def by_the_text(servers_of: dict[int, set[int]], loaned: set[int], wanted: int) -> list[int]:
    """Each time the loaned server whose jobs lose the least, a job on k servers losing 1/k on each."""
    gone: list[int] = []
    while len(gone) < min(wanted, len(loaned)):
        running = [servers for servers in servers_of.values() if not servers & set(gone)]
        costs = [
            (sum(1 / len(servers) for servers in running if server in servers), server) for server in loaned - set(gone)
        ]
        gone.append(min(costs)[1])
    return gone


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 6), min_size=1, max_size=4), max_size=6),
    st.sets(st.integers(0, 6), max_size=6),
    st.integers(0, 7),
)
def test_servers_are_reclaimed_by_the_text(servers_of: dict[int, set[int]], loaned: set[int], wanted: int) -> None:
    assert choose_servers(servers_of, loaned, wanted) == by_the_text(servers_of, loaned, wanted)


def test_costs_are_computed_again_after_a_pick() -> None:
    # Job 0 is on 0 and 1 (a half each), job 1 on 2, 3 and 4 (a third each): 2 is the cheapest, then 3 and 4 cost
    # nothing.
    assert choose_servers({0: {0, 1}, 1: {2, 3, 4}}, {0, 1, 2, 3, 4}, 4) == [2, 3, 4, 0]
