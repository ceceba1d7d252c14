"""Optimal stopping: its gains by hand, its boundary where the best rule is known, its trees in the artifact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.observe import FEATURES
from models.provisioning.learning.stopping_rows import INPUTS, folds_in_time, relative_inputs, rows_to_fit
from models.provisioning.policies.fitted_q import FittedQ, Stopping
from tests.models.pair_tables import mean_cost, random_pairs
from tests.models.provisioning.policies.learning_task import table
from traces.errors import InputError

PAIRS = random_pairs(4, starts=40)


def test_a_gain_is_the_loss_of_waiting_less_that_of_submitting() -> None:
    stopping = Stopping(FittedQ(), PAIRS, 0)
    submit = np.random.default_rng(2).random(len(PAIRS.decision_s)) < 0.1
    gain, size = stopping.gain(submit, 3.0)

    def loss(row: int) -> float:
        gap = float(PAIRS.gap_h[row])
        return (max(gap, 0.0) + 3.0 * max(-gap, 0.0)) / 4.0

    for pair in range(len(PAIRS)):
        begin, end = int(PAIRS.offset[pair]), int(PAIRS.offset[pair + 1])
        for row in range(begin, end):
            later = next((at for at in range(row + 1, end) if submit[at] or at == end - 1), row)
            assert gain[row] == pytest.approx(loss(later) - loss(row))
            remaining = float(PAIRS.observations[row, FEATURES.index("remaining_h")])
            assert size[row] == pytest.approx(abs(gain[row]) / (1 + max(remaining, 0.0)), rel=1e-6)


def test_no_decision_is_judged_by_trees_that_saw_its_time() -> None:
    """Other outcomes in one stretch of time leave the scores there as they are, and move those elsewhere."""
    fold = folds_in_time(PAIRS, 3)
    assert [len(np.unique(PAIRS.pair_of[fold == number])) for number in range(3)] == [27, 27, 26]
    late = np.where(fold == 1, PAIRS.decision_s + 86_400, PAIRS.successor_start_s)
    before, after = (
        Stopping(FittedQ(rounds=5, min_data_in_leaf=5), pairs, 0).crossed()
        for pairs in (PAIRS, replace(PAIRS, successor_start_s=late))
    )
    np.testing.assert_array_equal(before[fold == 1], after[fold == 1])
    assert (before[fold != 1] != after[fold != 1]).any()


def test_the_artifact_decides_as_the_boosters_do() -> None:
    policy = FittedQ(rounds=8, improvement_rounds=6, min_data_in_leaf=5, prices=(0.5, 4.0))
    artifact, metrics = policy.fit(PAIRS, 1)
    stopping = Stopping(policy, PAIRS, 1)
    ahead = stopping.boost(stopping.base, stopping.is_late, None, stopping.rows, 8)
    first = stopping.base + ahead.raw(stopping.inputs)
    crossed = stopping.crossed()
    changes = []
    for price in policy.prices:
        gain, size = stopping.gain(crossed >= np.log(price), price)
        made = stopping.boost(first - np.log(price), gain > 0.0, size, stopping.rows, 6)
        changes.append(made.raw(stopping.inputs))
    half = np.log(np.sqrt(0.5 * 4.0))  # in the middle, where prices are taken by their logarithm
    for log_price, change in (
        (np.log(0.1), changes[0]),
        (half, (changes[0] + changes[1]) / 2),
        (np.log(9.0), changes[1]),
    ):
        found = artifact.score(PAIRS.observations, float(np.exp(log_price)))
        np.testing.assert_allclose(found, first - log_price + change, atol=1e-9)
    assert len(metrics["look_ahead_log_loss"]) == 8
    assert metrics["look_ahead_log_loss"][-1] < metrics["look_ahead_log_loss"][0]
    assert metrics["improvement_log_loss"][-1] < metrics["improvement_log_loss"][0]


def test_a_row_counts_by_its_size() -> None:
    """Of rows that are alike the heavier say which way the score goes; a row of no size says nothing."""
    stopping = Stopping(FittedQ(min_data_in_leaf=2, bagging_fraction=1.0), PAIRS, 0)
    label = stopping.rows[None, :] % 2 == 0
    labels = np.zeros(len(PAIRS.decision_s), bool)
    labels[stopping.rows] = label[0]
    start = np.zeros(len(labels))
    heavy, light = np.where(labels, 9.0, 1.0), np.where(labels, 1.0, 9.0)
    means = [
        stopping.boost(start, labels, size, stopping.rows, 10).raw(stopping.inputs).mean() for size in (heavy, light)
    ]
    assert means[0] > 0.2 > -0.2 > means[1]


def test_scores_rise_with_every_estimate_and_never_fall_back() -> None:
    artifact, _ = FittedQ(min_data_in_leaf=5).fit(PAIRS, 0)
    row = np.repeat(PAIRS.observations[7:8], 50, axis=0)
    row[:, FEATURES.index("remaining_h")] = 5.0
    for name in INPUTS:
        rising = row.copy()
        rising[:, FEATURES.index(name)] = np.linspace(0.0, 40.0, 50)
        assert (np.diff(artifact.scores(rising), axis=1) >= -1e-12).all(), name


def test_nothing_learned_is_the_start_estimate_by_its_ratio() -> None:
    artifact, _ = FittedQ(rounds=2).fit(PAIRS, 0)
    start = FittedQ().untrained(artifact, 0)
    seen = PAIRS.observations
    estimate, remaining = (seen[:, FEATURES.index(name)].astype(float) for name in ("start_estimate_h", "remaining_h"))
    ratio = (1 + np.maximum(estimate, 0)) / (1 + np.maximum(remaining, 0))
    for price in (0.3, 1.0, 6.0):
        expected = (ratio**4 >= price) | (remaining <= 0)
        clear = np.abs(ratio**4 - price) > 1e-6
        np.testing.assert_array_equal(start.decide(seen, price)[clear], expected[clear])


def test_what_is_seen_in_plain_sight_is_learned_and_the_improvement_helps() -> None:
    pairs, judged = table(pairs=96), table(seed=9)
    policy = FittedQ(min_data_in_leaf=20)
    artifact, metrics = policy.fit(pairs, 0)
    best = min(mean_cost(judged, artifact, setting, 1) for setting in (0.3, 0.7, 1.0, 1.5, 3.0))
    untrained = policy.untrained(artifact, 0)
    assert best < 0.5 * min(mean_cost(judged, untrained, setting, 1) for setting in untrained.settings)
    assert metrics["crossed_cost_h"][1] < metrics["crossed_cost_h"][0]


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    first, again, other = (FittedQ(rounds=5, min_data_in_leaf=5).fit(PAIRS, seed)[0] for seed in (3, 3, 4))
    assert all((first.arrays[name] == again.arrays[name]).all() for name in first.arrays)
    assert any((first.scores(PAIRS.observations) != other.scores(PAIRS.observations)).ravel())


@pytest.mark.parametrize("count", [1, 2])
def test_a_table_of_one_or_two_pairs_is_fitted(count: int) -> None:
    artifact, _ = FittedQ(min_data_in_leaf=2).fit(PAIRS.take(np.arange(count)), 0)
    assert np.isfinite(artifact.scores(PAIRS.observations)).all()


def test_pairs_without_a_decision_before_the_end_are_refused() -> None:
    only_ends = PAIRS.take(np.arange(3))
    rows = only_ends.last
    ends = replace(
        only_ends,
        offset=np.arange(4),
        decision_s=only_ends.decision_s[rows],
        successor_start_s=only_ends.successor_start_s[rows],
        observations=only_ends.observations[rows],
    )
    with pytest.raises(InputError, match="fitted-q: none of the 3 pairs has a decision before its predecessor's end"):
        FittedQ().fit(ends, 0)


def test_rows_are_those_where_there_is_a_choice() -> None:
    rows = rows_to_fit(PAIRS)
    assert not np.isin(PAIRS.last, rows).any()
    assert len(rows) == len(PAIRS.decision_s) - len(PAIRS)
    ratio = relative_inputs(PAIRS.observations[:1], ("start_estimate_h",))[0, 0]
    at = PAIRS.observations[0].astype(float)
    estimate, remaining = at[FEATURES.index("start_estimate_h")], at[FEATURES.index("remaining_h")]
    assert ratio == pytest.approx(np.log1p(estimate) - np.log1p(remaining))
