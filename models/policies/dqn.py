"""Deep Q-learning of when to submit.

Mnih et al., "Human-level control through deep reinforcement learning", Nature 518 (2015), with double Q-learning (van
Hasselt et al., AAAI 2016): experience replay, a target network, targets by temporal differences, epsilon-greedy
exploration, Huber loss.

What differs from the papers, and why:
- The network is conditioned on the cost weight of overlap, which is the knob. A stored transition keeps interruption
  and overlap apart, so that each replay is valued at a weight drawn anew.
- The target network follows the online one by Polyak averaging, and it is what is exported: an average of the last
  weights decides more steadily than the very last ones.
- Episodes start at a random decision (exploring starts), mostly where the choice is close.
- No discount: an hour lost is an hour lost.

The file reads from top to bottom: hyper-parameters, the training loop, one update, the memory. Shared with the other
network are what a network is shown (`models.learning.networks`), the pairs that are played
(`models.batched_pairs`) and where episodes start (`models.learning.exploring_starts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from models.batched_pairs import BatchedPairs, decisions_a_step, rewards
from models.learning import networks
from models.learning.exploring_starts import ExploringStarts
from models.learning.manifest import new_artifact
from models.protocol import PairTable

if TYPE_CHECKING:
    import torch

Int64s = NDArray[np.int64]


@dataclass
class DQN:
    """Double DQN over a batch of pairs.

    What is logged, each the mean of a tenth of the training: `loss`, the Huber loss of an update, and `return_h`, the
    return in hours of the episodes that ended (0 is best).
    """

    name: str = "dqn"
    knob: str = networks.KNOB
    settings: tuple[float, ...] = networks.SETTINGS
    is_learned: bool = True
    # what is played
    step_s: int = 3600  # between decisions in training: over an hour, waiting makes a difference to learn from
    longest_lead_h: float = 30.0  # before the predecessor's end, at which episodes start at most
    batch_pairs: int = 128  # pairs stepped at once
    steps: int = 1500  # of the whole batch
    epsilon: tuple[float, float] = (1.0, 0.02)  # share of random actions, first and last
    epsilon_falls_over: float = 0.5  # share of the steps in which it falls from first to last, linearly
    # the network
    hidden: tuple[int, ...] = (64, 64)  # units of each hidden layer
    # the updates
    capacity: int = 100_000  # transitions remembered
    updates_per_step: int = 2
    batch: int = 512  # transitions an update
    learning_rate: float = 2e-3  # of Adam, at first
    last_rate: float = 0.05  # share of it that is left at the last update; it falls linearly
    gradient_norm: float = 10.0  # above which a gradient is scaled down to it
    target_rate: float = 0.05  # slower, and values do not come back from the end in time
    reward_scale_h: float = 4.0  # rewards are divided by it: values are of the order of one

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """The artifact and the metrics; one seed gives the same bytes on every x86-64 machine."""
        env = BatchedPairs(pairs, decisions_a_step(pairs, self.step_s))
        with networks.repeatable(seed):
            rng = np.random.default_rng(seed)
            learner = Learner(self, networks.Inputs.of(pairs.observations), env, rng)
            losses, returns = learner.run()
            arrays = learner.inputs.export(learner.target)
        parameters = {"head": "q", "layers": len(self.hidden) + 1}
        artifact = new_artifact(self, "mlp", networks.DEFAULT_WEIGHT, parameters=parameters, arrays=arrays)
        tenths = np.array_split(np.arange(len(losses)), 10)
        return artifact, {
            "loss": [float(np.mean(np.asarray(losses)[part])) for part in tenths],
            "return_h": [float(np.nanmean(np.asarray(returns)[part])) for part in tenths],
        }

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """The network that learning begins with, of random weights."""
        inputs = networks.Inputs.of_artifact(artifact)
        with networks.repeatable(seed):
            return replace(artifact, arrays=inputs.export(networks.network(inputs.width, self.hidden, 2)))


class Learner:
    """One training run."""

    def __init__(self, policy: DQN, inputs: networks.Inputs, env: BatchedPairs, rng: np.random.Generator) -> None:
        import torch

        self.policy, self.inputs, self.env, self.rng = policy, inputs, env, rng
        self.starts = ExploringStarts(env, policy.longest_lead_h)
        width = inputs.width
        self.online = networks.network(width, policy.hidden, 2)
        self.target = networks.network(width, policy.hidden, 2)
        self.target.load_state_dict(self.online.state_dict())
        updates = policy.steps * policy.updates_per_step
        self.optimizer = torch.optim.Adam(self.online.parameters(), policy.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, policy.last_rate, updates)
        self.replay = Replay(policy.capacity)

    def run(self) -> tuple[list[float], list[float]]:
        """Losses of all steps, and mean returns of the episodes that ended in each (NaN where none did)."""
        policy, rng, env = self.policy, self.rng, self.env
        rows = env.reset(*self.starts.draw(rng, policy.batch_pairs))
        log_weight = networks.sample_log_weights(rng, policy.batch_pairs)
        losses, returns = [], []
        for step in range(policy.steps):
            submit = self.act(rows, log_weight, self.epsilon(step))
            after = env.step(submit)
            self.replay.add(rows, after.rows, submit, after.interruption_h, after.overlap_h, after.done)
            losses.append(float(np.mean([self.update() for _ in range(policy.updates_per_step)])))
            ended = after.done
            cost = rewards(after.interruption_h[ended], after.overlap_h[ended], np.exp(log_weight[ended]))
            returns.append(float(cost.mean()) if len(cost) else np.nan)
            rows = env.restart(ended, *self.starts.draw(rng, int(ended.sum())))
            log_weight[ended] = networks.sample_log_weights(rng, int(ended.sum()))
        return losses, returns

    def epsilon(self, step: int) -> float:
        """Share of random actions."""
        first, last = self.policy.epsilon
        return max(last, first + (last - first) * step / (self.policy.steps * self.policy.epsilon_falls_over))

    def act(self, rows: Int64s, log_weight: NDArray[np.float32], epsilon: float) -> Int64s:
        """(b,) 1 to submit: greedy, but for a share `epsilon` of coin tosses."""
        import torch

        with torch.no_grad():
            greedy = self.online(self.inputs.at(rows, log_weight)).argmax(dim=1).numpy()
        random = self.rng.random(len(rows)) < epsilon
        return np.where(random, self.rng.integers(2, size=len(rows)), greedy).astype(np.int64)

    def update(self) -> float:
        """One step of Adam on a batch of the replay; returns the loss."""
        import torch

        replay = self.replay
        pick = self.rng.integers(replay.size, size=self.policy.batch)
        log_weight = networks.sample_log_weights(self.rng, self.policy.batch)
        # a stored transition is valued at a weight drawn now
        reward = rewards(replay.interruption_h[pick], replay.overlap_h[pick], np.exp(log_weight))
        with torch.no_grad():
            following = self.inputs.at(replay.next[pick], log_weight)
            # double Q-learning: the online network picks the next action, the target network values it
            best = self.online(following).argmax(dim=1, keepdim=True)
            future = self.target(following).gather(1, best)[:, 0]
            done = torch.from_numpy(replay.done[pick])
            goal = torch.from_numpy((reward / self.policy.reward_scale_h).astype(np.float32)) + (1.0 - done) * future
        values: torch.Tensor = self.online(self.inputs.at(replay.row[pick], log_weight))
        chosen = values.gather(1, torch.from_numpy(replay.submit[pick])[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(chosen, goal)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.online.parameters(), self.policy.gradient_norm)
        self.optimizer.step()
        self.schedule.step()
        networks.follow(self.target, self.online, self.policy.target_rate)
        return loss.item()


class Replay:
    """A ring of transitions, as rows of the pair table."""

    def __init__(self, capacity: int) -> None:
        self.row = np.empty(capacity, np.int64)
        self.next = np.empty(capacity, np.int64)
        self.submit = np.empty(capacity, np.int64)
        self.interruption_h = np.empty(capacity, np.float32)
        self.overlap_h = np.empty(capacity, np.float32)
        self.done = np.empty(capacity, np.float32)
        self.size = self.at = 0

    def add(self, *columns: NDArray[Any]) -> None:
        """Arrays (b,) in the order row, next, submit, interruption_h, overlap_h, done."""
        places = (self.at + np.arange(len(columns[0]))) % len(self.row)
        stores: tuple[NDArray[Any], ...] = (
            self.row,
            self.next,
            self.submit,
            self.interruption_h,
            self.overlap_h,
            self.done,
        )
        for store, column in zip(stores, columns, strict=True):
            store[places] = column
        self.at = int(places[-1] + 1) % len(self.row)
        self.size = min(self.size + len(places), len(self.row))
