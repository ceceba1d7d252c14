"""A search: it looks forward only, stops what lags, goes on where it was, and finds what is better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.futures.summary import AHEAD
from models.engine.local import each_here
from models.engine.work import Engine
from models.provisioning.learning.early_stopping import WEIGHTS
from models.provisioning.protocol import PairTable
from models.provisioning.registry import make_policy
from models.provisioning.training import sweep as module
from models.provisioning.training.sweep import SearchTrial, TrialFit, cost_at, curve_cost, splits, sweep
from tests.models.engine.pickled import each_pickled
from tests.models.pair_tables import random_pairs
from traces.errors import InputError

PAIRS = random_pairs(3, starts=90, sizes=(1,), steps=6)


def test_splits_look_forward_and_learn_from_nothing_that_was_not_known() -> None:
    parts = splits(PAIRS)
    assert len(parts) == 3
    for before, after in parts:
        first = after.submit_s.min()
        assert before.successor_start_s.max() < first and before.submit_s.max() < first
    judged = np.concatenate([after.submit_s for _, after in parts])
    np.testing.assert_array_equal(np.sort(judged), np.sort(PAIRS.submit_s)[36:])


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="a search needs 10 pairs on either side of each of 3 instants; with these 30"):
        splits(PAIRS.take(np.arange(30)))


def test_a_curve_costs_what_its_best_setting_does_at_each_weight() -> None:
    few = PAIRS.take(np.arange(5))
    submit = np.random.default_rng(0).random((4, len(few.decision_s))) < 0.3
    total = 0.0
    for weight in WEIGHTS:
        best = np.inf
        for setting in submit:
            lost = []
            for pair in range(5):
                rows = range(few.offset[pair], few.offset[pair + 1])
                gap = few.gap_h[next(row for row in rows if setting[row] or row == rows[-1])]
                lost.append((max(gap, 0) + weight * max(-gap, 0)) / (1 + weight))
            best = min(best, float(np.mean(lost)))
        total += best
    assert curve_cost(few, submit) == pytest.approx(total / len(WEIGHTS))


@pytest.mark.parametrize("name", ["lightgbm", "fitted-q-ahead"])
def test_a_cost_is_that_of_the_policy_fitted_before_and_judged_after(name: str) -> None:
    waits_h = np.random.default_rng(1).random((len(PAIRS.decision_s), len(AHEAD)), np.float32)
    pairs = replace(PAIRS, ahead=waits_h)
    policy = replace(make_policy(name), rounds=20, leaves=4)  # type: ignore[type-var]
    before, after = splits(pairs)[1]
    artifact, _ = policy.fit(before, 5)
    seen = np.concatenate([after.observations, after.ahead], axis=1) if name.endswith("ahead") else after.observations
    expected = curve_cost(after, artifact.decisions(seen))
    values: dict[str, int | float] = {"rounds": 20, "leaves": 4}
    assert cost_at(splits(pairs), TrialFit(name, values, 1, 5))[0] == pytest.approx(expected)


def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A landscape in place of fits: the nearer the quantile is to .7, the less it costs, at every instant alike."""

    def cheap(_parts: list[tuple[PairTable, PairTable]], fit: TrialFit) -> tuple[float, float]:
        return abs(fit.values["quantile"] - 0.7), 0.0

    monkeypatch.setattr(module, "cost_at", cheap)


def test_a_search_tries_the_policys_own_values_first_and_finds_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch)
    seen: list[SearchTrial] = []
    found = sweep("lightgbm", PAIRS, trials=25, budget_s=60, journal=tmp_path / "a" / "b.journal", record=seen.append)
    assert [one.number for one in seen] == list(range(25))
    assert seen[0].values["quantile"] == 0.6 and seen[0].values["leaves"] == 15
    assert found.own_cost_h == pytest.approx(0.1)
    assert found.best.cost_h < 0.05 and found.best.cost_h == min(one.cost_h for one in seen if not one.pruned)
    assert found.trials == 25 and found.pruned == sum(one.pruned for one in seen) > 0
    for one in seen:
        assert len(one.costs_h) == (3 if not one.pruned else len(one.costs_h)) and one.ended_s >= one.began_s
        assert not one.pruned or len(one.costs_h) < 3


def test_the_trials_do_not_depend_on_the_engine(tmp_path: Path) -> None:
    """Fits of lightgbm, with a first trial and a batch."""

    def tried(name: str, engine: Engine) -> list[tuple[int, dict[str, int | float], tuple[float, ...], bool]]:
        seen: list[SearchTrial] = []
        sweep("lightgbm", PAIRS, trials=5, budget_s=60, journal=tmp_path / name, record=seen.append, engine=engine)
        return [(one.number, one.values, one.costs_h, one.pruned) for one in seen]

    assert tried("here", each_here) == tried("pickled", each_pickled)


def test_a_search_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    journal = tmp_path / "kept.journal"
    sweep("lightgbm", PAIRS, trials=5, budget_s=60, journal=journal)
    seen: list[SearchTrial] = []
    found = sweep("lightgbm", PAIRS, trials=8, budget_s=60, journal=journal, record=seen.append)
    assert [one.number for one in seen] == [5, 6, 7] and found.trials == 8
    assert sweep("lightgbm", PAIRS, trials=8, budget_s=60, journal=journal, record=seen.append) == found
    assert len(seen) == 3


def test_a_budget_ends_the_search_and_one_trial_is_always_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    assert sweep("lightgbm", PAIRS, trials=50, budget_s=0.0, journal=tmp_path / "kept.journal").trials == 1


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.journal"
    path.write_text("no journal\n")
    with pytest.raises(InputError, match="not a journal of a search") as caught:
        sweep("lightgbm", PAIRS, trials=1, budget_s=1, journal=path)
    assert "\n" not in str(caught.value)


def test_a_policy_without_hyperparameters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="policy 'reactive' has no hyper-parameters"):
        sweep("reactive", PAIRS, trials=1, budget_s=1, journal=tmp_path / "kept.journal")
