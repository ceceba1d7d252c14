"""The mechanisms of the policy gradient, each against its definition."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from features.observe import FEATURES
from models.provisioning.learning import early_stopping, networks
from models.provisioning.policies.best_rule import best_rules
from models.provisioning.policies.policy_gradient import (
    PairBatch,
    PolicyGradient,
    PolicyGradientLearner,
    start_from_estimate,
    values,
)
from tests.models.pair_tables import random_pairs
from tests.models.provisioning.policies.learning_task import table

PAIRS = table()


def learner(**options: Any) -> PolicyGradientLearner:
    """A small learner."""
    policy = PolicyGradient(**{"batch_pairs": 6, "hidden": (8,), "updates": 20, "epochs": 2, **options})
    torch.manual_seed(3)
    return PolicyGradientLearner(policy, networks.Inputs.of(PAIRS.observations), PAIRS, None, np.random.default_rng(3))


def weights(network: torch.nn.Module) -> list[np.ndarray]:
    return [weight.detach().numpy().copy() for weight in network.parameters()]


def shown(made: PolicyGradientLearner, batch: PairBatch) -> torch.Tensor:
    """(n, width) what the actor sees: the scaled observation, and a third of the weight's logarithm."""
    assert isinstance(made.inputs, networks.Inputs)
    seen = made.inputs.normal.numpy()[batch.rows]
    return torch.tensor(np.concatenate([seen, batch.log_weight[:, None] / np.float32(3.0)], axis=1))


def test_a_batch_is_whole_pairs_with_their_outcomes() -> None:
    made = learner()
    batch = made.draw()
    at = 0
    for _ in range(6):
        pair = int(PAIRS.pair_of[batch.rows[at]])
        rows = np.arange(PAIRS.offset[pair], PAIRS.offset[pair + 1])
        here = slice(at, at + len(rows))
        np.testing.assert_array_equal(batch.rows[here], rows)
        assert batch.last[here].tolist() == [False] * (len(rows) - 1) + [True]
        weight = float(np.exp(batch.log_weight[at]))
        assert (batch.log_weight[here] == batch.log_weight[at]).all()
        gap = PAIRS.gap_h[rows]
        cost = (np.maximum(gap, 0) + weight * np.maximum(-gap, 0)) / (1 + weight)
        np.testing.assert_allclose(batch.outcome[here], -cost, rtol=1e-5)
        at += len(rows)
    assert at == len(batch.rows)
    left_h = (PAIRS.predecessor_end_s[PAIRS.pair_of] - PAIRS.decision_s)[batch.rows] / 3600
    counts = np.where(batch.last, 0.0, 1 / (1 + left_h))
    np.testing.assert_allclose(batch.counts, counts / counts.sum(), rtol=1e-5)
    rules = best_rules(PAIRS, networks.RULE_WEIGHTS)
    nearest = [int(np.argmin(np.abs(np.log(networks.RULE_WEIGHTS) - log))) for log in batch.log_weight]
    np.testing.assert_array_equal(batch.imitated > 0, rules[nearest, batch.rows])


def test_a_value_is_the_mean_of_all_ways_to_submit() -> None:
    """Over every way that the draws of two pairs of three and two decisions may fall."""
    last = np.array([False, False, True, False, True])
    outcome, chance = np.array([-3.0, -1.0, -8.0, -2.0, -5.0]), np.array([0.25, 0.5, 0.9, 0.1, 0.0])
    none = np.zeros(5)
    batch = PairBatch(np.arange(5), last, none.astype(np.float32), outcome, none, none.astype(np.float32))
    value, following = values(batch, chance)
    at_1 = 0.5 * -1 + 0.5 * -8
    np.testing.assert_allclose(value, [0.25 * -3 + 0.75 * at_1, at_1, -8, 0.1 * -2 + 0.9 * -5, -5])
    np.testing.assert_allclose(following, [at_1, -8, -8, -5, -5])


def objective_by_hand(batch: PairBatch, now: torch.Tensor, old: np.ndarray, clip: float) -> torch.Tensor:
    """The clipped objective of both actions, from the definition of proximal policy optimisation."""
    value, following = values(batch, old)
    gains = [batch.outcome - value, following - value]
    spread = np.sqrt((batch.counts * (batch.outcome - following) ** 2).sum()) + 1e-6
    total = torch.zeros(())
    for gain, chance, before in ((gains[0], now, old), (gains[1], 1 - now, 1 - old)):
        advantage, was = torch.tensor(gain / spread).float(), torch.tensor(before).float()
        ratio = chance / was
        surrogate = torch.minimum(ratio * advantage, torch.clamp(ratio, 1 - clip, 1 + clip) * advantage)
        total = total + (torch.tensor(batch.counts).float() * was * surrogate).sum()
    return total


@pytest.mark.parametrize("imitate", [False, True])
def test_an_update_is_that_of_the_clipped_objective(imitate: bool) -> None:
    """Objective, bonus, gradient, clipping and Adam over three passes, against plain torch on a copy."""
    made = learner(learning_rate=0.05, gradient_norm=0.2, epochs=3, clip=0.05, sharpness=0.5)
    actor = copy.deepcopy(made.actor)
    adam = torch.optim.Adam(actor.parameters(), 0.05)
    batch = made.draw()
    seen = shown(made, batch)
    old = torch.sigmoid(actor(seen)[:, 0]).detach().numpy().astype(np.float64)
    for _ in range(3):
        now = torch.sigmoid(actor(seen)[:, 0])
        counts = torch.tensor(batch.counts).float()
        entropy = -(counts * (now * torch.log(now) + (1 - now) * torch.log(1 - now))).sum()
        if imitate:
            rule = torch.tensor(batch.imitated)
            objective = (counts * (rule * torch.log(now) + (1 - rule) * torch.log(1 - now))).sum()
        else:
            objective = objective_by_hand(batch, now, old, 0.05)
        adam.zero_grad()
        (-objective - 0.3 * entropy).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 0.2)
        adam.step()
    found = made.update(batch, 0.3, imitate)
    assert found[:2] == pytest.approx((objective.item(), entropy.item()), rel=1e-3, abs=1e-5)
    for expected, got in zip(weights(actor), weights(made.actor), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-4)
    first = np.concatenate([[True], batch.last[:-1]])
    assert found[2] == pytest.approx(values(batch, old)[0][first].mean(), rel=1e-4)


def test_a_narrow_clip_moves_the_actor_less() -> None:
    moved = {}
    for clip in (0.001, 10.0):
        made = learner(learning_rate=0.02, clip=clip, epochs=20, sharpness=0.5)
        before = torch.sigmoid(made.actor(shown(made, batch := made.draw()))[:, 0]).detach()
        made.update(batch, 0.0, False)
        after = torch.sigmoid(made.actor(shown(made, batch))[:, 0]).detach()
        moved[clip] = float((after - before).abs().mean())
    assert moved[0.001] < 0.5 * moved[10.0]


def test_a_bonus_on_entropy_makes_choices_less_certain() -> None:
    entropies = {}
    for bonus in (-3.0, 3.0):
        made = learner(learning_rate=0.01)
        batch = made.draw()
        entropies[bonus] = [made.update(batch, bonus, False)[1] for _ in range(10)]
    assert entropies[-3.0][-1] < entropies[-3.0][0] - 0.01 < entropies[3.0][0] + 0.01 < entropies[3.0][-1]


def test_training_imitates_first_fades_the_bonus_and_averages_the_actor() -> None:
    made = learner(updates=5, entropy=0.5, average_rate=0.25, imitated=0.4, last_rate=0.1, learning_rate=0.01)
    average = weights(made.average)
    for mine, other in zip(average, weights(made.actor), strict=True):
        np.testing.assert_array_equal(mine, other)  # they begin alike
    bonuses: list[float] = []
    imitated: list[bool] = []
    update = made.update

    def updating(batch: PairBatch, bonus: float, imitate: bool) -> tuple[float, float, float]:
        nonlocal average
        for expected, found in zip(average, weights(made.average), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)
        bonuses.append(bonus)
        imitated.append(imitate)
        out = update(batch, bonus, imitate)
        average = [0.75 * slow + 0.25 * fast for slow, fast in zip(average, weights(made.actor), strict=True)]
        return out

    made.update = updating  # type: ignore[method-assign]
    assert made.run().shape == (5, 3)
    assert bonuses == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1])
    assert imitated == [True, True, False, False, False]
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.001)


def test_training_begins_at_the_rule() -> None:
    """The learner's actor has the linear path of `start_from_estimate`, which no random network has."""
    made = learner(sharpness=3.0, caution=0.4)
    rule = made.inputs.network((8,), 1)
    start_from_estimate(rule, made.inputs, 3.0, 0.4)
    path, expected = (one.state_dict()["skip.weight"] for one in (made.actor, rule))
    assert expected.abs().sum() > 0
    torch.testing.assert_close(path, expected)


def test_what_is_released_is_the_averaged_actor_at_its_best() -> None:
    pairs = random_pairs(5, starts=60)
    policy = PolicyGradient(batch_pairs=16, hidden=(8,), updates=20, looks=5, learning_rate=0.02)
    artifact, metrics = policy.fit(pairs, 4)
    early, newest = early_stopping.held_out(pairs)
    with networks.repeatable(4):
        inputs = networks.Inputs.of(early.observations)
        again = PolicyGradientLearner(policy, inputs, early, newest, np.random.default_rng(4))
        series = again.run()
    for name, array in inputs.export(again.average).items():
        np.testing.assert_array_equal(artifact.arrays[name], array, err_msg=name)
    assert metrics["newest_cost_h"] == pytest.approx(again.best.costs) and len(again.best.costs) == 5
    assert newest is not None
    submit = np.stack([artifact.decide(newest.observations, weight) for weight in early_stopping.WEIGHTS])
    assert early_stopping.mean_cost(newest, submit) == pytest.approx(min(again.best.costs), rel=1e-3)
    assert artifact.parameters == {"head": "logit", "layers": 2}
    assert artifact.manifest["default_setting"] == 1.0
    for place, name in enumerate(("objective", "entropy", "return_h")):
        assert metrics[name] == pytest.approx(series[:, place].reshape(10, 2).mean(axis=1).tolist()), name


def test_the_actor_starts_as_the_rule_plus_a_tenth_of_a_random_network() -> None:
    """logit = sharpness x (log((1 + estimate) / (1 + remaining)) - caution x log weight), in hours."""
    inputs = networks.Inputs.of(PAIRS.observations)
    torch.manual_seed(0)
    network = networks.network(inputs.width, (8,), 1)
    fresh = copy.deepcopy(network)
    start_from_estimate(network, inputs, sharpness=4.0, caution=0.2)
    rows = np.arange(0, len(PAIRS.decision_s), 3)
    log_weight = np.linspace(-3, 3, len(rows)).astype(np.float32)
    remaining_h = (PAIRS.predecessor_end_s[PAIRS.pair_of] - PAIRS.decision_s)[rows] / 3600
    estimate_h = PAIRS.observations[rows, FEATURES.index("start_estimate_h")].astype(np.float64)
    rule = 4.0 * (np.log((1 + estimate_h) / (1 + remaining_h)) - 0.2 * log_weight)
    with torch.no_grad():
        seen = inputs.at(rows, log_weight)
        hidden = torch.relu(fresh.get_submodule("deep.0")(seen))
        random = (hidden @ fresh.get_submodule("deep.2").weight.T)[:, 0].numpy()  # type: ignore[operator]
        found = network(seen)[:, 0].numpy()
    np.testing.assert_allclose(found, rule + 0.1 * random, atol=1e-4)
