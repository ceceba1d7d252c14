"""Placement against every way to place a gang."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.algorithms.placement import fewest_nodes, packed, take


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.integers(1, 12), st.one_of(st.none(), st.integers(1, 3)))
def test_a_gang_is_on_the_fewest_nodes_that_hold_it(free: list[int], gpus: int, most_nodes: int | None) -> None:
    every = [place for place in product(*(range(own + 1) for own in free)) if sum(place) == gpus]
    fewest = min((sum(own > 0 for own in place) for place in every), default=None)
    found = packed(np.array(free, dtype=np.int64), gpus, most_nodes)
    if fewest is None or (most_nodes is not None and fewest > most_nodes):
        assert found is None
        return
    assert found is not None and sum(found.values()) == gpus and len(found) == fewest
    assert all(0 < own <= free[node] for node, own in found.items())
    if len(found) == 1:  # best fit
        (node,) = found
        assert free[node] == min(own for own in free if own >= gpus)


def test_taking_and_counting() -> None:
    free = np.array([4, 4])
    take(free, {1: 3})
    assert list(free) == [4, 1]
    assert [fewest_nodes(gpus, 8) for gpus in (1, 8, 9, 16)] == [1, 1, 2, 2]
