"""Mirage's eight methods as far as Baton has none of them: fitted on a pair table, judged by where they submit.

Six rows, `mirage-*`: the foundations with a value head (what its paper calls DQN) and with a REINFORCE head, a random
forest and XGBoost on flattened states. (`reactive` and `mirage-average` stand in every comparison.) They are peers:
none can be released, because their state is a day of snapshots that an artifact does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.comparison.outcomes import Outcome
from models.learning.networks import repeatable
from models.mirage import networks, training
from models.mirage.networks import Sizes
from models.mirage.snapshots import HISTORY, INPUTS, Histories
from models.stopping import stopping_rows
from traces.errors import InputError

Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

# Submit once the predicted gap is at least this, hours; from least to most overlap. The released bound is -0.5.
BOUNDS_H = (6.0, 4.0, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -4.0, -6.0, -9.0, -12.0, -18.0, -24.0)
RELEASED_H = -0.5
MOST_H = 500.0  # a prediction above it is none
# Submit once the log-odds of submitting are at least this; the released rule is a coin of those odds.
LOGITS = (4.0, 3.0, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -5.0, -6.0)
HEAD_EPOCHS = {"transformer": 60, "mixture": 20}
FLAT_ROWS = 64  # states flattened at once


@dataclass(frozen=True)
class Fitted:
    """One peer with one seed, ready to judge states.

    predict: scores (b,) of rows of a table's histories; larger speaks for submitting. metrics: series by name.
    """

    name: str
    knob: str
    settings: tuple[float, ...]
    default: float
    predict: Callable[[Histories, Int64s], Float64s]
    metrics: dict[str, list[float]] = field(default_factory=dict)

    def outcome(self, histories: Histories, every: int) -> Outcome:
        """Its gaps on the table's pairs, asked at every `every`-th decision counted back from the end."""
        pairs = histories.pairs
        rows = np.flatnonzero((pairs.last[pairs.pair_of] - np.arange(len(pairs.decision_s))) % every == 0)
        submit = np.zeros((len(self.settings), len(pairs.decision_s)), bool)
        submit[:, rows] = self.predict(histories, rows) >= np.asarray(self.settings)[:, None]
        gap = pairs.gap_h[stopping_rows(pairs, submit)]
        return Outcome(self.name, "peer", self.knob, self.settings, self.default, gap[None])


@dataclass(frozen=True)
class Budget:
    """How long a foundation is trained, and how large it is."""

    seconds: float = 3600.0
    sizes: Sizes = field(default_factory=Sizes)
    checkpoints: Path | None = None  # a folder


def fit_foundation(kind: str, histories: Histories, budget: Budget, seed: int, every: int) -> list[Fitted]:
    """The value row and the REINFORCE row of one foundation, `transformer` or `mixture`.

    Metrics: `held_out_mse_h2` an epoch (the last stage's), `epochs` (of each stage), `seconds`; `reward` an epoch.
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
    value = Fitted(
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

    head = Fitted(f"mirage-{kind}-reinforce", "log-odds at which it submits", LOGITS, 0.0, odds, {"reward": rewards})
    return [value, head]


def fit_trees(kind: str, histories: Histories, seed: int, trees: int = 100) -> Fitted:
    """`forest` (`trees` trees of scikit-learn's defaults) or `xgboost` (its defaults), on flattened states.

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
        raise InputError(f"unknown trees {kind!r} of Mirage; known: forest, xgboost")
    model.fit(states, gap)

    def predict(other: Histories, rows: Int64s) -> Float64s:
        parts = [rows[begin : begin + FLAT_ROWS] for begin in range(0, len(rows), FLAT_ROWS)]
        found = [model.predict(flat(other, part)) for part in parts]
        return within(np.concatenate(found).astype(np.float64)) if found else np.zeros(0)

    return Fitted(f"mirage-{kind}", "gap at which it submits, hours", BOUNDS_H, RELEASED_H, predict)


def flat(histories: Histories, rows: Int64s) -> Float32s:
    """(b, HISTORY x INPUTS) states in one row each."""
    return histories.at(rows).reshape(len(rows), HISTORY * INPUTS)


def within(predicted_h: Float64s) -> Float64s:
    """Predictions above MOST_H are never a reason to submit."""
    return np.where(predicted_h <= MOST_H, predicted_h, -np.inf)
