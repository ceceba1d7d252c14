"""Baton's learners over histories: what they are shown, that they read it, and that a training resumes to the bit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.mirage import learners
from bench.mirage.learners import ENCODERS, KINDS, LEARNERS, DayInputs
from features.observe import FEATURES
from models.provisioning.learning.networks import RELATIVE, Inputs, repeatable
from models.provisioning.mirage.foundations import Budget
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import CLUSTER_INPUTS, HISTORY, INPUTS, STEP_S, Histories, Snapshots
from models.provisioning.policies.dqn import DQN
from models.provisioning.policies.policy_gradient import PolicyGradient
from models.provisioning.protocol import PairTable
from tests.models.pair_tables import random_pairs
from tests.models.provisioning.policies.learning_task import table
from traces.errors import InputError

SMALL = Sizes(width=8, inner=8, layers=1, heads=1, experts=2, gate=4)
SHORT: dict[str, DQN | PolicyGradient] = {
    "dqn": DQN(updates=6, batch=8, steps_ahead=2, looks=3, hidden=(8,)),
    "policy-gradient": PolicyGradient(updates=6, batch_pairs=2, looks=3, hidden=(8,)),
}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learners in a size for tests."""

    def make(kind: str, updates: int | None) -> DQN | PolicyGradient:
        policy = SHORT[kind.rpartition("-")[0]]
        return replace(policy, name=kind, updates=updates or policy.updates)

    for name in SHORT:
        monkeypatch.setitem(LEARNERS, name, make)


def histories(pairs: PairTable, first_s: int | None = None) -> Histories:
    """Snapshots of which the first number is the wait of a successor submitted about then, in hours."""
    first_s = int(pairs.decision_s.min()) - HISTORY * STEP_S if first_s is None else first_s
    rng = np.random.default_rng(0)
    rows = rng.exponential(9.0, (int(pairs.decision_s.max() - first_s) // STEP_S + 1, CLUSTER_INPUTS))
    rows[(pairs.decision_s - first_s) // STEP_S, 0] = (pairs.successor_start_s - pairs.decision_s) / 3600.0
    return Histories.of_table(Snapshots(first_s, rows.astype(np.float32)).added_to(pairs))


PAIRS = random_pairs(3, starts=60, sizes=(1,))
HISTORIES = histories(PAIRS)
PAIRS = HISTORIES.pairs


def shown(kind: str = "transformer", of: Histories = HISTORIES) -> DayInputs:
    return DayInputs.of(of, lambda: ENCODERS[kind](SMALL))


def test_a_network_is_shown_the_ratios_the_price_and_the_day_standardised_on_what_is_fitted() -> None:
    made = shown()
    rows, log_weight = np.array([0, 40, 700]), np.array([-1.0, 0.0, 2.0], np.float32)
    seen = made.at(rows, log_weight)
    width = len(RELATIVE) + 1
    torch.testing.assert_close(seen[:, :width], Inputs.of(PAIRS.observations).at(rows, log_weight))
    raw = np.log1p(HISTORIES.at(rows).astype(np.float64))
    of_cluster = np.log1p(HISTORIES.snapshots.rows[: HISTORIES.last.max() + 1].astype(np.float64))
    of_pair = np.log1p(HISTORIES.of_pair(np.arange(len(PAIRS.decision_s))).astype(np.float64))
    mean = np.concatenate([of_cluster.mean(axis=0), of_pair.mean(axis=0)])
    spread = np.maximum(np.concatenate([of_cluster.std(axis=0), of_pair.std(axis=0)]), 0.05)
    expected = np.clip((raw - mean) / spread, -5.0, 5.0)
    found = seen[:, width:].reshape(-1, HISTORY, INPUTS).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert np.abs(found[:, :, CLUSTER_INPUTS:]).max() > 0.1, "nothing of the pair is shown"


def test_other_pairs_and_other_snapshots_are_read_by_the_scaling_of_the_fitted_ones() -> None:
    made, rows, price = shown(), np.arange(30), np.zeros(30, np.float32)
    few = PAIRS.take(np.arange(20, 40))
    at = np.arange(PAIRS.offset[20], PAIRS.offset[20] + 30)
    torch.testing.assert_close(made.of_pairs(few).at(rows, price), made.at(at, price))
    busier = replace(HISTORIES, snapshots=replace(HISTORIES.snapshots, rows=9 * HISTORIES.snapshots.rows))
    seen = made.of_histories(busier).states(rows)[:, :, 0].mean()
    assert seen > made.states(rows)[:, :, 0].mean() + 0.5, "a busier month must look busier"


def test_what_comes_after_the_last_fitted_decision_has_no_part_in_the_scaling() -> None:
    early = PAIRS.take(np.arange(30))
    later = HISTORIES.snapshots.rows.copy()
    cut = int(early.last_snapshot.max()) + 1
    later[cut:] += 1000.0
    of = [
        DayInputs.of(Histories(Snapshots(0, rows), early, early.last_snapshot), lambda: torch.nn.Flatten())
        for rows in (HISTORIES.snapshots.rows, later)
    ]
    np.testing.assert_array_equal(of[0].of_cluster.mean, of[1].of_cluster.mean)
    assert cut < len(later) - 10


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_all_decisions_at_once_are_said_as_one_by_one(encoder: str) -> None:
    """Each day is encoded once for all prices; the network itself encodes it for each."""
    few = shown(encoder).of_pairs(PAIRS.take(np.arange(16)))
    with repeatable(0):
        network = few.network((8,), 2)
        found = few.found(network, (0.1, 1.0, 5.0))
        rows = np.arange(len(few.histories.last))
        assert len(rows) > learners.ENCODED_ROWS
        for place, weight in enumerate((0.1, 1.0, 5.0)):
            with torch.no_grad():
                expected = network(few.at(rows, np.full(len(rows), np.log(weight), np.float32)))
            torch.testing.assert_close(found[place], expected, rtol=1e-4, atol=1e-5)
    assert (found[0] - found[2]).abs().max() > 1e-3, "the price says nothing"


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_a_network_reads_the_oldest_snapshot_and_says_the_same_twice(encoder: str) -> None:
    made = shown(encoder)
    with repeatable(0):
        network = made.network((8,), 1)
        seen = made.at(np.array([50]), np.zeros(1, np.float32)).requires_grad_()
        said = network(seen)
        assert torch.equal(said, network(seen)), "dropout is on"
        said.sum().backward()
    assert seen.grad is not None
    day = seen.grad[0, len(RELATIVE) + 1 :].reshape(HISTORY, INPUTS).abs().sum(dim=1)
    assert bool((day > 0).all())


def test_the_policy_gradient_begins_at_the_rule_of_todays_learner() -> None:
    made = shown()
    with repeatable(0):
        actor = SHORT["policy-gradient"].first_actor(made)  # type: ignore[union-attr]
        rule = SHORT["policy-gradient"].first_actor(made.now)  # type: ignore[union-attr]
    mine, other = actor.get_parameter("head.skip.weight")[0], rule.get_parameter("skip.weight")[0]
    assert mine[0] != 0.0 and mine[-1] != 0.0
    torch.testing.assert_close(mine[[0, -1]], other[[0, -1]])
    torch.testing.assert_close(actor.get_parameter("head.deep.2.bias"), rule.get_parameter("deep.2.bias"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_that_was_interrupted_goes_on_to_the_same_bit(kind: str, short: None, tmp_path: Path) -> None:
    whole = learners.fit(kind, HISTORIES, Budget(1e9, SMALL), 4)
    kept = Budget(1e-9, SMALL, tmp_path)
    assert learners.fit(kind, HISTORIES, kept, 4).metrics["updates"] == [1.0]
    again = learners.fit(kind, HISTORIES, replace(kept, seconds=1e9), 4)
    assert again.metrics["updates"] == whole.metrics["updates"] == [6.0]
    assert again.metrics["newest_cost_h"] == whole.metrics["newest_cost_h"] and len(whole.metrics["newest_cost_h"]) == 3
    for expected, found in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    finished = learners.fit(kind, HISTORIES, replace(kept, seconds=1e9), 4)
    for expected, found in zip(whole.network.parameters(), finished.network.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_checkpoint_of_another_training_is_refused_by_name(short: None, tmp_path: Path) -> None:
    kind = "dqn-transformer"
    learners.fit(kind, HISTORIES, Budget(1e-9, SMALL, tmp_path), 0)
    with pytest.raises(InputError, match=re.escape("'width': 8")) as caught:
        learners.fit(kind, HISTORIES, Budget(1e-9, replace(SMALL, width=4), tmp_path), 0)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)
    with pytest.raises(InputError, match=r"a checkpoint of learner .*'updates': 6"):
        learners.fit(kind, HISTORIES, Budget(1e-9, SMALL, tmp_path), 0, updates=7)


def test_an_unknown_learner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown learner over histories 'dqn-lstm'; known: dqn-transformer"):
        learners.fit("dqn-lstm", HISTORIES, Budget(1.0, SMALL), 0)


def parted_task() -> Histories:
    """Pairs of `learning_task` one after the other, every other of them with free nodes: only the snapshots say which.

    The wait is a quarter of its estimate where nodes are free, half as long again elsewhere.
    """
    pairs = table(pairs=180).take(np.arange(0, 180, 3))  # 8 h each, 12 h apart
    free = pairs.observations[:, FEATURES.index("free_nodes")]
    hidden = pairs.observations.copy()
    hidden[:, FEATURES.index("start_estimate_idle_h")] = hidden[:, FEATURES.index("start_estimate_h")]
    first_s = int(pairs.decision_s.min()) - HISTORY * STEP_S
    rows = np.ones((int(pairs.decision_s.max() - first_s) // STEP_S + 1, CLUSTER_INPUTS), np.float32)
    rows[(pairs.decision_s - first_s) // STEP_S] = free[:, None]
    return Histories.of_table(Snapshots(first_s, rows).added_to(replace(pairs, observations=hidden)))


@pytest.mark.parametrize("learner", list(LEARNERS))
def test_they_learn_from_the_day_what_todays_ratios_do_not_say(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick: dict[str, DQN | PolicyGradient] = {
        "dqn": DQN(updates=100, batch=32, steps_ahead=2, learning_rate=1e-2, hidden=(16,), target_rate=0.1, looks=2),
        "policy-gradient": PolicyGradient(
            updates=20, batch_pairs=4, learning_rate=4e-3, hidden=(16,), average_rate=0.3, looks=4
        ),
    }
    monkeypatch.setitem(LEARNERS, learner, lambda name, updates: quick[learner])
    task = parted_task()
    blank = replace(task, snapshots=replace(task.snapshots, rows=np.ones_like(task.snapshots.rows)))
    with_day, without = (
        min(learners.fit(f"{learner}-transformer", one, Budget(1e9, SMALL), 0).metrics["newest_cost_h"])
        for one in (task, blank)
    )
    assert with_day < 0.7 * without


def test_an_outcome_is_where_the_network_submits_first() -> None:
    learned = learners.fit("dqn-transformer", HISTORIES, Budget(1e-9, SMALL), 0)
    few = histories(PAIRS.take(np.arange(5, 9)))
    outcome = learned.outcome(few)
    at = learned.policy.settings.index(1.0)
    seen = learned.shown.of_histories(few)
    for pair in range(4):
        rows = np.arange(few.pairs.offset[pair], few.pairs.offset[pair + 1])
        with torch.no_grad():
            said = learned.network(seen.at(rows, np.zeros(len(rows), np.float32)))
        row = next((row for row, (wait, submit) in zip(rows, said.tolist(), strict=True) if submit >= wait), rows[-1])
        assert outcome.gap_h[0, at, pair] == few.pairs.gap_h[row]
    assert outcome.default_setting == 1.0 and outcome.gap_h.shape == (1, len(outcome.settings), 4)
