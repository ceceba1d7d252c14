"""Fits of several seeds differ, and an interval must say so: seeds are drawn inside each draw of starts."""

from __future__ import annotations

import pytest

from features.observe import FEATURES
from models.provisioning.comparison.compare import compare
from models.provisioning.protocol import PairTable
from tests.models.pair_tables import artifact, context, random_pairs, reactive, trained

SHOWN = {"recent_wait_mean_h": 0.0, "recent_wait_p50_h": 1.0, "recent_wait_p90_h": 2.0}  # leads of three fits


def alike() -> PairTable:
    """Pairs of eleven days, every successor of which waits four hours: no start differs from another."""
    pairs = random_pairs(4, 66, sizes=(1,))
    for name, lead_h in SHOWN.items():
        pairs.observations[:, FEATURES.index(name)] = lead_h
    return PairTable(**{**pairs.__dict__, "successor_start_s": pairs.decision_s + 4 * 3600})


def test_where_only_the_seed_matters_the_interval_is_that_of_the_seeds() -> None:
    """Three fits lose 4, 3 and 2 h: the same one is drawn three times in each 27th draw, which is over 2.5 %."""
    fits = [artifact(settings=(1.0,), feature=name, policy="learner") for name in SHOWN]
    compared = compare(alike(), [*trained("reactive", reactive()), *trained("learner", *fits)], context=context())
    row = next(r for r in compared.results if r["policy"] == "learner" and r["load"] == "all")
    assert row["seeds"] == 3
    assert row["interruption_h"] == pytest.approx(3.0)
    assert row["ci95"]["interruption_h"] == pytest.approx([2.0, 4.0])
    assert row["ci95"]["interruption_p95_h"] == pytest.approx([2.0, 4.0])
    assert row["ci95"]["cost_w1"] == pytest.approx([2.0, 4.0])
