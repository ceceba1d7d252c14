"""Those of Mirage's eight methods that Baton lacks, as rows of a table: judged by their submissions.

There are six rows, `mirage-*`: the foundations with a value head (DQN in the paper) and with a REINFORCE head, and a
random forest and XGBoost on flattened states. (`reactive` and `mirage-average` are in every comparison.) `baton train`
can name the networks (`models.provisioning.mirage.policies`); here both heads share one foundation, a training resumes
from its checkpoint, and the trees are fitted too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.provisioning.comparison.outcomes import PolicyOutcome
from models.provisioning.mirage import foundations, training
from models.provisioning.mirage.foundations import BOUNDS_H, LOGITS, RELEASED_H, Budget, within
from models.provisioning.mirage.snapshots import HISTORY, INPUTS, Histories
from models.provisioning.stopping import stopping_rows
from traces.arrays import Float32s, Float64s, Int64s
from traces.errors import InputError

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


def fit_foundation(kind: str, histories: Histories, budget: Budget, seed: int, every: int) -> list[FittedPeer]:
    """Fit the value row and the REINFORCE row of one foundation, `transformer` or `mixture`.

    Metrics: those of `foundations.pretrained`, and `reward` per epoch.
    """
    network, metrics = foundations.pretrained(kind, histories, budget, seed)
    value = FittedPeer(
        f"mirage-{kind}",
        "gap at which it submits, hours",
        BOUNDS_H,
        RELEASED_H,
        lambda seen, rows: foundations.gaps_h(network, seen, rows),
        metrics,
    )
    weights, rewards = foundations.reinforced(kind, network, histories, every, seed)
    head = FittedPeer(
        f"mirage-{kind}-reinforce",
        "log-odds at which it submits",
        LOGITS,
        0.0,
        lambda seen, rows: foundations.log_odds(kind, network, weights, seen, rows),
        {"reward": rewards},
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
