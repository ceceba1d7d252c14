"""The block bootstrap against an obvious twin, and against what it must do to correlated series."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import bootstrap
from traces.units import DAY_S, HOUR_S


def twin_weights(submit_s: list[int], draws: int, seed: int, block_s: int) -> list[list[float]] | None:
    """Goes round the circle block by block and counts how often each start falls into one."""
    starts = sorted(set(submit_s))
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    span = starts[-1] + (int(np.median(gaps)) if gaps else 1) - starts[0]
    if span <= block_s:
        return None
    lengths = [block_s] * (span // block_s) + ([span % block_s] if span % block_s else [])
    begins = np.random.default_rng(seed).integers(0, span, size=(draws, len(lengths)))
    return [
        [
            sum((s - starts[0] - int(begin)) % span < length for begin, length in zip(draw, lengths, strict=True))
            for s in submit_s
        ]
        for draw in begins
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(1, 20),
    st.integers(0, 5),
)
def test_weights_are_those_of_the_twin(hours: list[int], block_h: int, seed: int) -> None:
    submit = [1_600_000_000 + h * HOUR_S for h in hours]
    found = bootstrap.start_weights(np.asarray(submit, np.int64), draws=7, seed=seed, block_s=block_h * HOUR_S)
    expected = twin_weights(submit, 7, seed, block_h * HOUR_S)
    assert (found is None) == (expected is None)
    if found is not None:
        np.testing.assert_array_equal(found, expected)


def test_each_draw_is_as_long_as_the_window() -> None:
    submit = np.arange(0, 25 * DAY_S, 4 * HOUR_S)
    weights = bootstrap.start_weights(submit, draws=200)
    assert weights is not None
    assert (weights.sum(axis=1) == len(submit)).all()


def test_every_start_is_drawn_equally_often() -> None:
    """Not so without the circle: there the ends of the window are drawn up to 42 times less."""
    weights = bootstrap.start_weights(np.arange(0, 11 * DAY_S, 4 * HOUR_S), draws=20_000)
    assert weights is not None
    np.testing.assert_allclose(weights.mean(axis=0), 1.0, atol=0.03)


def test_pairs_of_two_sizes_at_one_instant_are_drawn_together() -> None:
    submit = np.arange(0, 25 * DAY_S, 4 * HOUR_S)
    weights = bootstrap.start_weights(np.concatenate([submit, submit]), draws=50)
    assert weights is not None
    np.testing.assert_array_equal(weights[:, : len(submit)], weights[:, len(submit) :])


@pytest.mark.parametrize("days", [0, 3, 7])
def test_a_window_of_one_block_has_no_spread_to_report(days: int) -> None:
    assert bootstrap.start_weights(np.arange(0, days * DAY_S, 4 * HOUR_S)) is None


def test_blocks_are_counted_from_the_start_of_the_window() -> None:
    submit = np.array([0, 1 * DAY_S, 8 * DAY_S, 27 * DAY_S])
    assert bootstrap.block_count(submit, 0) == 3
    assert bootstrap.block_count(submit[2:], 0) == 2
    assert bootstrap.block_count(submit[2:3], 7 * DAY_S) == 1


def test_correlated_starts_widen_the_interval_as_much_as_they_should() -> None:
    """Weeks that are each one number: n is the number of weeks, whatever the number of starts."""
    rng = np.random.default_rng(3)
    weeks, per_week = 40, 42
    values = np.repeat(rng.normal(size=weeks), per_week)
    submit = np.arange(weeks * per_week) * 4 * HOUR_S
    ones = np.ones((1000, 1))

    def width(block_s: int) -> float:
        weights = bootstrap.start_weights(submit, block_s=block_s)
        assert weights is not None
        found = bootstrap.interval(bootstrap.resampled_means(values[None, None], weights, ones)[:, 0])
        assert found is not None
        return found[1] - found[0]

    of_weeks = 2 * 1.96 * values.std() / np.sqrt(weeks)
    # blocks that straddle two weeks average them, so the moving-block variance is two thirds of the true one here
    assert 0.7 * of_weeks < width(7 * DAY_S) < 1.1 * of_weeks
    assert width(4 * HOUR_S) < 0.25 * of_weeks


def test_resampled_means_are_those_of_the_twin() -> None:
    rng = np.random.default_rng(1)
    values, starts = rng.normal(size=(3, 4, 10)), rng.integers(0, 3, size=(6, 10)).astype(float)
    seeds = bootstrap.seed_weights(3, draws=6)
    starts[2] = 0.0  # a draw that holds none of these pairs
    found = bootstrap.resampled_means(values, starts, seeds)
    for b in range(6):
        for k in range(4):
            drawn = [values[s, k, i] for s in range(3) for _ in range(round(3 * seeds[b, s])) for i in range(10)
                     for _ in range(int(starts[b, i]))]  # fmt: skip
            expected = np.mean(drawn) if drawn else np.nan
            np.testing.assert_allclose(found[b, k], expected)


def test_resampled_percentiles_are_those_of_the_twin() -> None:
    rng = np.random.default_rng(2)
    values, starts = rng.normal(size=(3, 10)), rng.integers(0, 3, size=(6, 10)).astype(float)
    seeds = bootstrap.seed_weights(3, draws=6)
    starts[2] = 0.0  # a draw that holds none of these pairs
    found = bootstrap.resampled_percentiles(values, starts, seeds, [1, 50, 95, 100])
    for b in range(6):
        drawn = [values[s, i] for s in range(3) for _ in range(round(3 * seeds[b, s])) for i in range(10)
                 for _ in range(int(starts[b, i]))]  # fmt: skip
        for k, percent in enumerate((1, 50, 95, 100)):
            expected = np.percentile(drawn, percent, method="inverted_cdf") if drawn else np.nan
            np.testing.assert_equal(found[b, k], expected)


def test_percentiles_of_a_draw_of_one_pair_are_that_pairs() -> None:
    """A weight of one in all, and that on the largest value."""
    starts = np.array([[0.0, 0.0, 1.0]])
    found = bootstrap.resampled_percentiles(np.array([[5.0, 3.0, 9.0]]), starts, np.ones((1, 1)), [5, 50, 100])
    assert found.tolist() == [[9.0, 9.0, 9.0]]


def test_seeds_are_drawn_with_replacement() -> None:
    weights = bootstrap.seed_weights(5, draws=500)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert weights.max() > 0.5 and (weights == 0).any()
    np.testing.assert_array_equal(bootstrap.seed_weights(1, draws=4), np.ones((4, 1)))


def test_an_interval_needs_the_figure_in_nearly_every_draw() -> None:
    samples = np.arange(100.0)
    assert bootstrap.interval(samples) == pytest.approx([2.475, 96.525])
    samples[:4] = np.nan
    assert bootstrap.interval(samples) is not None
    samples[:6] = np.nan
    assert bootstrap.interval(samples) is None
    assert bootstrap.interval(np.empty(0)) is None
