"""Deep Q-learning of when to submit.

Mnih et al., Nature 518 (2015), with double Q-learning (van Hasselt et al., AAAI 2016): experience replay, a target
network, TD targets, epsilon-greedy, Huber loss. What differs from the papers, and why:
- the network is conditioned on the cost weight of overlap, which is the knob; a stored transition keeps interruption
  and overlap apart, so that each replay is valued at a weight drawn anew;
- the target network follows by Polyak averaging, and it is what is exported (an average of the last weights);
- episodes start at a random decision (exploring starts), mostly where the choice is close;
- no discount: an hour lost is an hour lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from models.learning import networks
from models.learning.manifest import describe
from models.protocol import PairTable

if TYPE_CHECKING:
    import torch

    from models.environment import BatchedPairs

Int64s = NDArray[np.int64]


@dataclass
class DQN:
    """Double DQN over a batch of pairs."""

    name: str = "dqn"
    knob: str = networks.KNOB
    settings: tuple[float, ...] = networks.SETTINGS
    is_learned: bool = True
    step_s: int = 3600  # between decisions in training: over an hour, waiting makes a difference to learn from
    longest_lead_h: float = 30.0  # before the end, at which episodes start at most
    hidden: tuple[int, ...] = (64, 64)
    batch_pairs: int = 128  # pairs stepped at once
    steps: int = 1500  # of the whole batch
    updates_per_step: int = 2
    batch: int = 512  # transitions an update
    capacity: int = 100_000  # transitions remembered
    learning_rate: float = 2e-3
    target_rate: float = 0.05  # slower, and values do not come back from the end in time
    epsilon: tuple[float, float] = (1.0, 0.02)  # first and last, linear over the first half
    reward_scale_h: float = 4.0  # rewards are divided by it

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Metrics, each the mean of a tenth of the training: Huber loss, return of the episodes ended (hours)."""
        from models.environment import BatchedPairs, every_s

        env = BatchedPairs(pairs, every_s(pairs, self.step_s))
        with networks.repeatable(seed):
            rng = np.random.default_rng(seed)
            learner = Learner(self, networks.Inputs.of(pairs.observations), env, rng)
            losses, returns = learner.run()
            arrays = learner.inputs.export(learner.target)
        parameters = {"head": "q", "layers": len(self.hidden) + 1}
        artifact = describe(self, "mlp", networks.DEFAULT_WEIGHT, parameters=parameters, arrays=arrays)
        tenths = np.array_split(np.arange(len(losses)), 10)
        return artifact, {
            "loss": [float(np.mean(np.asarray(losses)[part])) for part in tenths],
            "return_h": [float(np.nanmean(np.asarray(returns)[part])) for part in tenths],
        }


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


class Learner:
    """One training run."""

    def __init__(self, policy: DQN, inputs: networks.Inputs, env: BatchedPairs, rng: np.random.Generator) -> None:
        import torch

        from models.learning.starts import Starts

        self.policy, self.inputs, self.env, self.rng = policy, inputs, env, rng
        self.starts = Starts(env, policy.longest_lead_h)
        width = inputs.width
        self.online = networks.network(width, policy.hidden, 2)
        self.target = networks.network(width, policy.hidden, 2)
        self.target.load_state_dict(self.online.state_dict())
        updates = policy.steps * policy.updates_per_step
        self.optimizer = torch.optim.Adam(self.online.parameters(), policy.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.05, updates)
        self.replay = Replay(policy.capacity)

    def run(self) -> tuple[list[float], list[float]]:
        """Losses of all steps, and mean returns of the episodes that ended in each (NaN where none did)."""
        from models.environment import rewards

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
        return max(last, first + (last - first) * step / (self.policy.steps / 2))

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

        from models.environment import rewards

        replay = self.replay
        pick = self.rng.integers(replay.size, size=self.policy.batch)
        log_weight = networks.sample_log_weights(self.rng, self.policy.batch)
        reward = rewards(replay.interruption_h[pick], replay.overlap_h[pick], np.exp(log_weight))
        with torch.no_grad():
            following = self.inputs.at(replay.next[pick], log_weight)
            best = self.online(following).argmax(dim=1, keepdim=True)
            future = self.target(following).gather(1, best)[:, 0]
            done = torch.from_numpy(replay.done[pick])
            goal = torch.from_numpy((reward / self.policy.reward_scale_h).astype(np.float32)) + (1.0 - done) * future
        values: torch.Tensor = self.online(self.inputs.at(replay.row[pick], log_weight))
        chosen = values.gather(1, torch.from_numpy(replay.submit[pick])[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(chosen, goal)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        self.schedule.step()
        networks.follow(self.target, self.online, self.policy.target_rate)
        return loss.item()
