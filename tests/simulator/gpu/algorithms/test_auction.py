"""The auction against every outcome, its payments against their formula, and truth against lies."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.algorithms.auction import Bid, auction, worst_off
from simulator.gpu.algorithms.fairness import GangTrial, bid, ideal_s, rho

values = st.floats(0.05, 5.0)
bids = st.builds(
    lambda nothing, rest: [(0, nothing), *sorted(rest.items())],
    values,
    st.dictionaries(st.integers(1, 5), values, max_size=3),
)
auctions = st.lists(bids, min_size=1, max_size=4)


def best_product(bids: list[Bid], capacity: int) -> float:
    outcomes = [list(zip(*chosen, strict=True)) for chosen in product(*bids)] if bids else []
    return max((prod(values) for gpus, values in outcomes if sum(gpus) <= capacity), default=1.0)


def worth(bid: Bid, gpus: int) -> float:
    return dict(bid)[gpus]


@settings(max_examples=120, deadline=None)
@given(auctions, st.integers(0, 9))
def test_the_product_is_largest_and_each_pays_what_it_costs_the_others(bids: list[Bid], capacity: int) -> None:
    outcome = auction(bids, capacity)
    assert sum(outcome.gpus) <= capacity
    won = [worth(bid, gpus) for bid, gpus in zip(bids, outcome.gpus, strict=True)]
    assert prod(won) == pytest.approx(best_product(bids, capacity))
    for number, kept in enumerate(outcome.kept):
        others = [bid for other, bid in enumerate(bids) if other != number]
        assert kept == pytest.approx(prod(won) / won[number] / best_product(others, capacity))
        assert 0.0 < kept <= 1.0


@settings(max_examples=200, deadline=None)
@given(auctions, bids, st.integers(0, 9))
def test_no_lie_pays(bids: list[Bid], lie: Bid, capacity: int) -> None:
    truth = bids[0]
    honest = auction(bids, capacity)
    # A bundle that the truth does not name is worth what the largest smaller one of it is.
    lying = auction([lie, *bids[1:]], capacity)
    got = max((value for gpus, value in truth if gpus <= lying.gpus[0]))
    found = worth(truth, honest.gpus[0])
    assert lying.kept[0] * got <= honest.kept[0] * found * (1.0 + 1e-9)


def test_a_lone_bidder_pays_nothing() -> None:
    assert auction([[(0, 0.1), (4, 1.0)]], 4) == ([4], [1.0])


def test_the_filter_takes_the_worst_off() -> None:
    assert worst_off([1.0, 3.0, 2.0, 3.0, 0.5], 0.6) == [1, 3]
    assert (
        worst_off([1.0, 3.0], 0.8) == [1] and worst_off([1.0, 2.0, 3.0], 0.0) == [2, 1, 0] and worst_off([], 0.8) == []
    )


@given(st.integers(1, 64), st.floats(1.0, 1e6), st.floats(64.0, 1e4))
def test_rho_of_a_lone_job_is_one(gpus: int, run_s: float, cluster_gpus: float) -> None:
    trials = [GangTrial(gpus, run_s)]
    alone_s = ideal_s(trials, cluster_gpus)
    assert alone_s == run_s
    offers = bid(trials, 0.0, alone_s, cluster_gpus, 1200.0, free_gpus=64)
    assert offers[-1][0] == gpus and offers[-1][1] == pytest.approx(1.0)
    assert rho(0.0, run_s, alone_s) == 1.0


def test_a_gang_wider_than_its_share_takes_longer_alone() -> None:
    assert ideal_s([GangTrial(8, 100.0)], 4.0) == 200.0
    assert ideal_s([GangTrial(1, 100.0), GangTrial(2, 300.0)], 10.0) == 300.0
    assert ideal_s([GangTrial(1, 100.0)] * 6, 2.0) == 300.0


def test_an_app_bids_for_its_shortest_trials_first() -> None:
    # 10 GPUs' share: alone 300 s. One trial: all the work, 700 GPU s, on 1 GPU; both: the longest, 300 s.
    offers = bid([GangTrial(2, 300.0), GangTrial(1, 100.0)], 100.0, 300.0, 10.0, 50.0, free_gpus=3)
    assert offers == [(0, 300 / 450), (3, 300 / 400)]  # one GPU would be worth 300 / 800: less than nothing
    assert bid([GangTrial(2, 300.0), GangTrial(1, 100.0)], 100.0, 300.0, 10.0, 50.0, free_gpus=2) == [(0, 300 / 450)]
