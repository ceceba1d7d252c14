"""Fit Mirage's foundations and their heads, which its network policies share.

A foundation is a transformer or a mixture of experts, pre-trained on the gap. It decides by its predicted gap (DQN in
the paper), or through a head trained with REINFORCE. As in the released code a head learns with a decision an hour, and
decides as often as the pairs have decisions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import networks, training
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import Histories
from models.provisioning.protocol import PairTable
from traces.arrays import Bools, Float64s
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.files.locks import locked
from traces.units import HOUR_S

if TYPE_CHECKING:
    import torch

TRANSFORMER, MIXTURE = "transformer", "mixture"
# Submit once the predicted gap is at least this, hours; from least to most overlap. The released bound is -0.5.
BOUNDS_H = (6.0, 4.0, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -4.0, -6.0, -9.0, -12.0, -18.0, -24.0)
RELEASED_H = -0.5
MOST_H = 500.0  # a larger prediction is discarded
# Submit once the log-odds of submitting are at least this; the released rule tosses a coin with those odds.
LOGITS = (4.0, 3.0, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -5.0, -6.0)
HEAD_EPOCHS = {TRANSFORMER: 60, MIXTURE: 20}
EPOCHS, EXPERT_EPOCHS = 300, 1000


@dataclass(frozen=True)
class Budget:
    """Training time and size of a foundation."""

    seconds: float = 3600.0  # of processor time
    sizes: Sizes = field(default_factory=Sizes)
    checkpoints: Path | None = None  # a folder; a training stopped there resumes, and both heads share a foundation


def new_network(kind: str, sizes: Sizes, seed: int) -> torch.nn.Module:
    """An untrained foundation, TRANSFORMER or MIXTURE."""
    with repeatable(seed):
        return networks.transformer(sizes) if kind == TRANSFORMER else networks.mixture(sizes)


def pretrained(
    kind: str,
    histories: Histories,
    budget: Budget,
    seed: int,
    epochs: int = EPOCHS,
    expert_epochs: int = EXPERT_EPOCHS,
) -> tuple[torch.nn.Module, dict[str, list[float]]]:
    """Pre-train a foundation on seven probes a pair, within its epochs and the budget, once for each folder.

    Metrics: `held_out_mse_h2` per epoch (the last stage's), `epochs` (of each stage), `seconds` of processor time.
    """
    probes = training.probe_rows(histories.pairs)
    network = new_network(kind, budget.sizes, seed)
    stages = (
        training.transformer_stages(probes, epochs)
        if kind == TRANSFORMER
        else training.mixture_stages(probes, budget.sizes, epochs, expert_epochs)
    )
    fit = partial(training.pretrain, network, histories, stages, sizes=budget.sizes, seed=seed, budget_s=budget.seconds)
    if budget.checkpoints is None:
        errors, place = fit()
    else:
        code = code_digest(training.__name__)
        made_from = digest(histories.pairs.digest, asdict(budget.sizes), epochs, expert_epochs, code)
        path = budget.checkpoints / f"{kind}-{seed}-{made_from[:12]}.npz"
        with locked(budget.checkpoints, path.stem):
            errors, place = fit(checkpoint=path)
    reached = {"epochs": [float(len(one)) for one in errors], "seconds": [place.seconds]}
    return network, {"held_out_mse_h2": errors[-1], **reached}


def reinforced(
    kind: str, network: torch.nn.Module, histories: Histories, seed: int, epochs: int
) -> tuple[Float64s, list[float]]:
    """Train a head on the frozen foundation, with a decision an hour. Returns what `training.reinforce` returns."""
    pairs = hourly(histories.pairs)
    seen = training.looked_at(network, histories, np.flatnonzero(is_hourly(histories.pairs)), kind == MIXTURE)
    return training.reinforce(seen, pairs, epochs=epochs, seed=seed)


def outputs(kind: str, network: torch.nn.Module, histories: Histories) -> Float64s:
    """(d, 1) the predicted gap at each decision, hours; of a mixture (d, 1 + experts), then those of its experts."""
    rows = np.arange(len(histories.last))
    if kind == TRANSFORMER:
        return training.looked_at(network, histories, rows).astype(np.float64)
    each = training.looked_at(network, histories, rows, each=True).astype(np.float64)
    gate = training.looked_at(network.gate, histories, rows)
    return np.concatenate([(gate * each).sum(axis=1, keepdims=True), each], axis=1)


def log_odds(head: Float64s, found: Float64s) -> Float64s:
    """(d,) log-odds of submitting, by a head's weights (2, i + 1) on the last i of `outputs`."""
    logits = found[:, 1 - head.shape[1] :] @ head[:, :-1].T + head[:, -1]
    return np.asarray(logits[:, 1] - logits[:, 0], np.float64)


def within(predicted_h: Float64s) -> Float64s:
    """Replace predictions above MOST_H, so that they never cause a submission."""
    return np.where(predicted_h <= MOST_H, predicted_h, -np.inf)


def is_hourly(pairs: PairTable) -> Bools:
    """(d,) whether a decision is the first of an hour, counted back from the predecessor's end; the end is one too."""
    left = pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s
    hour = -(-left // HOUR_S)
    first = np.ones(len(hour), bool)
    first[1:] = hour[1:] != hour[:-1]
    first[pairs.offset[:-1]] = True
    return first


def hourly(pairs: PairTable) -> PairTable:
    """The same pairs with the decisions of `is_hourly` alone."""
    keep = is_hourly(pairs)
    counts = np.bincount(pairs.pair_of[keep], minlength=len(pairs))
    per_decision = ("decision_s", "successor_start_s", "observations", "ahead", "last_snapshot")
    kept = {name: column[keep] for name in per_decision if len(column := getattr(pairs, name))}
    return replace(pairs, offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), **kept)
