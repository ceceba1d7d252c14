"""The auction against every outcome, its payments against their formula, and truth against lies."""

from __future__ import annotations

from itertools import pairwise, product
from math import log, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.algorithms import auction as module
from simulator.gpu.algorithms.auction import Bid, auction, worst_off
from simulator.gpu.algorithms.bundles import Bundle, Part, bundle_of, fills, fitted, spreads
from simulator.gpu.algorithms.fairness import GangTrial, ideal_s, left_s, rho

values = st.floats(0.05, 5.0)
placed_bundles = st.builds(
    lambda kind, gpus, widest, at: bundle_of(kind, spreads(gpus, widest)[at % len(spreads(gpus, widest))]),
    st.sampled_from("ab"),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 3),
)
counted_bundles: st.SearchStrategy[dict[Part, int]] = st.builds(lambda gpus: {(None, 1): gpus}, st.integers(1, 5))
machines = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ab")), min_size=1, max_size=4)


def bids_of(bundles: st.SearchStrategy[dict[Part, int]]) -> st.SearchStrategy[Bid]:
    rest = st.lists(st.tuples(bundles, values), max_size=3)
    return st.builds(lambda nothing, others: [({}, nothing), *others], values, rest)


mixed = st.one_of(
    bids_of(counted_bundles), bids_of(placed_bundles), bids_of(st.one_of(placed_bundles, counted_bundles))
)
auctions = st.lists(mixed, min_size=1, max_size=4)


def holds(bundles: list[Bundle], nodes: list[tuple[int, str]]) -> bool:
    """Whether some distribution of all parts over the nodes fits: every one is tried."""
    parts = [part for bundle in bundles for part, count in bundle.items() for _ in range(count)]
    parts.sort(key=lambda part: (-part[1], part[0] is None))

    def fits(at: int, free: tuple[int, ...]) -> bool:
        if at == len(parts):
            return True
        kind, size = parts[at]
        return any(
            kind in (None, nodes[node][1])
            and free[node] >= size
            and fits(at + 1, (*free[:node], free[node] - size, *free[node + 1 :]))
            for node in range(len(free))
        )

    return sum(size for _, size in parts) <= sum(free for free, _ in nodes) and fits(0, tuple(n for n, _ in nodes))


def best_product(bids: list[Bid], nodes: list[tuple[int, str]]) -> float:
    outcomes = sorted(product(*bids), key=lambda chosen: -prod(value for _, value in chosen))
    return next(
        prod(value for _, value in chosen) for chosen in outcomes if holds([bundle for bundle, _ in chosen], nodes)
    )


def sold(bids: list[Bid], nodes: list[tuple[int, str]]) -> module.AuctionOutcome:
    return auction(bids, np.array([free for free, _ in nodes]), [kind for _, kind in nodes])


@settings(max_examples=150, deadline=None)
@given(auctions, machines)
def test_the_product_is_largest_and_each_pays_what_it_costs_the_others(
    bids: list[Bid], nodes: list[tuple[int, str]]
) -> None:
    outcome = sold(bids, nodes)
    won = [bid[index] for bid, index in zip(bids, outcome.won, strict=True)]
    total = prod(value for _, value in won)
    assert holds([bundle for bundle, _ in won], nodes)
    assert log(total / best_product(bids, nodes)) == pytest.approx(0.0, abs=2e-5)
    for number, kept in enumerate(outcome.kept):
        others = [bid for other, bid in enumerate(bids) if other != number]
        without = best_product(others, nodes) if others else 1.0
        if outcome.won[number]:
            assert kept == pytest.approx(min(1.0, total / won[number][1] / without), rel=1e-4)
        assert 0.0 < kept <= 1.0


@settings(max_examples=100, deadline=None)
@given(auctions, mixed, machines)
def test_no_lie_pays(bids: list[Bid], lie: Bid, nodes: list[tuple[int, str]]) -> None:
    def worth(bundle: Bundle) -> float:
        """A bundle that the truth does not name is worth the best part of it that the truth names."""
        return max(value for own, value in bids[0] if all(bundle.get(part, 0) >= n for part, n in own.items()))

    honest, lying = sold(bids, nodes), sold([lie, *bids[1:]], nodes)
    got = lying.kept[0] * worth(lie[lying.won[0]][0])
    truth = bids[0][honest.won[0]][1]
    assert got <= honest.kept[0] * truth * (1.0 + 1e-4)


def test_a_lone_bidder_pays_nothing() -> None:
    assert sold([[({}, 0.1), ({("a", 4): 1}, 1.0)]], [(4, "a")]) == ([1], [1.0], 0)


def test_the_winner_of_a_whole_node_is_the_one_who_loses_most_when_spread() -> None:
    # Two gangs of 4, one free node of 4, four nodes with one free GPU each.
    nodes = [(4, "a"), *[(1, "a")] * 4]
    together: Bundle = {("a", 4): 1}
    spread: Bundle = {("a", 1): 4}
    bids: list[Bid] = [[({}, 0.1), (together, 1.0), (spread, 0.9)], [({}, 0.1), (together, 1.0), (spread, 0.3)]]
    outcome = sold(bids, nodes)
    assert outcome.won == [2, 1]
    assert outcome.kept == pytest.approx([1.0, 0.9], rel=1e-4)  # the second costs the first a tenth of its value


def test_more_bidders_than_one_programme_takes_get_what_the_first_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BIDDERS", 2)
    bids: list[Bid] = [[({}, 0.1), ({("a", 2): 1}, value)] for value in (0.5, 0.4, 0.9, 0.8)]
    assert sold(bids, [(2, "a"), (2, "b")]).won == [1, 0, 0, 0]
    assert sold(bids, [(2, "a"), (2, "a")]).won == [1, 1, 0, 0]
    assert sold(bids, [(2, "a"), (4, "a")]).won == [1, 1, 1, 0]


def test_the_filter_takes_the_worst_off() -> None:
    assert worst_off([1.0, 3.0, 2.0, 3.0, 0.5], 0.6) == [1, 3]
    assert (
        worst_off([1.0, 3.0], 0.8) == [1] and worst_off([1.0, 2.0, 3.0], 0.0) == [2, 1, 0] and worst_off([], 0.8) == []
    )


@given(st.integers(1, 64), st.floats(1.0, 1e6), st.floats(64.0, 1e4))
def test_rho_of_a_lone_job_is_one(gpus: int, run_s: float, cluster_gpus: float) -> None:
    trials = [GangTrial(gpus, run_s)]
    alone_s = ideal_s(trials, cluster_gpus)
    assert alone_s == run_s and left_s(trials, gpus) == pytest.approx(run_s)
    assert rho(0.0, run_s, alone_s) == 1.0


def test_a_gang_wider_than_its_share_takes_longer_alone() -> None:
    assert ideal_s([GangTrial(8, 100.0)], 4.0) == 200.0
    assert ideal_s([GangTrial(1, 100.0), GangTrial(2, 300.0)], 10.0) == 300.0
    assert ideal_s([GangTrial(1, 100.0)] * 6, 2.0) == 300.0


def test_trials_end_with_the_longest_or_with_all_their_work() -> None:
    trials = [GangTrial(2, 300.0), GangTrial(1, 100.0)]
    assert left_s(trials, 3) == 300.0 and left_s(trials, 1) == 700.0


@given(st.integers(1, 40), st.integers(1, 9))
def test_spreads_double_the_nodes(gpus: int, widest: int) -> None:
    found = spreads(gpus, widest)
    assert len(found[0]) == -(-gpus // widest) and len(found[-1]) == gpus
    assert all(sum(one) == gpus and min(one) > 0 and max(one) <= widest for one in found)
    assert all(len(b) in (2 * len(a), gpus) for a, b in pairwise(found))


def test_ways_to_fill_a_node() -> None:
    assert fills(5, (3, 2)) == [(1, 1), (0, 2)]
    assert fills(8, (8, 4, 2)) == [(1, 0, 0), (0, 2, 0), (0, 1, 2), (0, 0, 4)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(placed_bundles, counted_bundles), max_size=4), machines)
def test_bundles_are_placed_whenever_they_fit(bundles: list[Bundle], nodes: list[tuple[int, str]]) -> None:
    free, types = np.array([gpus for gpus, _ in nodes]), [kind for _, kind in nodes]
    found = fitted(bundles, free, types, every=True)
    assert (found is not None) == holds(bundles, nodes)
    for bundle, placed in zip(bundles, found or [], strict=False):
        for node, gpus in placed.items():
            free[node] -= gpus
            assert {kind for kind, _ in bundle} in ({None}, {types[node]})
        assert sum(placed.values()) == sum(size * count for (_, size), count in bundle.items())
    assert free.min() >= 0


def test_largest_parts_first_may_fail_where_another_way_fits() -> None:
    # 4 and 3 fill 7; 3 and 2 fill 5. Best fit puts 4 on the node of 5.
    bundles: list[Bundle] = [{("a", size): 1} for size in (4, 3, 3, 2)]
    free = np.array([5, 7])
    assert fitted(bundles, free, ["a", "a"]) is None
    assert fitted(bundles, free, ["a", "a"], every=True) == [{1: 4}, {1: 3}, {0: 3}, {0: 2}]
