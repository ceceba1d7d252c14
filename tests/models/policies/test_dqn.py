"""The mechanisms of Deep Q-learning, each against its definition."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from models.batched_pairs import BatchedPairs
from models.learning import networks
from models.policies.dqn import DQN, Learner, Replay
from tests.models.policies.learning_task import table

PAIRS = table()


def learner(**options: Any) -> Learner:
    """A small learner whose target network differs from its online one, with a hundred and more transitions."""
    policy = DQN(**{"batch_pairs": 64, "batch": 32, "hidden": (8,), "steps": 20, **options})
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    made = Learner(policy, networks.Inputs.of(PAIRS.observations), BatchedPairs(PAIRS, 3), rng)
    with torch.no_grad():
        for weight in made.target.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    rows = made.env.reset(*made.starts.draw(rng, 64))
    for _ in range(4):
        submit = (rng.random(64) < 0.3).astype(np.int64)
        after = made.env.step(submit)
        made.replay.add(rows, after.rows, submit, after.interruption_h, after.overlap_h, after.done)
        rows = made.env.restart(after.done, *made.starts.draw(rng, int(after.done.sum())))
    return made


def weights(network: torch.nn.Module) -> list[np.ndarray]:
    return [weight.detach().numpy().copy() for weight in network.parameters()]


def by_hand(made: Learner, pick: np.ndarray, log_weight: np.ndarray) -> torch.Tensor:
    """The Huber loss of the picked transitions, one at a time, from the definition of double Q-learning."""
    losses = []
    for at, log in zip(pick, log_weight, strict=True):
        weight = float(np.exp(log))
        replay = made.replay

        def values(network: torch.nn.Module, row: int, log: float = float(log)) -> torch.Tensor:
            seen = torch.cat([made.inputs.normal[row], torch.tensor([log / 3.0])])
            out: torch.Tensor = network(seen[None].float())[0]
            return out

        reward = -(float(replay.interruption_h[at]) + weight * float(replay.overlap_h[at])) / (1.0 + weight) / 4.0
        goal = torch.tensor(reward)
        if not replay.done[at]:
            with torch.no_grad():
                best = int(values(made.online, int(replay.next[at])).argmax())
                goal = goal + values(made.target, int(replay.next[at]))[best]
        error = (values(made.online, int(replay.row[at]))[int(replay.submit[at])] - goal).abs()
        losses.append(torch.where(error < 1.0, 0.5 * error**2, error - 0.5))
    return torch.stack(losses).mean()


def test_two_updates_are_those_of_double_q_learning() -> None:
    """Loss, gradient, clipping, Adam, the falling rate and the target network, against plain torch on a copy."""
    made = learner(learning_rate=0.01, last_rate=0.1, gradient_norm=0.05, target_rate=0.2, batch=16)
    twin = copy.copy(made)
    twin.online, twin.target = copy.deepcopy(made.online), copy.deepcopy(made.target)
    adam = torch.optim.Adam(twin.online.parameters(), 0.01)
    rng = copy.deepcopy(made.rng)
    updates = 20 * 2
    for update in range(2):
        pick = rng.integers(made.replay.size, size=16)
        log_weight = rng.uniform(np.log(0.01), np.log(100.0), 16).astype(np.float32)
        loss = by_hand(twin, pick, log_weight)
        found = made.update()
        assert found == pytest.approx(loss.item(), rel=1e-4)

        adam.param_groups[0]["lr"] = 0.01 * (1.0 + (0.1 - 1.0) * update / updates)
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


def test_the_rate_ends_at_the_share_that_is_declared() -> None:
    made = learner(learning_rate=0.01, last_rate=0.25, steps=5, updates_per_step=2)
    for _ in range(10):
        made.update()
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.0025)


def test_exploration_falls_from_first_to_last_and_stays() -> None:
    made = learner(steps=100, epsilon=(0.9, 0.1), epsilon_falls_over=0.5)
    assert [made.epsilon(step) for step in (0, 25, 50, 99)] == pytest.approx([0.9, 0.5, 0.1, 0.1])


def test_actions_are_greedy_but_for_coin_tosses() -> None:
    made = learner()
    rows = np.repeat(np.arange(0, 400, 5), 50)
    log_weight = np.zeros(len(rows), np.float32)
    with torch.no_grad():
        values = made.online(made.inputs.at(rows, log_weight)).numpy()
    greedy = (values[:, 1] > values[:, 0]).astype(np.int64)
    np.testing.assert_array_equal(made.act(rows, log_weight, 0.0), greedy)
    for epsilon in (0.4, 1.0):
        other = (made.act(rows, log_weight, epsilon) != greedy).mean()
        assert other == pytest.approx(epsilon / 2, abs=0.04)


def test_a_step_of_training_explores_remembers_and_updates() -> None:
    """What `run` does in each step, seen at the parts that it calls."""
    made = learner(steps=8, updates_per_step=3, epsilon=(1.0, 0.0), epsilon_falls_over=0.5)
    made.replay = Replay(made.policy.capacity)
    seen: list[tuple[float, int]] = []
    act, update = made.act, made.update
    updates = []

    def acting(rows: np.ndarray, log_weight: np.ndarray, epsilon: float) -> np.ndarray:
        seen.append((epsilon, made.replay.size))
        return act(rows, log_weight, epsilon)

    def updating() -> float:
        updates.append(made.replay.size)
        return update()

    made.act, made.update = acting, updating  # type: ignore[method-assign]
    losses, returns = made.run()
    assert [epsilon for epsilon, _ in seen] == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0])
    assert [size for _, size in seen] == [64 * step for step in range(8)]
    assert updates == [64 * (step + 1) for step in range(8) for _ in range(3)]
    assert len(losses) == len(returns) == 8
    # a coin was tossed for each of the first 64; every transition is of one pair and of one step of the grid
    assert 0.3 < made.replay.submit[:64].mean() < 0.7
    pair = PAIRS.pair_of
    held = slice(0, made.replay.size)
    row, following, done = made.replay.row[held], made.replay.next[held], made.replay.done[held] > 0
    np.testing.assert_array_equal(pair[row], pair[following])
    np.testing.assert_array_equal(following - row, np.where(done, 0, 3))
    np.testing.assert_array_equal(done, (made.replay.submit[held] == 1) | (row == PAIRS.last[pair[row]]))
    gap = np.where(done, PAIRS.gap_h[row], 0.0)
    np.testing.assert_allclose(made.replay.interruption_h[held] - made.replay.overlap_h[held], gap, atol=1e-5)


def test_the_returns_logged_are_those_of_the_episodes_that_end() -> None:
    """Each ended episode's hours, by the weight that it was played with; weights are drawn anew for the next one."""
    made = learner(steps=12)
    made.replay = Replay(made.policy.capacity)
    played: list[np.ndarray] = []
    act = made.act

    def acting(rows: np.ndarray, log_weight: np.ndarray, epsilon: float) -> np.ndarray:
        played.append(log_weight.copy())
        return act(rows, log_weight, epsilon)

    made.act = acting  # type: ignore[method-assign]
    _, returns = made.run()
    replay = made.replay
    for step in range(12):
        of_step = slice(64 * step, 64 * (step + 1))
        ended = replay.done[of_step] > 0
        weight = np.exp(played[step][ended])
        hours = -(replay.interruption_h[of_step][ended] + weight * replay.overlap_h[of_step][ended]) / (1 + weight)
        assert returns[step] == pytest.approx(hours.mean(), rel=1e-5)
        if step:
            before = replay.done[64 * (step - 1) : 64 * step] > 0
            np.testing.assert_array_equal(played[step] != played[step - 1], before)


def test_the_memory_holds_thousands_of_transitions_and_all_are_replayed() -> None:
    """A memory of one batch is no memory: what is learned from would be the last step alone."""
    made = learner(batch=2000)
    assert len(made.replay.row) == DQN().capacity
    asked: list[int] = []
    made.inputs = copy.copy(made.inputs)
    at = networks.Inputs.at

    def watching(rows: np.ndarray, log_weight: np.ndarray) -> torch.Tensor:
        asked.extend(rows.tolist())
        return at(made.inputs, rows, log_weight)

    object.__setattr__(made.inputs, "at", watching)
    made.update()
    held = made.replay.row[: made.replay.size]
    assert made.replay.size == 256
    assert set(held.tolist()) <= set(asked)


def test_what_is_released_is_the_target_network_after_all_updates() -> None:
    policy = DQN(batch_pairs=16, batch=32, hidden=(8,), steps=10)
    artifact, metrics = policy.fit(PAIRS, 4)
    env = BatchedPairs(PAIRS, 6)  # an hour, of decisions ten minutes apart
    with networks.repeatable(4):
        again = Learner(policy, networks.Inputs.of(PAIRS.observations), env, np.random.default_rng(4))
        for mine, other in zip(weights(again.online), weights(again.target), strict=True):
            np.testing.assert_array_equal(mine, other)  # they begin alike
        losses, returns = again.run()
    for name, array in again.inputs.export(again.target).items():
        np.testing.assert_array_equal(artifact.arrays[name], array, err_msg=name)
    assert metrics == {"loss": pytest.approx(losses), "return_h": pytest.approx(returns)}
    assert artifact.parameters == {"head": "q", "layers": 2}
    assert artifact.manifest["default_setting"] == 1.0


def test_logged_series_are_the_means_of_tenths() -> None:
    policy = DQN(batch_pairs=16, batch=32, hidden=(8,), steps=40)
    _, metrics = policy.fit(PAIRS, 0)
    with networks.repeatable(0):
        again = Learner(
            policy, networks.Inputs.of(PAIRS.observations), BatchedPairs(PAIRS, 6), np.random.default_rng(0)
        )
        losses, returns = again.run()
    assert metrics["loss"] == pytest.approx(np.reshape(losses, (10, 4)).mean(axis=1).tolist())
    assert metrics["return_h"] == pytest.approx(np.nanmean(np.reshape(returns, (10, 4)), axis=1).tolist())
