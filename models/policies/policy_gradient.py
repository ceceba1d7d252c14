"""Policy gradient (advantage actor-critic) of when to submit.

REINFORCE with a learned baseline and an entropy bonus (Williams, Machine Learning 8 (1992); Mnih et al., "Asynchronous
methods for deep reinforcement learning", ICML 2016), advantages by generalised advantage estimation (Schulman et al.,
ICLR 2016), over a batch of pairs.

What differs from the papers, and why:
- The actor is conditioned on the cost weight of overlap, which is the knob.
- The actor begins as a sensible rule and learns the departure from it (`start_from_estimate`).
- The entropy bonus fades to nothing, so that the released rule, submit at a probability of one half, is what was
  trained. What is released is an average of the last actors.
- Episodes start at a random decision (exploring starts), mostly where the choice is close.
- No discount: an hour lost is an hour lost.

The file reads from top to bottom: hyper-parameters, the training loop, one rollout, one update, advantages, the rule
that the actor begins as. Shared with the other network are what a network is shown (`models.learning.networks`), the
pairs that are played (`models.batched_pairs`) and where episodes start (`models.learning.exploring_starts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
Float32s = NDArray[np.float32]


@dataclass
class PolicyGradient:
    """Advantage actor-critic over a batch of pairs.

    What is logged, each the mean of a tenth of the training: `actor_loss` and `critic_loss` of an update, `entropy` of
    the actor's choices in nats, and `return_h`, the return in hours of the episodes that ended (0 is best).
    """

    name: str = "policy-gradient"
    knob: str = networks.KNOB
    settings: tuple[float, ...] = networks.SETTINGS
    is_learned: bool = True
    # what is played
    step_s: int = 1800  # between decisions in training
    longest_lead_h: float = 30.0  # before the predecessor's end, at which episodes start at most
    batch_pairs: int = 256  # pairs stepped at once
    horizon: int = 16  # steps of the batch between updates
    # the actor and the critic
    hidden: tuple[int, ...] = (64, 64)  # units of each hidden layer of either
    sharpness: float = 4.0  # of the rule that the actor starts as: how fast its probability turns from 0 to 1
    caution: float = 0.2  # how much that rule holds back by the cost weight
    average_rate: float = 0.02  # the exported actor follows the trained one by it, an average of the last ones
    # the updates
    updates: int = 500
    learning_rate: float = 1.5e-3  # of Adam, at first
    last_rate: float = 0.05  # share of it that is left at the last update; it falls linearly
    gradient_norm: float = 2.0  # above which a gradient of both networks together is scaled down to it
    entropy: float = 0.02  # weight of the entropy bonus, at first; it falls linearly to 0
    trace_decay: float = 0.95  # lambda of the advantage estimate
    reward_scale_h: float = 4.0  # rewards are divided by it: values are of the order of one

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """The artifact and the metrics; one seed gives the same bytes on every x86-64 machine."""
        env = BatchedPairs(pairs, decisions_a_step(pairs, self.step_s))
        with networks.repeatable(seed):
            rng = np.random.default_rng(seed)
            learner = Learner(self, networks.Inputs.of(pairs.observations), env, rng)
            series = learner.run()
            arrays = learner.inputs.export(learner.average)
        parameters = {"head": "logit", "layers": len(self.hidden) + 1}
        artifact = new_artifact(self, "mlp", networks.DEFAULT_WEIGHT, parameters=parameters, arrays=arrays)
        tenths = np.array_split(np.arange(self.updates), 10)
        names = ("actor_loss", "critic_loss", "entropy", "return_h")
        metrics = {name: [float(np.nanmean(series[part, i])) for part in tenths] for i, name in enumerate(names)}
        return artifact, metrics

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """The actor that learning begins with: the rule of `start_from_estimate`."""
        inputs = networks.Inputs.of_artifact(artifact)
        with networks.repeatable(seed):
            return replace(artifact, arrays=inputs.export(self.first_actor(inputs)))

    def first_actor(self, inputs: networks.Inputs) -> torch.nn.Module:
        """A new actor, as the rule that it starts as."""
        actor = networks.network(inputs.width, self.hidden, 1)
        start_from_estimate(actor, inputs, self.sharpness, self.caution)
        return actor


class Learner:
    """One training run."""

    def __init__(
        self, policy: PolicyGradient, inputs: networks.Inputs, env: BatchedPairs, rng: np.random.Generator
    ) -> None:
        import torch

        self.policy, self.inputs, self.env, self.rng = policy, inputs, env, rng
        self.starts = ExploringStarts(env, policy.longest_lead_h)
        width = inputs.width
        self.actor = policy.first_actor(inputs)
        self.average = networks.network(width, policy.hidden, 1)
        self.average.load_state_dict(self.actor.state_dict())
        self.critic = networks.network(width, policy.hidden, 1)
        both = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(both, policy.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, policy.last_rate, policy.updates)
        self.rows = env.reset(*self.starts.draw(rng, policy.batch_pairs))
        self.log_weight = networks.sample_log_weights(rng, policy.batch_pairs)

    def run(self) -> NDArray[np.float64]:
        """(updates, 4) actor loss, critic loss, entropy, mean return of the episodes that ended."""
        out = np.empty((self.policy.updates, 4))
        for update in range(self.policy.updates):
            rollout = self.collect()
            bonus = self.policy.entropy * (1.0 - update / self.policy.updates)
            out[update] = [*self.update(rollout, bonus), rollout.return_h]
            networks.follow(self.average, self.actor, self.policy.average_rate)
        return out

    def collect(self) -> Rollout:
        """Steps the batch with sampled actions; pairs that end are replaced."""
        import torch

        shape = (self.policy.horizon, self.policy.batch_pairs)
        rows = np.empty(shape, np.int64)
        log_weight, submit, reward, done = (np.empty(shape, np.float32) for _ in range(4))
        for t in range(shape[0]):
            rows[t], log_weight[t] = self.rows, self.log_weight
            with torch.no_grad():
                chance = torch.sigmoid(self.actor(self.inputs.at(self.rows, self.log_weight))[:, 0]).numpy()
            submit[t] = self.rng.random(shape[1]) < chance
            after = self.env.step(submit[t] > 0)
            reward[t] = rewards(after.interruption_h, after.overlap_h, np.exp(self.log_weight))
            done[t] = after.done
            ended = int(after.done.sum())
            self.rows = self.env.restart(after.done, *self.starts.draw(self.rng, ended))
            self.log_weight = self.log_weight.copy()
            self.log_weight[after.done] = networks.sample_log_weights(self.rng, ended)
        mean_return = float(reward[done > 0].mean()) if done.any() else float("nan")
        return Rollout(rows, log_weight, submit, reward / np.float32(self.policy.reward_scale_h), done, mean_return)

    def update(self, rollout: Rollout, bonus: float) -> tuple[float, float, float]:
        """One step of Adam on a rollout; returns the losses of actor and critic, and the entropy."""
        import torch

        inputs = self.inputs.at(rollout.rows.ravel(), rollout.log_weight.ravel())
        values: torch.Tensor = self.critic(inputs)[:, 0]
        with torch.no_grad():
            following = self.critic(self.inputs.at(self.rows, self.log_weight))[:, 0].numpy()
        # how much better than the critic expected each action turned out
        known = values.detach().numpy().reshape(rollout.rows.shape)
        gain = advantages(rollout.reward, rollout.done, known, following, self.policy.trace_decay)
        goal = torch.from_numpy((gain + known).ravel())
        advantage = torch.from_numpy(gain.ravel())
        advantage = advantage / (advantage.std() + 1e-6)
        # the actor makes better actions likelier, the critic learns what was earned
        logit: torch.Tensor = self.actor(inputs)[:, 0]
        cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
        log_chance = -cross_entropy(logit, torch.from_numpy(rollout.submit.ravel()), reduction="none")
        entropy = cross_entropy(logit, torch.sigmoid(logit))
        actor_loss = -(log_chance * advantage).mean()
        critic_loss = torch.nn.functional.smooth_l1_loss(values, goal)
        self.optimizer.zero_grad()
        loss: torch.Tensor = actor_loss - bonus * entropy + critic_loss
        loss.backward()  # type: ignore[no-untyped-call]
        both = [*self.actor.parameters(), *self.critic.parameters()]
        torch.nn.utils.clip_grad_norm_(both, self.policy.gradient_norm)
        self.optimizer.step()
        self.schedule.step()
        return actor_loss.item(), critic_loss.item(), entropy.item()


@dataclass(frozen=True)
class Rollout:
    """`horizon` steps of b pairs."""

    rows: Int64s  # (t, b)
    log_weight: Float32s  # (t, b)
    submit: Float32s  # (t, b)
    reward: Float32s  # (t, b)
    done: Float32s  # (t, b)
    return_h: float  # mean over the episodes that ended


def advantages(reward: Float32s, done: Float32s, value: Float32s, following: Float32s, decay: float) -> Float32s:
    """(t, b) generalised advantage estimates without discount; `following` (b,) values the states after the last."""
    out = np.zeros_like(reward)
    running = np.zeros_like(following)
    for t in range(len(reward) - 1, -1, -1):
        alive = 1.0 - done[t]
        running = reward[t] + alive * following - value[t] + decay * alive * running
        out[t], following = running, value[t]
    return out


def start_from_estimate(network: torch.nn.Module, inputs: networks.Inputs, sharpness: float, caution: float) -> None:
    """Makes a network of one output begin as the rule "submit when the start estimate reaches the remaining time".

    logit = sharpness x (log of (1 h + estimate) / (1 h + remaining) - caution x log weight), so that exploration begins
    around a sensible rule and what is learned is the departure from it (residual policy learning, Silver et al.,
    arXiv 1812.06298).
    """
    import torch

    position = len(networks.PLAIN)  # the first of RELATIVE
    last = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)][-2]
    skip = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(0.1)  # what the hidden layers add begins small
        last.bias.fill_(sharpness * float(inputs.scaling.mean[position]))
        skip.weight[0, position] = sharpness * float(inputs.scaling.scale[position])
        skip.weight[0, -1] = -sharpness * caution * networks.LOG_WEIGHT_SCALE
