"""Offline pre-training of Mirage's foundations from probes, and its REINFORCE heads.

The numbers are those of the released code. A probe is one decision of a pair with its gap in hours; each pair has
seven, evenly spaced. The loss is the squared error and the optimiser Adam. A third of the pairs is held out, with all
their probes. Each epoch draws its order and its dropout from seed and epoch alone, so an interrupted training resumes
with the same result.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import checkpoints
from models.provisioning.mirage.networks import Sizes, training_device
from models.provisioning.mirage.snapshots import Histories
from models.provisioning.protocol import PairTable
from traces.arrays import Float32s, Int64s

if TYPE_CHECKING:
    import torch


PROBES = 7
TRAINED = 2 / 3  # share of a stage's pairs that it learns from
EXPERT_SHARE = 0.05  # share of the probes, in order of time, that one expert sees
GATE_SHARE = 0.8  # share of the probes, the first, that the whole mixture sees
DISCOUNT = 0.99
ENTROPY = 0.1
EPISODES = 32  # an epoch
HEAD_RATE = 0.01
BATCH_ROWS = 256  # states evaluated at once


@dataclass(frozen=True)
class Stage:
    """A stage of pre-training: the weights that learn, and their probes."""

    part: str  # name of the module within the network; empty: all of it
    rows: Int64s  # of the table
    epochs: int
    rate: float  # of Adam
    batch: int


@dataclass(frozen=True)
class Place:
    """Progress of a pre-training: the epochs done in the present stage, and the processor time used by all."""

    stage: int = 0
    epoch: int = 0
    seconds: float = 0.0


def probe_rows(pairs: PairTable) -> Int64s:
    """(PROBES p,) rows of the decisions nearest to evenly spaced instants of each pair, in order of submission."""
    rows = []
    for pair in np.argsort(pairs.submit_s, kind="stable"):
        here = np.arange(pairs.offset[pair], pairs.offset[pair + 1])
        wanted = np.linspace(pairs.predecessor_start_s[pair] + 60, pairs.predecessor_end_s[pair] - 60, PROBES)
        rows.append(here[np.abs(pairs.decision_s[here] - wanted[:, None]).argmin(axis=1)])
    return np.concatenate(rows)


def transformer_stages(rows: Int64s, epochs: int = 300) -> list[Stage]:
    """One stage: the transformer learns from all probes at once."""
    return [Stage("", rows, epochs, 1e-4, 128)]


def mixture_stages(rows: Int64s, sizes: Sizes, epochs: int = 300, expert_epochs: int = 1000) -> list[Stage]:
    """Each expert learns from its own twentieth of the probes, then the whole mixture from the first 80 %."""
    each = max(int(EXPERT_SHARE * len(rows)), 1)
    stages = [
        Stage(f"experts.{i}", rows[i * each : (i + 1) * each], expert_epochs, 1e-5, 64) for i in range(sizes.experts)
    ]
    return [*stages, Stage("", rows[: max(int(GATE_SHARE * len(rows)), 1)], epochs, 1e-5, 128)]


def pretrain(
    network: torch.nn.Module,
    histories: Histories,
    stages: Sequence[Stage],
    *,
    sizes: Sizes,
    seed: int,
    budget_s: float,
    checkpoint: Path | None = None,
) -> tuple[list[list[float]], Place]:
    """Learn the gap in hours; each stage ends at its epochs or at its share of `budget_s`, the same for all.

    `budget_s` is processor time. Resumes from `checkpoint` if that file exists, and writes it after each epoch. Returns
    the mean squared error on the probes of the held-out pairs (h^2), a list per stage and a number per epoch, and the
    final progress. Raises what `checkpoints.load` raises. Uses a GPU if there is one; dropout then draws other numbers.
    """
    import torch

    network.to(training_device())
    place, made_for = Place(), {"sizes": asdict(sizes), "seed": seed}
    moments: checkpoints.Moments = {}
    errors: list[list[float]] = [[] for _ in stages]
    if checkpoint is not None and checkpoint.exists():
        meta, moments = checkpoints.load(checkpoint, network, made_for)
        place = Place(int(meta["stage"]), int(meta["epoch"]), float(meta["seconds"]))
        errors = meta["errors"]
    for number in range(place.stage, len(stages)):
        stage = stages[number]
        until_s = budget_s * (number + 1) / len(stages)
        part = network.get_submodule(stage.part)
        adam = torch.optim.Adam(part.parameters(), stage.rate)
        if moments:
            checkpoints.restore(adam, moments)
            moments = {}
        while place.epoch < stage.epochs and place.seconds < until_s:
            began = time.process_time()
            errors[number].append(_epoch(part, adam, histories, stage, (seed, number, place.epoch)))
            place = Place(number, place.epoch + 1, place.seconds + time.process_time() - began)
            if checkpoint is not None:
                checkpoints.save(checkpoint, network, adam, {**made_for, **asdict(place), "errors": errors})
        if number + 1 < len(stages):
            place = Place(number + 1, 0, place.seconds)
    return errors, place


def _epoch(
    part: torch.nn.Module, adam: torch.optim.Adam, histories: Histories, stage: Stage, key: tuple[int, int, int]
) -> float:
    """Make one pass over the training probes. Returns the mean squared error on the held-out ones, h^2, or NaN."""
    import torch

    seed, number, epoch = key
    pair_of = histories.pairs.pair_of[stage.rows]
    shuffled = np.random.default_rng([seed, number]).permutation(np.unique(pair_of))  # the same split in each epoch
    is_learned = np.isin(pair_of, shuffled[: max(int(TRAINED * len(shuffled)), 1)])
    order = np.random.default_rng([seed, number, epoch]).permutation(stage.rows[is_learned])
    gap_h, device = histories.pairs.gap_h, next(part.parameters()).device
    with repeatable(int(np.random.default_rng([seed, number, epoch, 1]).integers(2**31))):
        part.train()
        for begin in range(0, len(order), stage.batch):
            rows = order[begin : begin + stage.batch]
            found = part(torch.from_numpy(histories.at(rows)).to(device))[:, 0]
            loss = torch.nn.functional.mse_loss(found, torch.from_numpy(gap_h[rows].astype(np.float32)).to(device))
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
    held_out = stage.rows[~is_learned]
    if not len(held_out):
        return float("nan")
    return float(np.mean((looked_at(part, histories, held_out)[:, 0] - gap_h[held_out]) ** 2))


def looked_at(network: Any, histories: Histories, rows: Int64s, each: bool = False) -> Float32s:
    """(b, 1) the network's outputs for the states at those rows; with `each`, (b, experts) of a mixture's experts."""
    import torch

    network.eval()
    found, device = [], next(network.parameters()).device
    with torch.no_grad():
        for begin in range(0, len(rows), BATCH_ROWS):
            states = torch.from_numpy(histories.at(rows[begin : begin + BATCH_ROWS])).to(device)
            found.append((network.each(states)[:, :, 0] if each else network(states)).cpu().numpy())
    return np.concatenate(found) if found else np.zeros((0, 1), np.float32)


def reinforce(
    seen: Float32s, pairs: PairTable, *, epochs: int, seed: int, rate: float = HEAD_RATE
) -> tuple[NDArray[np.float64], list[float]]:
    """Train the head on a frozen foundation: REINFORCE with a running mean of rewards as baseline and an entropy bonus.

    seen: (d, i) the foundation's outputs at each decision of the table; all are played. Reward: -60 |gap in hours|, at
    the submission. Returns the weights (2, i + 1) of wait and submit, the last column their bias, and the mean reward
    of each epoch.
    """
    import torch

    rng = np.random.default_rng([seed, 2])
    with repeatable(seed):
        head = torch.nn.Linear(seen.shape[1], 2)
    adam = torch.optim.Adam(head.parameters(), rate)
    gap_h, rewards = pairs.gap_h, []
    baseline, episodes = 0.0, 0
    for _ in range(epochs):
        losses, earned = [], []
        for pair in rng.integers(len(pairs), size=EPISODES).tolist():
            rows = np.arange(pairs.offset[pair], pairs.offset[pair + 1])
            logits = head(torch.from_numpy(seen[rows]))
            chances = torch.log_softmax(logits, dim=1)
            acts = rng.random(len(rows)) < chances[:, 1].detach().exp().numpy()
            acts[-1] = True  # at the end there is no choice
            played = int(np.argmax(acts)) + 1
            reward = -60.0 * abs(float(gap_h[rows[played - 1]]))
            returns = torch.from_numpy(
                (reward * DISCOUNT ** np.arange(played - 1, -1, -1) - baseline).astype(np.float32)
            )
            taken = chances[torch.arange(played), torch.from_numpy(acts[:played].astype(np.int64))]
            entropy = -(chances[:played].exp() * chances[:played]).sum(dim=1)
            losses.append(-(taken * returns + ENTROPY * entropy).sum())
            episodes += 1
            baseline += (reward - baseline) / episodes
            earned.append(reward)
        adam.zero_grad()
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
        adam.step()
        rewards.append(float(np.mean(earned)))
    weights = np.concatenate([head.weight.detach().numpy(), head.bias.detach().numpy()[:, None]], axis=1)
    return weights.astype(np.float64), rewards
