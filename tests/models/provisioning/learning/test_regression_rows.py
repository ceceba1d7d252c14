"""The rows that trees are fitted on, against a loop over decisions written from their definition."""

from __future__ import annotations

import math

import numpy as np

from features.observe import FEATURES
from models.provisioning.learning.regression_rows import BASE, INPUTS, training_rows
from models.provisioning.protocol import PairTable
from tests.models.generated import queue_table


def twin(pairs: PairTable) -> tuple[list[list[float]], list[float], list[float]]:
    """Inputs, targets and weights: hourly within a day of the end, every fourth hour before."""
    inputs, targets, weights = [], [], []
    for pair in range(len(pairs)):
        of_pair = []
        for row in range(pairs.offset[pair], pairs.offset[pair + 1]):
            left_s = int(pairs.predecessor_end_s[pair] - pairs.decision_s[row])
            if left_s % 3600 or (left_s > 24 * 3600 and left_s % (4 * 3600)):
                continue
            seen = dict(zip(FEATURES, pairs.observations[row].tolist(), strict=True))
            wait_h = max(0, int(pairs.successor_start_s[row] - pairs.decision_s[row])) / 3600
            inputs.append([seen[name] for name in INPUTS])
            targets.append(math.log((1 + wait_h) / (1 + max(0.0, seen[BASE]))))
            of_pair.append(1 / (1 + left_s / (12 * 3600)))
        weights += [weight / sum(of_pair) for weight in of_pair]
    mean = sum(weights) / len(weights)
    return inputs, targets, [weight / mean for weight in weights]


def test_rows_are_those_of_the_twin() -> None:
    """A limit over a day, so that the sparse part is there; pairs of two lengths, so that their weights differ."""
    long, short = queue_table(seed=3, starts=4, limit_h=40), queue_table(seed=4, starts=3, limit_h=9)
    long.observations[::7, FEATURES.index(BASE)] = -2.0  # no estimate is below nothing
    long.successor_start_s[::11] -= 10**7  # nor is a wait
    from models.provisioning.protocol import concatenate

    pairs = concatenate([long, short])
    rows = training_rows(pairs)
    inputs, targets, weights = twin(pairs)
    np.testing.assert_array_equal(rows.inputs, np.asarray(inputs, np.float32))
    np.testing.assert_allclose(rows.log_ratio, targets, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rows.weight, weights, rtol=1e-9)
    assert rows.inputs.flags.c_contiguous and rows.inputs.dtype == np.float32
