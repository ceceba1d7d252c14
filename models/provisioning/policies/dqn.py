"""Deep Q-learning of when to submit.

Mnih et al., "Human-level control through deep reinforcement learning", Nature 518 (2015), with double Q-learning (van
Hasselt et al., AAAI 2016) and targets of several steps (Hessel et al., "Rainbow", AAAI 2018): a target network, targets
by temporal differences, Huber loss.

Differences from the papers, and their reasons:
- The pair table is the memory. No action changes the cluster state seen next, and the table holds the cost of
  submitting
  at every decision. So transitions are drawn from the table, whatever policy acted, and nothing is explored. Both
  actions of a decision are learned from: submitting from its outcome, waiting from the n decisions after it. The online
  network decides whether the successor is submitted within these. If so, its outcome counts; if not, the target
  network's value.
- The difference of the two values is fitted in addition to the value of waiting. Both depend on one future, so their
  difference is far less noisy than either, and it alone decides.
- Training begins by imitation: the first part of the updates fits the values of the best rule that learns nothing,
  which the table holds too (`models.provisioning.policies.best_rule`).
- The network is conditioned on the cost weight of overlap, which is the knob, drawn anew for each transition.
- The target network follows the online one by Polyak averaging. It is exported as it was when it lost least on the
  newest pairs (`models.provisioning.learning.early_stopping`).
- Decisions where the choice is close are drawn more often than others
  (`models.provisioning.learning.exploring_starts`).
- No discount: an hour lost is an hour lost.

The file reads from top to bottom: hyper-parameters, the training loop, one update, its targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.artifact import Artifact
from features.conventions import interruption_h, overlap_h
from models.provisioning.batched_pairs import BatchedPairs, rewards
from models.provisioning.learning import early_stopping, networks
from models.provisioning.learning.exploring_starts import ExploringStarts
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.policies.best_rule import best_rules
from models.provisioning.protocol import PairTable
from models.provisioning.stopping import following_rows
from traces.arrays import Float32s, Int64s

if TYPE_CHECKING:
    import torch


@dataclass
class DQN:
    """Double DQN of n-step targets on the decisions of a pair table.

    Metrics: `loss`, the mean Huber loss of an update over each tenth of the training; `newest_cost_h`, the target
    network's losses on the held-out pairs, hours a pair, at each of `looks` (none without held-out pairs).
    """

    name: str = "dqn"
    knob: str = networks.KNOB
    settings: tuple[float, ...] = networks.SETTINGS
    is_learned: bool = True
    # the network
    hidden: tuple[int, ...] = (64, 64)  # units of each hidden layer
    # the updates
    updates: int = 1200
    imitated: float = 0.25  # share of the updates, the first, whose targets are the values of the best rule
    batch: int = 512  # decisions per update
    steps_ahead: int = 16  # decisions that a target looks ahead before it uses the target network's value
    learning_rate: float = 1e-3  # of Adam, at first
    last_rate: float = 0.05  # share of the rate left at the last update; it falls linearly
    gradient_norm: float = 10.0  # a larger gradient is scaled down to it
    target_rate: float = 0.02  # of the target network's steps towards the online one
    reward_scale_h: float = 4.0  # costs are divided by it, so that values are of the order of one
    looks: int = 40  # evaluations on the held-out pairs
    # the inputs
    inputs: tuple[str, ...] = networks.RELATIVE  # hours each: of the observation, and of its futures
    looks_ahead: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the policy. One seed gives the same bytes on every x86-64 machine."""
        early, newest = early_stopping.held_out(pairs)
        with networks.repeatable(seed):
            inputs = networks.Inputs.of(early.seen(self.looks_ahead), self.inputs)
            learner = DQNLearner(self, inputs, early, newest, np.random.default_rng(seed))
            losses = learner.run()
            arrays = inputs.export(learner.target)
        parameters = {"head": "q", "layers": len(self.hidden) + 1}
        weight, looks_ahead = networks.DEFAULT_WEIGHT, self.looks_ahead
        artifact = new_artifact(self, "mlp", weight, parameters=parameters, arrays=arrays, looks_ahead=looks_ahead)
        tenths = [part for part in np.array_split(np.asarray(losses), 10) if len(part)]
        metrics = {"loss": [float(part.mean()) for part in tenths]}
        return artifact, metrics | ({"newest_cost_h": learner.best.costs} if learner.best.costs else {})

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """The network before training, with random weights."""
        inputs = networks.Inputs.of_artifact(artifact)
        with networks.repeatable(seed):
            return replace(artifact, arrays=inputs.export(networks.network(inputs.width, self.hidden, 2)))


class DQNLearner:
    """One training run on `pairs`, stopped by `newest`."""

    def __init__(
        self,
        policy: DQN,
        inputs: networks.NetworkInputs,
        pairs: PairTable,
        newest: PairTable | None,
        rng: np.random.Generator,
    ) -> None:
        import torch

        self.policy, self.inputs, self.pairs, self.rng = policy, inputs, pairs, rng
        self.env = BatchedPairs(pairs)
        self.starts = ExploringStarts(self.env)
        self.last = pairs.last[pairs.pair_of]  # (d,) row of the exact end of each decision's pair
        self.gap_h = pairs.gap_h
        # the row at which the best rule submits after waiting, at each of `networks.RULE_WEIGHTS`
        self.rule_rows = following_rows(pairs, best_rules(pairs, networks.RULE_WEIGHTS, policy.looks_ahead))
        self.online = inputs.network(policy.hidden, 2)
        self.target = inputs.network(policy.hidden, 2)
        self.target.load_state_dict(self.online.state_dict())
        self.best = early_stopping.Best(newest, early_stopping.q_decisions(inputs, newest))
        self.optimizer = torch.optim.Adam(self.online.parameters(), policy.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, policy.last_rate, policy.updates)

    def run(self) -> list[float]:
        """Make all updates, then restore the target network to its best state; returns the losses."""
        losses = [self.step(update) for update in range(self.policy.updates)]
        self.best.restore(self.target)
        return losses

    def step(self, update: int) -> float:
        """Make update number `update`, from 0, and look at the held-out pairs if a look is due; returns the loss."""
        loss = self.update(update < self.policy.imitated * self.policy.updates)
        if early_stopping.is_look(update, self.policy.updates, self.policy.looks):
            self.best.look(self.target)
        return loss

    def update(self, imitate: bool) -> float:
        """Make one step of Adam on decisions drawn from the table; returns the loss."""
        import torch

        rows = self.env.reset(*self.starts.draw(self.rng, self.policy.batch))
        log_weight = networks.sample_log_weights(self.rng, self.policy.batch)
        submitting = self.values(rows, log_weight)
        waiting = self.of_rule(rows, log_weight) if imitate else self.ahead(rows, log_weight)
        found: torch.Tensor = self.online(self.inputs.at(rows, log_weight))
        huber = torch.nn.functional.smooth_l1_loss
        loss = huber(found[:, 0], torch.from_numpy(waiting)) + huber(
            found[:, 1] - found[:, 0], torch.from_numpy(submitting - waiting)
        )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.online.parameters(), self.policy.gradient_norm)
        self.optimizer.step()
        self.schedule.step()
        networks.follow(self.target, self.online, self.policy.target_rate)
        return loss.item()

    def values(self, rows: Int64s, log_weight: Float32s) -> Float32s:
        """(b,) value of submitting at those rows, by its outcome."""
        gap = self.gap_h[rows]
        reward = rewards(interruption_h(gap), overlap_h(gap), np.exp(log_weight.astype(np.float64)))
        return np.asarray(reward / self.policy.reward_scale_h, np.float32)

    def of_rule(self, rows: Int64s, log_weight: Float32s) -> Float32s:
        """(b,) value of waiting and then following the best rule, by its outcome."""
        return self.values(self.rule_rows[networks.nearest_rule(log_weight), rows], log_weight)

    def ahead(self, rows: Int64s, log_weight: Float32s) -> Float32s:
        """(b,) value of waiting and then following the online network: its outcome, if that submits soon.

        Double Q-learning: the online network acts, and the target network values waiting further.
        """
        import torch

        n, b = self.policy.steps_ahead, len(rows)
        later = np.minimum(rows[:, None] + np.arange(1, n + 1), self.last[rows][:, None])  # (b, n)
        with torch.no_grad():
            found = self.online(self.inputs.at(later.ravel(), np.repeat(log_weight, n))).numpy().reshape(b, n, 2)
            further = self.target(self.inputs.at(later[:, -1], log_weight))[:, 0].numpy()
        submits = (found[:, :, 1] >= found[:, :, 0]) | (later == self.last[rows][:, None])
        first = later[np.arange(b), submits.argmax(axis=1)]
        return np.where(submits.any(axis=1), self.values(first, log_weight), further)


def dqn_ahead() -> DQN:
    """The recipe of `dqn` with the lower quartile and the median of the waits in simulated futures.

    The rules that it imitates first include `simulate-ahead`.
    """
    return DQN("dqn-ahead", inputs=networks.RELATIVE_AHEAD, looks_ahead=True)
