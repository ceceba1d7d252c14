"""Those of Mirage's eight methods that Baton lacks: fitted on a pair table, judged by their submissions.

There are six rows, `mirage-*`: the foundations with a value head (DQN in the paper) and with a REINFORCE head, and a
random forest and XGBoost on flattened states. (`reactive` and `mirage-average` are in every comparison.) They are peers
and cannot be released, because their state is a day of snapshots, which an artifact does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from models.provisioning.comparison.outcomes import PolicyOutcome
from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import networks, training
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import HISTORY, INPUTS, Histories
from models.provisioning.stopping import stopping_rows
from traces.arrays import Float32s, Float64s, Int64s
from traces.errors import InputError

# Submit once the predicted gap is at least this, hours; from least to most overlap. The released bound is -0.5.
BOUNDS_H = (6.0, 4.0, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -4.0, -6.0, -9.0, -12.0, -18.0, -24.0)
RELEASED_H = -0.5
MOST_H = 500.0  # a larger prediction is discarded
# Submit once the log-odds of submitting are at least this; the released rule tosses a coin with those odds.
LOGITS = (4.0, 3.0, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -5.0, -6.0)
HEAD_EPOCHS = {"transformer": 60, "mixture": 20}
FLAT_ROWS = 64  # states flattened at once


@dataclass(frozen=True)
class FittedPeer:
    """One fitted peer with one seed.

    predict: scores (b,) of rows of a table's histories; larger favours submitting. metrics: series by name.
    """

    name: str
    knob: str
    settings: tuple[float, ...]
    default: float
    predict: Callable[[Histories, Int64s], Float64s]
    metrics: dict[str, list[float]] = field(default_factory=dict)

    def outcome(self, histories: Histories, every: int) -> PolicyOutcome:
        """Its gaps on the table's pairs, deciding at every `every`-th decision counted back from the end."""
        pairs = histories.pairs
        rows = np.flatnonzero((pairs.last[pairs.pair_of] - np.arange(len(pairs.decision_s))) % every == 0)
        submit = np.zeros((len(self.settings), len(pairs.decision_s)), bool)
        submit[:, rows] = self.predict(histories, rows) >= np.asarray(self.settings)[:, None]
        gap = pairs.gap_h[stopping_rows(pairs, submit)]
        return PolicyOutcome(self.name, "peer", self.knob, self.settings, self.default, gap[None])


@dataclass(frozen=True)
class Budget:
    """Training time and size of a foundation."""

    seconds: float = 3600.0
    sizes: Sizes = field(default_factory=Sizes)
    checkpoints: Path | None = None  # a folder


def fit_foundation(kind: str, histories: Histories, budget: Budget, seed: int, every: int) -> list[FittedPeer]:
    """Fit the value row and the REINFORCE row of one foundation, `transformer` or `mixture`.

    Metrics: `held_out_mse_h2` per epoch (the last stage's), `epochs` (of each stage), `seconds`; `reward` per epoch.
    """
    probes = training.probe_rows(histories.pairs)
    with repeatable(seed):
        network = networks.transformer(budget.sizes) if kind == "transformer" else networks.mixture(budget.sizes)
    stages = (
        training.transformer_stages(probes) if kind == "transformer" else training.mixture_stages(probes, budget.sizes)
    )
    checkpoint = None if budget.checkpoints is None else budget.checkpoints / f"{kind}-{seed}.npz"
    errors, place = training.pretrain(
        network,
        histories,
        stages,
        sizes=budget.sizes,
        seed=seed,
        budget_s=budget.seconds,
        checkpoint=checkpoint,
    )
    reached = {"epochs": [float(len(one)) for one in errors], "seconds": [place.seconds]}
    value = FittedPeer(
        f"mirage-{kind}",
        "gap at which it submits, hours",
        BOUNDS_H,
        RELEASED_H,
        lambda seen, rows: within(training.looked_at(network, seen, rows)[:, 0].astype(np.float64)),
        {"held_out_mse_h2": errors[-1], **reached},
    )
    each = kind == "mixture"
    pairs = histories.pairs
    played = np.flatnonzero((pairs.last[pairs.pair_of] - np.arange(len(pairs.decision_s))) % every == 0)
    shown = training.looked_at(network, histories, played, each)
    seen = np.zeros((len(pairs.decision_s), shown.shape[1]), np.float32)
    seen[played] = shown
    weights, rewards = training.reinforce(seen, pairs, every, epochs=HEAD_EPOCHS[kind], seed=seed)

    def odds(other: Histories, rows: Int64s) -> Float64s:
        inputs = training.looked_at(network, other, rows, each).astype(np.float64)
        logits = inputs @ weights[:, :-1].T + weights[:, -1]
        return np.asarray(logits[:, 1] - logits[:, 0], np.float64)

    head = FittedPeer(
        f"mirage-{kind}-reinforce", "log-odds at which it submits", LOGITS, 0.0, odds, {"reward": rewards}
    )
    return [value, head]


def fit_trees(kind: str, histories: Histories, seed: int, trees: int = 100) -> FittedPeer:
    """Fit `forest` (`trees` trees of scikit-learn's defaults) or `xgboost` (its defaults) on flattened states.

    Raises InputError for another kind.
    """
    probes = training.probe_rows(histories.pairs)
    states, gap = flat(histories, probes), histories.pairs.gap_h[probes]
    model: Any
    if kind == "forest":
        from sklearn.ensemble import RandomForestRegressor

        model = RandomForestRegressor(n_estimators=trees, random_state=seed, n_jobs=1)
    elif kind == "xgboost":
        from xgboost import XGBRegressor

        model = XGBRegressor(random_state=seed, n_jobs=1)
    else:
        raise InputError(f"unknown tree model {kind!r} of Mirage; known: forest, xgboost")
    model.fit(states, gap)

    def predict(other: Histories, rows: Int64s) -> Float64s:
        parts = [rows[begin : begin + FLAT_ROWS] for begin in range(0, len(rows), FLAT_ROWS)]
        found = [model.predict(flat(other, part)) for part in parts]
        return within(np.concatenate(found).astype(np.float64)) if found else np.zeros(0)

    return FittedPeer(f"mirage-{kind}", "gap at which it submits, hours", BOUNDS_H, RELEASED_H, predict)


def flat(histories: Histories, rows: Int64s) -> Float32s:
    """(b, HISTORY x INPUTS) one state per row."""
    return histories.at(rows).reshape(len(rows), HISTORY * INPUTS)


def within(predicted_h: Float64s) -> Float64s:
    """Replace predictions above MOST_H, so that they never cause a submission."""
    return np.where(predicted_h <= MOST_H, predicted_h, -np.inf)
