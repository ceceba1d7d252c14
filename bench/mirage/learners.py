"""Baton's DQN and policy gradient over a day of snapshots: their own losses with Mirage's state and encoders.

The losses, the table as memory and the price as an input are those of `models.provisioning.policies.dqn` and
`models.provisioning.policies.policy_gradient`. The inputs differ. In addition to the five ratios of the present
snapshot and the price, the network reads the output of an encoder of `models.provisioning.mirage.networks` over the 144
snapshots. Unlike Mirage's own, states are signed logarithms, standardised on the fit data. There is no dropout, which
would blur a ratio of probabilities; the newest pairs stop the training instead. These learners are peers and cannot be
released, because their state is a day of snapshots, which an artifact does not hold.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.provisioning.comparison.outcomes import PolicyOutcome
from models.provisioning.learning import early_stopping
from models.provisioning.learning.networks import DEFAULT_WEIGHT, KNOB, Inputs, network, repeatable
from models.provisioning.mirage import checkpoints, networks
from models.provisioning.mirage.foundations import Budget
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import CLUSTER_INPUTS, HISTORY, INPUTS, PAIR_INPUTS, Histories
from models.provisioning.policies import dqn, policy_gradient
from models.provisioning.policies.dqn import DQN
from models.provisioning.policies.policy_gradient import PolicyGradient
from models.provisioning.protocol import PairTable
from models.provisioning.scaling import Scaling
from models.provisioning.stopping import stopping_rows
from traces.arrays import Float32s, Int64s
from traces.errors import InputError

if TYPE_CHECKING:
    import torch


ENCODED = 16  # outputs of an encoder for a day
ENCODED_ROWS = 256  # states encoded at once
ENCODERS: dict[str, Callable[[Sizes], torch.nn.Module]] = {
    "transformer": lambda sizes: networks.transformer(sizes, outputs=ENCODED),
    "mixture": lambda sizes: networks.mixture(sizes, outputs=ENCODED),
}
LEARNERS: dict[str, Callable[[str, int | None], DQN | PolicyGradient]] = {
    "dqn": lambda name, updates: DQN(name, updates=updates or 240, batch=64, steps_ahead=8, looks=5),
    # a tenth of the rate of the ordinary learner, chosen by the losses of both in January (docs/results.md)
    "policy-gradient": lambda name, updates: PolicyGradient(
        name, updates=updates or 70, batch_pairs=4, looks=5, learning_rate=3e-4
    ),
}
KINDS = tuple(f"{learner}-{encoder}" for learner in LEARNERS for encoder in ENCODERS)


@dataclass(frozen=True)
class DayInputs:
    """The decisions of a pair table as inputs over histories, as `learning.networks.NetworkInputs`."""

    now: Inputs
    histories: Histories  # the snapshots scaled, the pairs as they are
    of_cluster: Scaling
    of_pair: Scaling
    encoder: Callable[[], torch.nn.Module]

    @classmethod
    def of(cls, histories: Histories, encoder: Callable[[], torch.nn.Module]) -> DayInputs:
        """Scale these decisions, and the snapshots up to the last of them, by their own statistics."""
        seen = histories.snapshots.rows[: histories.last.max() + 1]
        of_pair = histories.of_pair(np.arange(len(histories.last)))
        made = cls(
            Inputs.of(histories.pairs.observations),
            histories,
            Scaling.of(seen, np.arange(CLUSTER_INPUTS), np.full(CLUSTER_INPUTS, -1)),
            Scaling.of(of_pair, np.arange(PAIR_INPUTS), np.full(PAIR_INPUTS, -1)),
            encoder,
        )
        return made.of_histories(histories)

    @property
    def scaling(self) -> Scaling:
        """Scaling of the present ratios, which are the first inputs."""
        return self.now.scaling

    def of_pairs(self, pairs: PairTable) -> DayInputs:
        """Other pairs of the same cluster."""
        return replace(self, now=self.now.of_pairs(pairs), histories=self.histories.of_pairs(pairs))

    def of_histories(self, histories: Histories) -> DayInputs:
        """Other pairs with their own raw snapshots, by the scaling of these."""
        scaled = replace(histories.snapshots, rows=self.of_cluster(histories.snapshots.rows))
        return replace(self, now=self.now.of_pairs(histories.pairs), histories=replace(histories, snapshots=scaled))

    def states(self, rows: Int64s) -> torch.Tensor:
        """(b, HISTORY, INPUTS) scaled."""
        import torch

        states = self.histories.at(rows)
        states[:, :, CLUSTER_INPUTS:] = self.of_pair(self.histories.of_pair(rows))[:, None]
        return torch.from_numpy(states)

    def at(self, rows: Int64s, log_weight: Float32s) -> torch.Tensor:
        """(b, i) the present ratios, the log of the cost weight and the flattened states."""
        import torch

        return torch.cat([self.now.at(rows, log_weight), self.states(rows).flatten(1)], dim=1)

    def network(self, hidden: Sequence[int], outputs: int) -> torch.nn.Module:
        """An encoder of the states, and the ordinary learners' network on the ratios, the encoding and the price."""
        import torch

        encoder, width = self.encoder(), self.now.width

        class OverHistories(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encoder = encoder
                self.head = network(width + ENCODED, hidden, outputs)
                self.eval()  # no dropout; the weights still learn

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.judged(x[:, :width], self.encoder(x[:, width:].reshape(-1, HISTORY, INPUTS)))

            def judged(self, now: torch.Tensor, day: torch.Tensor) -> torch.Tensor:
                found: torch.Tensor = self.head(torch.cat([now[:, :-1], day, now[:, -1:]], dim=1))
                return found

        return OverHistories()

    def found(self, network: torch.nn.Module, weights: Sequence[float]) -> torch.Tensor:
        """(k, d, outputs) the network's outputs for all decisions at each cost weight; each day is encoded once."""
        import torch

        over: Any = network
        rows = np.arange(len(self.histories.last))
        with torch.no_grad():
            parts = np.split(rows, np.arange(ENCODED_ROWS, len(rows), ENCODED_ROWS))
            days = torch.cat([over.encoder(self.states(part)) for part in parts])
            prices = [np.full(len(rows), np.log(weight), np.float32) for weight in weights]
            return torch.stack([over.judged(self.now.at(rows, price), days) for price in prices])


@dataclass(frozen=True)
class Learned:
    """One fit: its policy, its inputs, its network, and its logged metrics.

    metrics: `seconds` of processor time, number of `updates`, `newest_cost_h` at each look (`early_stopping`).
    """

    policy: DQN | PolicyGradient
    shown: DayInputs
    network: torch.nn.Module
    metrics: dict[str, list[float]]

    def outcome(self, histories: Histories) -> PolicyOutcome:
        """Its gaps on other pairs, deciding at each of their decisions."""
        with repeatable(0):
            found = self.shown.of_histories(histories).found(self.network, self.policy.settings).numpy()
        submit = found[..., 0] >= 0.0 if found.shape[-1] == 1 else found[..., 1] >= found[..., 0]
        gap = histories.pairs.gap_h[stopping_rows(histories.pairs, submit)]
        return PolicyOutcome(self.policy.name, "peer", KNOB, self.policy.settings, DEFAULT_WEIGHT, gap[None])


def fit(kind: str, histories: Histories, budget: Budget, seed: int, updates: int | None = None) -> Learned:
    """Fit one of KINDS like `dqn` or `policy-gradient`: on the older pairs, stopped by the newest.

    It ends at its updates or after `budget.seconds` of processor time, whichever comes first, and resumes from its
    checkpoint. Raises InputError for an unknown kind, and what `checkpoints.load` raises.
    """
    if kind not in KINDS:
        raise InputError(f"unknown learner over histories {kind!r}; known: {', '.join(KINDS)}")
    learner_name, _, encoder_name = kind.rpartition("-")
    policy = LEARNERS[learner_name](kind, updates)
    early, newest = early_stopping.held_out(histories.pairs)
    path = None if budget.checkpoints is None else budget.checkpoints / f"{kind}-{seed}.npz"
    made_for = {"sizes": asdict(budget.sizes), "seed": seed, "encoded": ENCODED, "learner": asdict(policy)}
    with repeatable(seed):
        shown = DayInputs.of(histories.of_pairs(early), lambda: ENCODERS[encoder_name](budget.sizes))
        learner = _learner(policy, shown, early, newest, np.random.default_rng(seed))
        seconds, made = train(learner, made_for, budget.seconds, path)
    metrics = {"seconds": [seconds], "updates": [float(made)], "newest_cost_h": learner.best.costs}
    return Learned(policy, shown, _networks(learner)[1], metrics)


def train(
    learner: dqn.DQNLearner | policy_gradient.PolicyGradientLearner,
    made_for: Mapping[str, Any],
    budget_s: float,
    path: Path | None,
) -> tuple[float, int]:
    """Train until all updates are made or `budget_s` of processor time is used; the network is then at its best.

    Resumes from `path`, to the same bit, if that file exists. Writes it at each look and at the end. Returns the
    seconds and the updates of the whole training.
    """
    import torch

    learned, averaged = _networks(learner)
    best = copy.deepcopy(averaged)
    parts = torch.nn.ModuleDict({"learned": learned, "averaged": averaged, "best": best})
    made, seconds, updates = 0, 0.0, learner.policy.updates
    if path is not None and path.exists():
        meta, moments = checkpoints.load(path, parts, made_for)
        made, seconds, learner.best.costs[:] = int(meta["made"]), float(meta["seconds"]), meta["costs"]
        learner.best.state = copy.deepcopy(best.state_dict()) if learner.best.costs else {}
        learner.rng.bit_generator.state = meta["rng"]
        learner.schedule.load_state_dict(meta["schedule"])
        checkpoints.restore(learner.optimizer, moments)
        learner.optimizer.param_groups[0]["lr"] = learner.schedule.get_last_lr()[0]
    while made < updates and seconds < budget_s:
        began = time.process_time()
        learner.step(made)
        seconds, made = seconds + time.process_time() - began, made + 1
        is_due = early_stopping.is_look(made - 1, updates, learner.policy.looks)
        if path is not None and (is_due or seconds >= budget_s):
            best.load_state_dict(learner.best.state or averaged.state_dict())
            progress = {"made": made, "seconds": seconds, "costs": learner.best.costs}
            progress |= {"rng": learner.rng.bit_generator.state, "schedule": learner.schedule.state_dict()}
            checkpoints.save(path, parts, learner.optimizer, {**made_for, **progress})
    learner.best.restore(averaged)
    return seconds, made


def _learner(
    policy: DQN | PolicyGradient,
    shown: DayInputs,
    early: PairTable,
    newest: PairTable | None,
    rng: np.random.Generator,
) -> dqn.DQNLearner | policy_gradient.PolicyGradientLearner:
    if isinstance(policy, DQN):
        return dqn.DQNLearner(policy, shown, early, newest, rng)
    return policy_gradient.PolicyGradientLearner(policy, shown, early, newest, rng)


def _networks(
    learner: dqn.DQNLearner | policy_gradient.PolicyGradientLearner,
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The network that learns, and its average, which is judged."""
    if isinstance(learner, dqn.DQNLearner):
        return learner.online, learner.target
    return learner.actor, learner.average
