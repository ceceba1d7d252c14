"""Where episodes start, against the formula, one decision at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from features.observe import FEATURES
from models.provisioning.batched_pairs import BatchedPairs
from models.provisioning.learning.exploring_starts import ExploringStarts
from models.provisioning.protocol import PairTable


def twin(pairs: PairTable, every: int) -> list[tuple[int, int, float]]:
    """(pair, decisions left on the thinned grid, weight) of each decision where an episode may start."""
    starts = []
    for pair in range(len(pairs)):
        last = pairs.offset[pair + 1] - 1
        for row in range(pairs.offset[pair], last + 1):
            if (last - row) % every:
                continue
            estimate_h = max(0.0, float(pairs.observations[row, FEATURES.index("start_estimate_expected_h")]))
            remaining_h = max(0.0, float(pairs.observations[row, FEATURES.index("remaining_h")]))
            weight = 0.05
            if estimate_h > 0:
                weight += math.exp(-abs(math.log((1 + estimate_h) / (1 + remaining_h))) / 0.5)
            starts.append((pair, int(last - row) // every, weight))
    return starts


@pytest.mark.parametrize("every", [1, 6, 7])
def test_weights_are_those_of_the_formula(report_table: PairTable, every: int) -> None:
    pairs = report_table.take(np.arange(6))
    pairs.observations[::5, FEATURES.index("start_estimate_expected_h")] = 0.0  # a copy: `take` made it
    starts = ExploringStarts(BatchedPairs(pairs, every))
    expected = twin(pairs, every)
    assert list(zip(starts.pair.tolist(), starts.remaining.tolist(), strict=True)) == [one[:2] for one in expected]
    np.testing.assert_allclose(np.diff(starts.until, prepend=0.0), [weight for *_, weight in expected], rtol=1e-6)


def test_draws_are_as_frequent_as_the_weights_say(report_table: PairTable) -> None:
    pairs = report_table.take(np.arange(2))
    starts = ExploringStarts(BatchedPairs(pairs, 12))
    expected = twin(pairs, 12)
    drawn = list(zip(*(part.tolist() for part in starts.draw(np.random.default_rng(0), 50_000)), strict=True))
    total = sum(weight for *_, weight in expected)
    for pair, left, weight in expected:
        assert drawn.count((pair, left)) / 50_000 == pytest.approx(weight / total, abs=0.006)


def test_the_highest_of_random_numbers_draws_the_last_start(report_table: PairTable) -> None:
    starts = ExploringStarts(BatchedPairs(report_table, 6))

    class Highest:
        def random(self, count: int) -> np.ndarray:
            return np.ones(count)  # beyond what a generator gives, as a rounded product may be

    pair, left = starts.draw(Highest(), 2)  # type: ignore[arg-type]
    assert pair.tolist() == [len(report_table) - 1] * 2 and left.tolist() == [0, 0]
