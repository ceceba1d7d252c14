"""Where stopping rules submit, against a walk through each pair."""

from __future__ import annotations

import numpy as np
import pytest

from models.provisioning.stopping import following_rows, stopping_rows
from tests.models.pair_tables import random_pairs

PAIRS = random_pairs(3, starts=12)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_who_waits_submits_at_the_first_later_decision_that_says_so(share: float) -> None:
    rng = np.random.default_rng(1)
    submit = rng.random((3, len(PAIRS.decision_s))) < share
    found, first = following_rows(PAIRS, submit), stopping_rows(PAIRS, submit)
    for rule in range(3):
        for pair in range(len(PAIRS)):
            begin, end = PAIRS.offset[pair], PAIRS.offset[pair + 1]
            for row in range(begin, end):
                later = [at for at in range(row + 1, end) if submit[rule, at] or at == end - 1]
                assert found[rule, row] == (later[0] if later else row)
            now = [at for at in range(begin, end) if submit[rule, at] or at == end - 1]
            assert first[rule, pair] == now[0]


def test_the_rule_that_is_asked_stays_as_it_was() -> None:
    submit = np.zeros(len(PAIRS.decision_s), bool)
    following_rows(PAIRS, submit)
    assert not submit.any()
