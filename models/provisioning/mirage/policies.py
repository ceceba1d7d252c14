"""Mirage's four networks as policies, fitted and compared like any other by name, and never released.

Ding et al., "Mirage: Towards Low-interruption Services on Batch GPU Clusters with Reinforcement Learning" (SC'23):
a transformer or a mixture of experts (MoE) over 144 snapshots, which decides by its predicted gap (DQN) or through a
REINFORCE head (PG). docs/policies.md lists the differences from the authors' release.

A fit ends after its epochs or `minutes` of processor time, whichever is first. Only a fit that ends by its epochs gives
the same bytes on every machine. A fit with more `minutes` continues where one with fewer stopped.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from models.provisioning.learning.manifest import new_manifest
from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import checkpoints, foundations
from models.provisioning.mirage.artifact import HEAD, KIND, WEIGHTS, NetworkArtifact
from models.provisioning.mirage.foundations import BOUNDS_H, LOGITS, MIXTURE, RELEASED_H, TRANSFORMER, Budget
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import VERSION, Histories
from models.provisioning.protocol import PairTable
from traces.arrays import Float64s


@dataclass
class MirageNetwork:
    """A foundation with a value head or a REINFORCE head. Sizes and epochs are the released ones by default."""

    name: str
    foundation: str  # TRANSFORMER or MIXTURE
    has_head: bool  # REINFORCE; else the predicted gap decides
    knob: str
    settings: tuple[float, ...]
    default: float
    head_epochs: int
    epochs: int = foundations.EPOCHS
    expert_epochs: int = foundations.EXPERT_EPOCHS  # of each expert of a mixture
    minutes: float = 60.0  # of pre-training, processor time
    width: int = Sizes().width  # of the encoder; an odd width loses one, because the transformer has two heads
    inner: int = Sizes().inner
    experts: int = Sizes().experts  # of a mixture
    is_learned: bool = True
    checkpoints: Path | None = None  # as in `Budget`

    def resuming_in(self, folder: Path) -> MirageNetwork:
        """The same policy, whose fits keep their progress in that folder."""
        return replace(self, checkpoints=folder)

    @property
    def sizes(self) -> Sizes:
        """Sizes of the foundation."""
        return Sizes(width=self.width - self.width % 2, inner=self.inner, experts=self.experts)

    def fit(self, pairs: PairTable, seed: int) -> tuple[NetworkArtifact, dict[str, list[float]]]:
        """Pre-train the foundation, then train the head if there is one.

        Metrics: those of `foundations.pretrained`, and `reward`, a number an epoch of the head. Raises InputError if
        the table has no snapshots.
        """
        histories = Histories.of_table(pairs)
        budget = Budget(self.minutes * 60, self.sizes, self.checkpoints)
        network, metrics = foundations.pretrained(
            self.foundation, histories, budget, seed, self.epochs, self.expert_epochs
        )
        head = None
        if self.has_head:
            head, rewards = foundations.reinforced(self.foundation, network, histories, seed, self.head_epochs)
            metrics["reward"] = rewards
        return self._artifact(network, head), metrics

    def untrained(self, artifact: Artifact, seed: int) -> NetworkArtifact:
        """The network and the head with the weights that the seed gives them."""
        import torch

        sizes = Sizes(**artifact.parameters["sizes"])
        head = None
        if self.has_head:
            with repeatable(seed):
                made = torch.nn.Linear(sizes.experts if self.foundation == MIXTURE else 1, 2)
            head = np.concatenate([made.weight.detach().numpy(), made.bias.detach().numpy()[:, None]], axis=1)
            head = head.astype(np.float64)
        return self._artifact(foundations.new_network(self.foundation, sizes, seed), head, sizes)

    def _artifact(self, network: Any, head: Float64s | None, sizes: Sizes | None = None) -> NetworkArtifact:
        stated = asdict(sizes or self.sizes)
        parameters = {"foundation": self.foundation, "sizes": stated, "state_version": VERSION}
        arrays: dict[str, NDArray[Any]] = {WEIGHTS: checkpoints.flat(network.state_dict().values())}
        if head is not None:
            arrays[HEAD] = head
        return NetworkArtifact(new_manifest(self, KIND, self.default, parameters), arrays)


def transformer_dqn() -> MirageNetwork:
    """The transformer; submits at its predicted gap."""
    return _by_gap("mirage-transformer-dqn", TRANSFORMER)


def transformer_pg() -> MirageNetwork:
    """The transformer with a REINFORCE head."""
    return _by_head("mirage-transformer-pg", TRANSFORMER)


def moe_dqn() -> MirageNetwork:
    """The mixture of experts; submits at its predicted gap."""
    return _by_gap("mirage-moe-dqn", MIXTURE)


def moe_pg() -> MirageNetwork:
    """The mixture of experts with a REINFORCE head."""
    return _by_head("mirage-moe-pg", MIXTURE)


def _by_gap(name: str, kind: str) -> MirageNetwork:
    return MirageNetwork(name, kind, False, "gap at which it submits, hours", BOUNDS_H, RELEASED_H, 0)


def _by_head(name: str, kind: str) -> MirageNetwork:
    epochs = foundations.HEAD_EPOCHS[kind]
    return MirageNetwork(name, kind, True, "log-odds at which it submits", LOGITS, 0.0, epochs)
