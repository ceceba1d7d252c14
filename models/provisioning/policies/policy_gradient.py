"""Policy gradient of when to submit: proximal policy optimisation over all decisions of a batch of pairs.

Williams, "Simple statistical gradient-following algorithms", Machine Learning 8 (1992); the clipped objective and
several passes over a batch of Schulman et al., "Proximal policy optimization algorithms", arXiv 1707.06347 (2017); a
bonus on entropy (Mnih et al., ICML 2016).

Differences from the papers, and their reasons:
- The baseline is looked up. Actions do not change the cluster state seen next, and the pair table holds the cost of
  submitting at every decision. So the present actor's value from any decision on is known: backwards from the end,
  value = p x outcome + (1 - p) x value of the next decision. No critic is fitted.
- The gradient takes both actions of each decision at their probabilities (Ciosek & Whiteson, "Expected policy
  gradients", AAAI 2018): only pairs and prices are sampled.
- The actor is conditioned on the cost weight of overlap, which is the knob.
- It begins as a sensible rule (`start_from_estimate`), and the first part of the updates imitates the best rule that
  learns nothing (`models.provisioning.policies.best_rule`).
- The bonus fades to zero, so that the released rule, submit at a probability of one half, is the trained one. The
  released actor is an average of the last actors, as it was when it lost least on the newest pairs
  (`models.provisioning.learning.early_stopping`).
- A decision is weighted by 1 / (1 h + remaining time), which is known then: hours far from the end would dominate.
- No discount: an hour lost is an hour lost.

The file reads from top to bottom: hyper-parameters, the training loop, a batch, one update, the actor's first rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.artifact import Artifact
from features.conventions import interruption_h, overlap_h
from models.provisioning.batched_pairs import rewards
from models.provisioning.learning import early_stopping, networks
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.learning.stopping_rows import REMAINING
from models.provisioning.policies.best_rule import best_rules
from models.provisioning.protocol import PairTable
from traces.arrays import Bools, Float32s, Float64s, Int64s

if TYPE_CHECKING:
    import torch


@dataclass
class PolicyGradient:
    """Proximal policy optimisation on the decisions of a pair table.

    Metrics, each the mean of a tenth of the training: `objective` (maximised, without the bonus), `entropy` of the
    actor's choices in nats, and `return_h`, the actor's value at the first decision of a pair, hours (0 is best).
    `newest_cost_h`: the averaged actor's losses on the held-out pairs, hours a pair, at each of `looks` (none without
    held-out pairs).
    """

    name: str = "policy-gradient"
    knob: str = networks.KNOB
    settings: tuple[float, ...] = networks.SETTINGS
    is_learned: bool = True
    # the actor
    hidden: tuple[int, ...] = (64, 64)  # units of each hidden layer
    sharpness: float = 2.0  # of the actor's first rule: how fast its probability turns from 0 to 1
    caution: float = 0.2  # how much that rule holds back by the cost weight
    average_rate: float = (
        0.05  # of the exported actor's steps towards the trained one, making it an average of the last ones
    )
    # the updates
    updates: int = 400
    imitated: float = 0.1  # share of the updates, the first, that imitate the best rule
    batch_pairs: int = 32  # pairs per update, each with all its decisions
    epochs: int = 4  # passes over them
    clip: float = 1.0  # largest ratio by which changing a probability still gains something
    learning_rate: float = 3e-3  # of Adam, at first
    last_rate: float = 0.05  # share of the rate left at the last update; it falls linearly
    gradient_norm: float = 2.0  # a larger gradient is scaled down to it
    entropy: float = 0.05  # weight of the entropy bonus, at first; it falls linearly to 0
    looks: int = 40  # evaluations on the held-out pairs
    # the inputs
    inputs: tuple[str, ...] = networks.RELATIVE  # hours each: of the observation, and of its futures
    looks_ahead: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the policy. One seed gives the same bytes on every x86-64 machine."""
        early, newest = early_stopping.held_out(pairs)
        with networks.repeatable(seed):
            inputs = networks.Inputs.of(early.seen(self.looks_ahead), self.inputs)
            learner = PolicyGradientLearner(self, inputs, early, newest, np.random.default_rng(seed))
            series = learner.run()
            arrays = inputs.export(learner.average)
        parameters = {"head": "logit", "layers": len(self.hidden) + 1}
        weight, looks_ahead = networks.DEFAULT_WEIGHT, self.looks_ahead
        artifact = new_artifact(self, "mlp", weight, parameters=parameters, arrays=arrays, looks_ahead=looks_ahead)
        tenths = [part for part in np.array_split(np.arange(self.updates), 10) if len(part)]
        names = ("objective", "entropy", "return_h")
        metrics = {name: [float(np.mean(series[part, i])) for part in tenths] for i, name in enumerate(names)}
        return artifact, metrics | ({"newest_cost_h": learner.best.costs} if learner.best.costs else {})

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """The actor before training: the rule of `start_from_estimate`."""
        inputs = networks.Inputs.of_artifact(artifact)
        with networks.repeatable(seed):
            return replace(artifact, arrays=inputs.export(self.first_actor(inputs)))

    def first_actor(self, inputs: networks.NetworkInputs) -> torch.nn.Module:
        """A new actor, which acts by its first rule."""
        actor = inputs.network(self.hidden, 1)
        start_from_estimate(actor, inputs, self.sharpness, self.caution)
        return actor


@dataclass(frozen=True)
class PairBatch:
    """All decisions of some pairs, n rows; each pair has its own weight."""

    rows: Int64s  # (n,) of the table, pair by pair
    last: Bools  # (n,) the exact end of a pair
    log_weight: Float32s  # (n,)
    outcome: Float64s  # (n,) value of submitting there, hours
    counts: Float64s  # (n,) weight of the decision; they add up to 1
    imitated: Float32s  # (n,) 1 where the best rule submits


class PolicyGradientLearner:
    """One training run on `pairs`, stopped by `newest`."""

    def __init__(
        self,
        policy: PolicyGradient,
        inputs: networks.NetworkInputs,
        pairs: PairTable,
        newest: PairTable | None,
        rng: np.random.Generator,
    ) -> None:
        import torch

        self.policy, self.inputs, self.pairs, self.rng = policy, inputs, pairs, rng
        self.gap_h = pairs.gap_h
        self.rule = best_rules(pairs, networks.RULE_WEIGHTS, policy.looks_ahead)
        self.actor = policy.first_actor(inputs)
        self.average = inputs.network(policy.hidden, 1)
        self.average.load_state_dict(self.actor.state_dict())
        self.best = early_stopping.Best(newest, early_stopping.logit_decisions(inputs, newest))
        self.optimizer = torch.optim.Adam(self.actor.parameters(), policy.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, policy.last_rate, policy.updates)

    def run(self) -> Float64s:
        """Make all updates, then restore the best averaged actor; (updates, 3) objective, entropy and return."""
        out = np.array([self.step(update) for update in range(self.policy.updates)]).reshape(-1, 3)
        self.best.restore(self.average)
        return out

    def step(self, update: int) -> tuple[float, float, float]:
        """Make update number `update`, from 0, and look at the held-out pairs if a look is due; returns its figures."""
        policy = self.policy
        bonus = policy.entropy * (1.0 - update / policy.updates)
        figures = self.update(self.draw(), bonus, update < policy.imitated * policy.updates)
        networks.follow(self.average, self.actor, policy.average_rate)
        self.schedule.step()
        if early_stopping.is_look(update, policy.updates, policy.looks):
            self.best.look(self.average)
        return figures

    def draw(self) -> PairBatch:
        """Draw pairs from the table."""
        pairs = self.rng.integers(len(self.pairs), size=self.policy.batch_pairs)
        chosen = networks.sample_log_weights(self.rng, len(pairs))
        begin, end = self.pairs.offset[pairs], self.pairs.offset[pairs + 1]
        rows = np.concatenate([np.arange(*both) for both in zip(begin, end, strict=True)])
        log_weight = np.repeat(chosen, end - begin)
        gap = self.gap_h[rows]
        outcome = rewards(interruption_h(gap), overlap_h(gap), np.exp(log_weight.astype(np.float64)))
        remaining_h = self.pairs.observations[rows, REMAINING].astype(np.float64)
        counts = 1.0 / (1.0 + np.maximum(remaining_h, 0.0))
        rule = self.rule[networks.nearest_rule(log_weight), rows].astype(np.float32)
        last = np.zeros(len(rows), bool)
        last[np.cumsum(end - begin) - 1] = True
        counts[last] = 0.0  # no choice is left
        return PairBatch(rows, last, log_weight, outcome, counts / max(counts.sum(), 1e-9), rule)

    def update(self, batch: PairBatch, bonus: float, imitate: bool) -> tuple[float, float, float]:
        """Make some steps of Adam on a batch; returns the objective and entropy of the last, and the actor's return."""
        import torch

        inputs = self.inputs.at(batch.rows, batch.log_weight)
        with torch.no_grad():
            chance = torch.sigmoid(self.actor(inputs)[:, 0]).numpy().astype(np.float64)
        value, following = values(batch, chance)
        submitting, waiting = (
            torch.from_numpy(gain.astype(np.float32))
            for gain in scaled(batch, batch.outcome - value, following - value)
        )
        old, counts = torch.from_numpy(chance.astype(np.float32)), torch.from_numpy(batch.counts.astype(np.float32))
        for _ in range(self.policy.epochs):
            logit: torch.Tensor = self.actor(inputs)[:, 0]
            now = torch.sigmoid(logit)
            softplus = torch.nn.functional.softplus
            entropy = (counts * (now * softplus(-logit) + (1.0 - now) * softplus(logit))).sum()
            if imitate:
                likely = -torch.nn.functional.binary_cross_entropy_with_logits(
                    logit, torch.from_numpy(batch.imitated), reduction="none"
                )
                objective = (counts * likely).sum()
            else:
                gained = clipped(now, old, submitting, self.policy.clip)
                gained = gained + clipped(1.0 - now, 1.0 - old, waiting, self.policy.clip)
                objective = (counts * gained).sum()
            self.optimizer.zero_grad()
            loss: torch.Tensor = -objective - bonus * entropy
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.actor.parameters(), self.policy.gradient_norm)
            self.optimizer.step()
        first = np.concatenate([[True], batch.last[:-1]])
        return objective.item(), entropy.item(), float(value[first].mean())


def values(batch: PairBatch, chance: Float64s) -> tuple[Float64s, Float64s]:
    """(n,) value of each decision under an actor that submits with `chance` (n,), and of the next one, hours.

    At a pair's exact end only submitting is possible: both are its outcome.
    """
    value, following = np.empty(len(chance)), np.empty(len(chance))
    after = 0.0
    for n in range(len(chance) - 1, -1, -1):
        after = batch.outcome[n] if batch.last[n] else after
        following[n] = after
        value[n] = chance[n] * batch.outcome[n] + (1.0 - chance[n]) * after
        after = value[n]
    return value, following


def scaled(batch: PairBatch, submitting: Float64s, waiting: Float64s) -> tuple[Float64s, Float64s]:
    """The advantages (n,) of both actions, divided by the root mean square of their difference."""
    spread = float(np.sqrt((batch.counts * (submitting - waiting) ** 2).sum())) + 1e-6
    return submitting / spread, waiting / spread


def clipped(now: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, clip: float) -> torch.Tensor:
    """(n,) probability before x min(ratio x advantage, ratio held within 1 +- clip x advantage)."""
    import torch

    held = torch.minimum(torch.maximum(now, old * (1.0 - clip)), old * (1.0 + clip))
    return torch.minimum(now * advantage, held * advantage)


def start_from_estimate(
    network: torch.nn.Module, inputs: networks.NetworkInputs, sharpness: float, caution: float
) -> None:
    """Make a network of one output begin as the rule "submit when the start estimate reaches the remaining time".

    logit = sharpness x (log of (1 h + estimate) / (1 h + remaining) - caution x log weight). Learning begins at a
    sensible rule and learns the departure from it (residual policy learning, Silver et al., arXiv 1812.06298). The
    estimate is the first of the inputs.
    """
    import torch

    last = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)][-2]
    skip = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(0.1)  # the contribution of the hidden layers begins small
        last.bias.fill_(sharpness * float(inputs.scaling.mean[0]))
        skip.weight[0, 0] = sharpness * float(inputs.scaling.scale[0])
        skip.weight[0, -1] = -sharpness * caution * networks.LOG_WEIGHT_SCALE


def policy_gradient_ahead() -> PolicyGradient:
    """The recipe of `policy-gradient` with the lower quartile and the median of the waits in simulated futures.

    The actor begins as the rule on their median wait, and the rules that it imitates first include `simulate-ahead`.
    """
    return PolicyGradient("policy-gradient-ahead", inputs=networks.RELATIVE_AHEAD, looks_ahead=True)
