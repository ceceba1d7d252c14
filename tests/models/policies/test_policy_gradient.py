"""The mechanisms of the policy gradient, each against its definition."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from models.batched_pairs import BatchedPairs
from models.learning import networks
from models.policies.policy_gradient import Learner, PolicyGradient, Rollout, advantages, start_from_estimate
from tests.models.policies.learning_task import table

PAIRS = table()


def learner(**options: Any) -> Learner:
    """A small learner."""
    policy = PolicyGradient(**{"batch_pairs": 32, "hidden": (8,), "updates": 20, "horizon": 6, **options})
    torch.manual_seed(3)
    return Learner(policy, networks.Inputs.of(PAIRS.observations), BatchedPairs(PAIRS, 3), np.random.default_rng(3))


def weights(network: torch.nn.Module) -> list[np.ndarray]:
    return [weight.detach().numpy().copy() for weight in network.parameters()]


def shown(made: Learner, rows: np.ndarray, log_weight: np.ndarray) -> torch.Tensor:
    """(b, width) what the networks see: the scaled observation, and a third of the weight's logarithm."""
    seen = made.inputs.normal.numpy()[rows]
    return torch.tensor(np.concatenate([seen, np.asarray(log_weight, np.float32)[:, None] / 3.0], axis=1))


def loss_by_hand(made: Learner, actor: Any, critic: Any, rollout: Rollout, bonus: float) -> tuple[torch.Tensor, ...]:
    """Actor's and critic's loss, the entropy, and what is minimised, from the definitions."""
    inputs = shown(made, rollout.rows.ravel(), rollout.log_weight.ravel())
    value = critic(inputs)[:, 0]
    known = value.detach().numpy().reshape(rollout.rows.shape)
    following = critic(shown(made, made.rows, made.log_weight))[:, 0].detach().numpy()
    gain = advantages(rollout.reward, rollout.done, known, following, made.policy.trace_decay)
    goal = torch.tensor((known + gain).ravel())
    advantage = gain.ravel() / (gain.std(ddof=1) + 1e-6)
    chance = torch.sigmoid(actor(inputs)[:, 0])
    taken = torch.where(torch.tensor(rollout.submit.ravel()) > 0, chance, 1 - chance)
    actor_loss = -(torch.log(taken) * torch.tensor(advantage)).mean()
    entropy = -(chance * torch.log(chance) + (1 - chance) * torch.log(1 - chance)).mean()
    error = (value - goal).abs()
    critic_loss = torch.where(error < 1, error**2 / 2, error - 0.5).mean()
    return actor_loss, critic_loss, entropy, actor_loss - bonus * entropy + critic_loss


def test_two_updates_are_those_of_an_actor_and_a_critic() -> None:
    """Losses, entropy, gradient, clipping, Adam and the falling rate, against plain torch on a copy."""
    made = learner(learning_rate=0.01, last_rate=0.1, gradient_norm=0.05)
    actor, critic = copy.deepcopy(made.actor), copy.deepcopy(made.critic)
    both = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(both, 0.01)
    for update in range(2):
        rollout = made.collect()
        *parts, loss = loss_by_hand(made, actor, critic, rollout, 0.7)
        assert made.update(rollout, 0.7) == pytest.approx([part.item() for part in parts], rel=1e-4, abs=1e-6)

        adam.param_groups[0]["lr"] = 0.01 * (1.0 + (0.1 - 1.0) * update / 20)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in both if weight.grad is not None]
        norm = float(torch.sqrt(sum((g**2).sum() for g in gradients)))  # type: ignore[arg-type]
        assert norm > 0.05, "nothing is clipped, so nothing is tested"
        for gradient in gradients:
            gradient.mul_(0.05 / norm)
        adam.step()
        for name, twin in (("actor", actor), ("critic", critic)):
            for expected, got in zip(weights(twin), weights(getattr(made, name)), strict=True):
                np.testing.assert_allclose(got, expected, atol=2e-5, err_msg=f"{name} after update {update + 1}")


def test_a_bonus_on_entropy_makes_choices_less_certain() -> None:
    entropies = {}
    for bonus in (-3.0, 3.0):
        made = learner(learning_rate=0.01)
        rollout = made.collect()
        entropies[bonus] = [made.update(rollout, bonus)[2] for _ in range(10)]
    assert entropies[-3.0][0] == pytest.approx(entropies[3.0][0])
    assert entropies[-3.0][-1] < entropies[-3.0][0] - 0.02 < entropies[3.0][0] + 0.02 < entropies[3.0][-1]


def test_a_rollout_is_what_was_played() -> None:
    """Rows and weights of each step before it, actions of the actor's probability, rewards of their weight."""
    made = learner(batch_pairs=400, horizon=5, reward_scale_h=4.0)
    first_rows, first_weight = made.rows, made.log_weight
    rollout = made.collect()
    np.testing.assert_array_equal(rollout.rows[0], first_rows)
    np.testing.assert_array_equal(rollout.log_weight[0], first_weight)
    gap = PAIRS.gap_h[rollout.rows]
    weight = np.exp(rollout.log_weight.astype(np.float64))
    at_end = rollout.rows == PAIRS.last[PAIRS.pair_of[rollout.rows]]
    np.testing.assert_array_equal(rollout.done > 0, (rollout.submit > 0) | at_end)
    cost = (np.maximum(gap, 0) + weight * np.maximum(-gap, 0)) / (1 + weight)
    np.testing.assert_allclose(rollout.reward, np.where(rollout.done > 0, -cost / 4.0, 0.0), rtol=1e-4, atol=1e-6)
    assert rollout.return_h == pytest.approx(-cost[rollout.done > 0].mean(), rel=1e-4)
    following = np.concatenate([rollout.rows[1:], made.rows[None]])
    np.testing.assert_array_equal((following - rollout.rows)[rollout.done == 0], 3)  # every third decision
    later = np.concatenate([rollout.log_weight[1:], made.log_weight[None]])
    np.testing.assert_array_equal(later != rollout.log_weight, rollout.done > 0)

    with torch.no_grad():
        logit = made.actor(shown(made, rollout.rows.ravel(), rollout.log_weight.ravel()))[:, 0].numpy()
    chance = 1 / (1 + np.exp(-logit.astype(np.float64)))
    assert rollout.submit.mean() == pytest.approx(chance.mean(), abs=0.03)
    unsure = (chance > 0.3) & (chance < 0.7)
    assert unsure.sum() > 50 and 0.3 < rollout.submit.ravel()[unsure].mean() < 0.7


def test_without_an_episode_that_ends_there_is_no_return() -> None:
    made = learner(batch_pairs=4, horizon=1)
    with torch.no_grad():
        for weight in made.actor.parameters():
            weight.zero_()
        made.actor.get_submodule("deep.2").bias.fill_(-50.0)  # type: ignore[operator]
    made.rows = made.env.reset(np.arange(4))
    rollout = made.collect()
    assert rollout.done.sum() == 0 and np.isnan(rollout.return_h)


def test_training_begins_at_the_rule() -> None:
    """The learner's actor has the linear path of `start_from_estimate`, which no random network has."""
    made = learner(sharpness=3.0, caution=0.4)
    rule = networks.network(made.inputs.width, (8,), 1)
    start_from_estimate(rule, made.inputs, 3.0, 0.4)
    path, expected = (one.state_dict()["skip.weight"] for one in (made.actor, rule))
    assert expected.abs().sum() > 0
    torch.testing.assert_close(path, expected)


def test_training_fades_the_bonus_and_averages_the_actor() -> None:
    made = learner(updates=5, entropy=0.5, average_rate=0.25)
    average = weights(made.average)
    for mine, other in zip(average, weights(made.actor), strict=True):
        np.testing.assert_array_equal(mine, other)  # they begin alike
    bonuses: list[float] = []
    update = made.update

    def updating(rollout: Rollout, bonus: float) -> tuple[float, float, float]:
        nonlocal average
        for expected, found in zip(average, weights(made.average), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)
        bonuses.append(bonus)
        losses = update(rollout, bonus)
        average = [0.75 * slow + 0.25 * fast for slow, fast in zip(average, weights(made.actor), strict=True)]
        return losses

    made.update = updating  # type: ignore[method-assign]
    series = made.run()
    assert series.shape == (5, 4)
    assert bonuses == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1])


def test_what_is_released_is_the_averaged_actor() -> None:
    policy = PolicyGradient(batch_pairs=16, hidden=(8,), updates=20, horizon=4)
    artifact, metrics = policy.fit(PAIRS, 4)
    with networks.repeatable(4):
        env = BatchedPairs(PAIRS, 3)  # half an hour, of decisions ten minutes apart
        again = Learner(policy, networks.Inputs.of(PAIRS.observations), env, np.random.default_rng(4))
        series = again.run()
    for name, array in again.inputs.export(again.average).items():
        np.testing.assert_array_equal(artifact.arrays[name], array, err_msg=name)
    assert artifact.parameters == {"head": "logit", "layers": 2}
    assert artifact.manifest["default_setting"] == 1.0
    for place, name in enumerate(("actor_loss", "critic_loss", "entropy", "return_h")):
        tenths = np.nanmean(series[:, place].reshape(10, 2), axis=1).tolist()
        assert metrics[name] == pytest.approx(tenths), name


def test_advantages_by_hand() -> None:
    """Two steps, lambda 1/2: the second ends one episode and leaves the other, whose next state is worth 8."""
    reward = np.array([[0.0, 0.0], [-3.0, -1.0]], np.float32)
    done = np.array([[0.0, 0.0], [1.0, 0.0]], np.float32)
    value = np.array([[-1.0, 2.0], [-2.0, 4.0]], np.float32)
    found = advantages(reward, done, value, np.array([100.0, 8.0], np.float32), 0.5)
    # ended: -3 - (-2) = -1, before it 0 - 2 - (-1) = -1, and half of -1; left: -1 + 8 - 4 = 3, before it 4 - 2 + 1.5
    np.testing.assert_allclose(found, [[-1.5, 3.5], [-1.0, 3.0]])


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
    estimate_h = PAIRS.observations[rows, inputs.scaling.column[3]].astype(np.float64)
    rule = 4.0 * (np.log((1 + estimate_h) / (1 + remaining_h)) - 0.2 * log_weight)
    with torch.no_grad():
        seen = inputs.at(rows, log_weight)
        hidden = torch.relu(fresh.get_submodule("deep.0")(seen))
        random = (hidden @ fresh.get_submodule("deep.2").weight.T)[:, 0].numpy()  # type: ignore[operator]
        found = network(seen)[:, 0].numpy()
    np.testing.assert_allclose(found, rule + 0.1 * random, atol=1e-4)
