"""Pair tables: what is known before an instant, and parts of a table."""

from __future__ import annotations

import numpy as np
import pytest

from features.futures.summary import AHEAD
from features.observe import FEATURES
from models.provisioning.protocol import PairTable, concatenate

HOUR = 3600
BEGIN = 1_600_000_000


def two_decisions(*successor_starts_h: float) -> PairTable:
    """A pair for each: P runs from hour 0 to hour 10; a successor submitted at hour 5 starts at hour 6, one submitted
    at P's end at the hour given.
    """
    pairs = len(successor_starts_h)
    starts = np.array([[6.0, late] for late in successor_starts_h])
    return PairTable(
        pair_nodes=np.arange(1, pairs + 1),
        limit_s=np.full(pairs, 10 * HOUR),
        submit_s=np.full(pairs, BEGIN - HOUR) + np.arange(pairs),
        predecessor_start_s=np.full(pairs, BEGIN),
        predecessor_end_s=np.full(pairs, BEGIN + 10 * HOUR),
        user_start_s=np.arange(pairs) + BEGIN,
        offset=np.arange(pairs + 1) * 2,
        decision_s=np.tile([BEGIN + 5 * HOUR, BEGIN + 10 * HOUR], pairs),
        successor_start_s=(BEGIN + starts * HOUR).astype(np.int64).ravel(),
        observations=np.arange(pairs * 2 * len(FEATURES), dtype=np.float32).reshape(-1, len(FEATURES)),
        ahead=np.arange(pairs * 2 * len(AHEAD), dtype=np.float32).reshape(-1, len(AHEAD)),
        snapshots=np.arange(3.0 * pairs, dtype=np.float32)[:, None],
        last_snapshot=np.arange(pairs * 2),
        candidates=np.arange(2.0 * pairs).reshape(pairs, 2),
    )


def test_a_pair_is_known_once_even_the_last_successor_has_started() -> None:
    """Neither P's end nor the start of an earlier successor is enough: the outcome of reactive is still open."""
    pairs = two_decisions(10, 11, 12, 30)
    for until_h, known in ((10, 0), (11, 1), (12, 2), (13, 3), (30, 3), (31, 4)):
        assert len(pairs.known_before(BEGIN + until_h * HOUR)) == known, until_h
    known_pairs = pairs.known_before(BEGIN + 11 * HOUR + 1)
    assert known_pairs.pair_nodes.tolist() == [1, 2]


def test_gaps_are_positive_where_work_is_interrupted_and_negative_where_it_is_doubled() -> None:
    pairs = two_decisions(10, 12.5)
    assert pairs.gap_h.tolist() == [-4.0, 0.0, -4.0, 2.5]
    assert pairs.pair_of.tolist() == [0, 0, 1, 1]
    assert pairs.last.tolist() == [1, 3]


@pytest.mark.parametrize("chosen", [[2, 0], [1], []])
def test_taken_pairs_bring_all_that_is_theirs(chosen: list[int]) -> None:
    pairs = two_decisions(10, 11, 12)
    taken = pairs.take(np.array(chosen, np.int64))
    assert len(taken) == len(chosen)
    for place, pair in enumerate(chosen):
        for name in ("pair_nodes", "limit_s", "submit_s", "predecessor_start_s", "predecessor_end_s", "user_start_s"):
            assert getattr(taken, name)[place] == getattr(pairs, name)[pair]
        mine, theirs = slice(2 * place, 2 * place + 2), slice(2 * pair, 2 * pair + 2)
        for name in ("decision_s", "successor_start_s", "observations", "ahead", "last_snapshot"):
            np.testing.assert_array_equal(getattr(taken, name)[mine], getattr(pairs, name)[theirs])
    assert taken.offset.tolist() == [2 * place for place in range(len(chosen) + 1)]
    np.testing.assert_array_equal(taken.candidates, pairs.candidates)


def test_a_mask_takes_the_pairs_where_it_holds() -> None:
    pairs = two_decisions(10, 11, 12)
    np.testing.assert_array_equal(
        pairs.take(np.array([True, False, True])).observations, pairs.take(np.array([0, 2])).observations
    )


def test_tables_one_behind_the_other() -> None:
    first, second = two_decisions(10, 11), two_decisions(12)
    both = concatenate([first, second])
    assert both.offset.tolist() == [0, 2, 4, 6]
    for name in PairTable.__dataclass_fields__:
        if name not in ("offset", "last_snapshot"):
            np.testing.assert_array_equal(
                getattr(both, name), np.concatenate([getattr(first, name), getattr(second, name)])
            )


def test_decisions_find_their_snapshots_in_joined_tables() -> None:
    first, second = two_decisions(10, 11), two_decisions(12)
    both = concatenate([first, second])
    each = [one.snapshots[one.last_snapshot] for one in (first, second)]
    np.testing.assert_array_equal(both.snapshots[both.last_snapshot], np.concatenate(each))


def test_the_digest_is_of_everything_in_the_table() -> None:
    pairs = two_decisions(10, 11)
    digests = {pairs.digest}
    for name in PairTable.__dataclass_fields__:
        changed = getattr(pairs, name).copy()
        changed.ravel()[-1] += 1
        digests.add(PairTable(**{**pairs.__dict__, name: changed}).digest)
    assert len(digests) == 1 + len(PairTable.__dataclass_fields__)
    assert two_decisions(10, 11).digest == pairs.digest
