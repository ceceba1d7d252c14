"""The rows of `bench/mirage_peer.py`: where they submit, and the trees, which no command of Baton can name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.mirage import peers
from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import training
from models.provisioning.mirage.foundations import BOUNDS_H, RELEASED_H, Budget, within
from tests.models.provisioning.mirage.days import HISTORIES, PAIRS, SMALL, histories
from traces.errors import InputError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with repeatable(0):
        yield


def test_the_value_rule_submits_at_the_released_bound() -> None:
    fitted = peers.FittedPeer(
        "toy", "gap", BOUNDS_H, RELEASED_H, lambda seen, rows: seen.pairs.gap_h[rows].astype(np.float64)
    )
    outcome = fitted.outcome(HISTORIES, every=3)
    at = BOUNDS_H.index(-0.5)
    for pair in range(len(PAIRS)):
        rows = np.arange(PAIRS.last[pair], PAIRS.offset[pair] - 1, -3)[::-1]
        row = next((row for row in rows if PAIRS.gap_h[row] >= -0.5), rows[-1])
        assert outcome.gap_h[0, at, pair] == PAIRS.gap_h[row]
    assert outcome.default_setting == -0.5
    assert within(np.array([499.0, 501.0])).tolist() == [499.0, -np.inf]


@pytest.mark.parametrize("kind", ["forest", "xgboost"])
def test_trees_on_flattened_states_know_what_the_snapshots_say(kind: str) -> None:
    fitted = peers.fit_trees(kind, HISTORIES, 0, trees=8)
    rows = training.probe_rows(PAIRS)
    found = fitted.predict(HISTORIES, rows)
    assert np.corrcoef(found, PAIRS.gap_h[rows])[0, 1] > 0.8


def test_unknown_trees_are_refused() -> None:
    with pytest.raises(InputError, match="unknown tree model 'oak' of Mirage; known: forest, xgboost"):
        peers.fit_trees("oak", HISTORIES, 0)


@pytest.mark.parametrize("kind", ["transformer", "mixture"])
def test_a_foundation_gives_a_value_row_and_a_reinforce_row(kind: str, tmp_path: Path) -> None:
    few = histories(PAIRS.take(np.arange(6)))
    budget = Budget(seconds=0.05, sizes=SMALL, checkpoints=tmp_path)
    value, head = peers.fit_foundation(kind, few, budget, 0, every=6)
    assert (value.name, head.name) == (f"mirage-{kind}", f"mirage-{kind}-reinforce")
    for one in (value, head):
        outcome = one.outcome(few, every=6)
        assert outcome.gap_h.shape == (1, 15, 6) and np.isfinite(outcome.gap_h).all()
    assert sum(value.metrics["epochs"]) >= 1 and (tmp_path / f"{kind}-0.npz").exists()
