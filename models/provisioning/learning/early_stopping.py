"""Early stopping: keep the state of a network that lost least on the newest part of its pairs.

The newest pairs of the fit window are held out. Older pairs whose outcome was not known when the first of these was
submitted are left out, as a fit at that time would have had to do. The select and report windows are not used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from features.conventions import interruption_h, overlap_h
from models.provisioning.batched_pairs import rewards
from models.provisioning.learning.networks import NetworkInputs
from models.provisioning.protocol import PairTable
from models.provisioning.stopping import stopping_rows
from traces.arrays import Bools

if TYPE_CHECKING:
    import torch

SHARE = 0.2  # of the pairs, the newest, that are held out
LEAST_PAIRS = 10  # held out, or older than those; with fewer, nothing is held out and the last state is kept
WEIGHTS = (10.0, 3.0, 1.0, 0.3, 0.1)  # cost weights of overlap at which a state is judged


def held_out(pairs: PairTable, share: float = SHARE) -> tuple[PairTable, PairTable | None]:
    """The pairs to learn from, and the newest `share` of them to stop by; None if there are too few of either."""
    newest = np.argsort(pairs.submit_s, kind="stable")[len(pairs) - int(share * len(pairs)) :]
    if len(newest) < LEAST_PAIRS:
        return pairs, None
    late = pairs.take(np.sort(newest))
    early = pairs.take(pairs.submit_s < late.submit_s.min()).known_before(int(late.submit_s.min()))
    return (early, late) if len(early) >= LEAST_PAIRS else (pairs, None)


def is_look(update: int, updates: int, looks: int) -> bool:
    """Whether to judge the network after update `update` (from 0): `looks` times, evenly, the last at the end."""
    return (update + 1) in np.linspace(0, updates, looks + 1).astype(int)[1:]


def mean_cost(pairs: PairTable, submit: Bools) -> float:
    """Cost of decisions (len(WEIGHTS), d), hours a pair: -`rewards`, the mean over WEIGHTS and pairs."""
    gap = pairs.gap_h[stopping_rows(pairs, submit)]
    weight = np.asarray(WEIGHTS)[:, None]
    return float(-rewards(interruption_h(gap), overlap_h(gap), weight).mean())


@dataclass
class Best:
    """Keeps the state of a network that lost least on the held-out pairs.

    decide: the network's decisions (len(WEIGHTS), d) on them. costs: of every look, hours a pair (`mean_cost`).
    """

    pairs: PairTable | None
    decide: Callable[[torch.nn.Module], Bools]
    costs: list[float] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)

    def look(self, network: torch.nn.Module) -> None:
        """Judge the network as it is now; of equal states the earlier one stays."""
        if self.pairs is None:
            return
        cost = mean_cost(self.pairs, self.decide(network))
        if not self.costs or cost < min(self.costs):
            self.state = copy.deepcopy(network.state_dict())
        self.costs.append(cost)

    def restore(self, network: torch.nn.Module) -> None:
        """Restore the network's best state; without held-out pairs it stays as it is."""
        if self.state:
            network.load_state_dict(self.state)


def q_decisions(inputs: NetworkInputs, pairs: PairTable | None) -> Callable[[torch.nn.Module], Bools]:
    """Make `Best.decide` on those pairs for a network of two values, waiting and submitting."""
    return _decisions(inputs, pairs, lambda found: found[..., 1] >= found[..., 0])


def logit_decisions(inputs: NetworkInputs, pairs: PairTable | None) -> Callable[[torch.nn.Module], Bools]:
    """Make `Best.decide` on those pairs for a network of one logit."""
    return _decisions(inputs, pairs, lambda found: found[..., 0] >= 0.0)


def _decisions(
    inputs: NetworkInputs, pairs: PairTable | None, submits: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[torch.nn.Module], Bools]:
    shown = None if pairs is None else inputs.of_pairs(pairs)

    def decide(network: torch.nn.Module) -> Bools:
        if shown is None:
            return np.zeros((len(WEIGHTS), 0), bool)
        made: Bools = submits(shown.found(network, WEIGHTS)).numpy()
        return made

    return decide
