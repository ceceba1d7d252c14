"""The mechanisms of Deep Q-learning, each against its definition."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from models.provisioning.learning import early_stopping, networks
from models.provisioning.policies.best_rule import best_rules
from models.provisioning.policies.dqn import DQN, DQNLearner
from tests.models.pair_tables import random_pairs
from tests.models.provisioning.policies.learning_task import table

PAIRS = table()


def learner(**options: Any) -> DQNLearner:
    """A small learner whose target network differs from its online one."""
    policy = DQN(**{"batch": 16, "hidden": (8,), "updates": 40, "steps_ahead": 5, **options})
    torch.manual_seed(3)
    made = DQNLearner(policy, networks.Inputs.of(PAIRS.observations), PAIRS, None, np.random.default_rng(3))
    with torch.no_grad():
        for weight in made.target.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return made


def weights(network: torch.nn.Module) -> list[np.ndarray]:
    return [weight.detach().numpy().copy() for weight in network.parameters()]


def values(made: DQNLearner, network: torch.nn.Module, row: int, log: float) -> torch.Tensor:
    """Of waiting and of submitting at that row."""
    assert isinstance(made.inputs, networks.Inputs)
    seen = torch.cat([made.inputs.normal[row], torch.tensor([log / 3.0])])
    out: torch.Tensor = network(seen[None].float())[0]
    return out


def outcome(row: int, log: float) -> float:
    """What submitting at that row is worth, over four hours."""
    gap, weight = float(PAIRS.gap_h[row]), float(np.exp(log))
    return -(max(gap, 0.0) + weight * max(-gap, 0.0)) / (1.0 + weight) / 4.0


def waited(made: DQNLearner, row: int, log: float, steps: int) -> float:
    """What waiting is worth: the online network acts, and after so many decisions the target network stands in."""
    last = int(PAIRS.last[PAIRS.pair_of[row]])
    for at in range(row + 1, row + steps + 1):
        if at >= last:
            return outcome(last, log)
        with torch.no_grad():
            wait, submit = values(made, made.online, at, log)
        if submit >= wait:
            return outcome(at, log)
    with torch.no_grad():
        return float(values(made, made.target, row + steps, log)[0])


def huber(error: torch.Tensor) -> torch.Tensor:
    return torch.where(error.abs() < 1.0, 0.5 * error**2, error.abs() - 0.5).mean()


def test_what_waiting_is_worth_is_looked_ahead_step_by_step() -> None:
    made = learner()
    rows = np.random.default_rng(0).integers(len(PAIRS.decision_s), size=200)
    rows[:10] = PAIRS.last[:10]
    log_weight = np.random.default_rng(1).uniform(-3, 3, 200).astype(np.float32)
    found = made.ahead(rows, log_weight)
    expected = [waited(made, int(row), float(log), 5) for row, log in zip(rows, log_weight, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with torch.no_grad():
        stood_in = made.target(made.inputs.at(np.minimum(rows + 5, made.last[rows]), log_weight))[:, 0].numpy()
    share = np.isclose(found, stood_in, atol=1e-6).mean()
    assert 0.05 < share < 0.95, "either the target network or the table is never asked"


def test_two_updates_are_those_of_double_q_learning() -> None:
    """Loss, gradient, clipping, Adam, the falling rate and the target network, against plain torch on a copy."""
    made = learner(learning_rate=0.01, last_rate=0.1, gradient_norm=0.05, target_rate=0.2, imitated=0.0)
    twin = copy.copy(made)
    twin.online, twin.target = copy.deepcopy(made.online), copy.deepcopy(made.target)
    adam = torch.optim.Adam(twin.online.parameters(), 0.01)
    rng = copy.deepcopy(made.rng)
    for update in range(2):
        rows = made.env.reset(*made.starts.draw(rng, 16)).copy()
        log_weight = rng.uniform(np.log(0.01), np.log(100.0), 16).astype(np.float32)
        wait_errors, difference_errors = [], []
        for row, log in zip(rows.tolist(), log_weight.tolist(), strict=True):
            waiting, submitting = waited(twin, row, log, 5), outcome(row, log)
            wait, submit = values(twin, twin.online, row, log)
            wait_errors.append(wait - waiting)
            difference_errors.append((submit - wait) - (submitting - waiting))
        loss = huber(torch.stack(wait_errors)) + huber(torch.stack(difference_errors))
        assert made.update(imitate=False) == pytest.approx(loss.item(), rel=1e-4)

        adam.param_groups[0]["lr"] = 0.01 * (1.0 + (0.1 - 1.0) * update / 40)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in twin.online.parameters() if weight.grad is not None]
        norm = float(torch.sqrt(sum((g**2).sum() for g in gradients)))  # type: ignore[arg-type]
        assert norm > 0.05, "nothing is clipped, so nothing is tested"
        for gradient in gradients:
            gradient.mul_(0.05 / norm)
        adam.step()
        with torch.no_grad():
            for slow, fast in zip(twin.target.parameters(), twin.online.parameters(), strict=True):
                slow.copy_(0.8 * slow + 0.2 * fast)
        for name in ("online", "target"):
            for expected, got in zip(weights(getattr(twin, name)), weights(getattr(made, name)), strict=True):
                np.testing.assert_allclose(got, expected, atol=2e-5, err_msg=f"{name} after update {update + 1}")


def test_what_is_imitated_is_the_value_of_the_best_rule() -> None:
    made = learner()
    rules = best_rules(PAIRS, networks.RULE_WEIGHTS)
    rows = np.arange(0, len(PAIRS.decision_s), 37)
    log_weight = np.linspace(-4, 4, len(rows)).astype(np.float32)
    found = made.of_rule(rows, log_weight)
    for place, (row, log) in enumerate(zip(rows.tolist(), log_weight.tolist(), strict=True)):
        rule = rules[int(np.argmin([abs(log - np.log(weight)) for weight in networks.RULE_WEIGHTS]))]
        last = int(PAIRS.last[PAIRS.pair_of[row]])
        later = next((at for at in range(row + 1, last) if rule[at]), last)
        assert found[place] == pytest.approx(outcome(later, log), rel=1e-5)


def test_the_first_part_of_the_updates_imitates() -> None:
    made = learner(updates=8, imitated=0.25)
    asked: list[bool] = []
    made.update = lambda imitate: asked.append(imitate) or 0.0  # type: ignore[method-assign, func-returns-value]
    made.run()
    assert asked == [True, True, *[False] * 6]


def test_an_update_that_imitates_asks_the_rule_and_no_network() -> None:
    made, twin = learner(), learner()
    made.ahead = lambda rows, log_weight: np.full(len(rows), np.nan, np.float32)  # type: ignore[method-assign]
    twin.ahead = twin.of_rule  # type: ignore[method-assign]
    assert made.update(imitate=True) == twin.update(imitate=False)
    assert np.isnan(made.update(imitate=False))


def test_the_rate_ends_at_the_share_that_is_declared() -> None:
    made = learner(learning_rate=0.01, last_rate=0.25, updates=10)
    for _ in range(10):
        made.update(imitate=False)
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.0025)


def test_what_is_released_is_the_target_network_at_its_best() -> None:
    pairs = random_pairs(5, starts=60)
    policy = DQN(batch=32, hidden=(8,), updates=40, looks=8, learning_rate=0.3)
    artifact, metrics = policy.fit(pairs, 4)
    early, newest = early_stopping.held_out(pairs)
    assert newest is not None
    with networks.repeatable(4):
        inputs = networks.Inputs.of(early.observations)
        again = DQNLearner(policy, inputs, early, newest, np.random.default_rng(4))
        states: list[dict[str, np.ndarray]] = []
        look = again.best.look

        def looking(network: torch.nn.Module) -> None:
            states.append(inputs.export(network))
            look(network)

        again.best.look = looking  # type: ignore[method-assign]
        losses = again.run()
    costs = metrics["newest_cost_h"]
    assert costs == pytest.approx(again.best.costs) and len(costs) == 8
    best = states[int(np.argmin(costs))]
    assert np.argmin(costs) < 7, "the last look was the best: nothing shows that the best is taken"
    for name, array in best.items():
        np.testing.assert_array_equal(artifact.arrays[name], array, err_msg=name)
    assert metrics["loss"] == pytest.approx(np.reshape(losses, (10, 4)).mean(axis=1).tolist())
    assert artifact.parameters == {"head": "q", "layers": 2}
    assert artifact.manifest["default_setting"] == 1.0


def test_the_networks_begin_alike() -> None:
    made = DQNLearner(DQN(hidden=(8,)), networks.Inputs.of(PAIRS.observations), PAIRS, None, np.random.default_rng(0))
    for mine, other in zip(weights(made.online), weights(made.target), strict=True):
        np.testing.assert_array_equal(mine, other)
