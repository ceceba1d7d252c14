"""Parts of the batch by hand; the batch as a whole is held against one pair at a time in `test_environment`."""

from __future__ import annotations

import numpy as np
import pytest

from models.provisioning.batched_pairs import BatchedPairs, rewards
from tests.models.generated import queue_table

PAIRS = queue_table(seed=6, starts=3, limit_h=2, sizes=(1,))  # 13 decisions a pair, ten minutes apart


def test_thinned_decisions_are_counted_back_from_the_exact_end() -> None:
    env = BatchedPairs(PAIRS, 5)
    assert env.decisions(np.array([0, 2])).tolist() == [3, 3]  # 12, 7 and 2 of 0 to 12
    assert env.reset(np.array([0, 2])).tolist() == [2, 26 + 2]
    assert env.reset(np.array([1, 1, 1]), np.array([1, 0, -4])).tolist() == [13 + 7, 13 + 12, 13 + 12]
    assert BatchedPairs(PAIRS).decisions(np.array([1])).tolist() == [13]


def test_a_batch_stands_nowhere_before_it_is_reset() -> None:
    env = BatchedPairs(PAIRS)
    assert len(env.rows) == 0
    assert env.reset(np.array([], np.int64)).shape == (0,)


def test_a_start_beyond_the_first_decision_is_the_first() -> None:
    env = BatchedPairs(PAIRS, 5)
    env.reset(np.array([0]), np.array([0]))
    env.step(np.array([True]))
    assert env.restart(np.array([True]), np.array([1]), np.array([-3])).tolist() == [13 + 12]


def test_restart_puts_another_pair_where_one_has_ended() -> None:
    env = BatchedPairs(PAIRS, 5)
    env.reset(np.array([0, 1]), np.array([1, 1]))
    env.step(np.array([True, False]))
    rows = env.restart(np.array([True, False]), np.array([2]), np.array([99]))
    assert rows.tolist() == [26 + 2, 13 + 12]
    after = env.step(np.array([False, False]))
    assert after.done.tolist() == [False, True]  # the second stands at P's end, the first has two more to come
    assert after.rows.tolist() == [26 + 7, 13 + 12]


def test_costs_come_at_submission_and_only_then() -> None:
    env = BatchedPairs(PAIRS)
    env.reset(np.array([0, 0]), np.array([4, 4]))
    after = env.step(np.array([1, 0]))
    gap = PAIRS.gap_h[8]
    assert (after.interruption_h[0], after.overlap_h[0]) == (max(gap, 0.0), max(-gap, 0.0))
    assert (after.interruption_h[1], after.overlap_h[1]) == (0.0, 0.0)


def test_rewards_by_hand() -> None:
    assert rewards(3.0, 0.0, 0.5) == pytest.approx(-2.0)
    assert rewards(0.0, 3.0, 0.5) == pytest.approx(-1.0)
    assert rewards(2.0, 4.0, 3.0) == pytest.approx(-14 / 4)
