"""Mirage's random forest and XGBoost as policies: they predict the gap from the flattened day, and are never released.

The forest has the released parameters. Those of XGBoost were not released; they are the library's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agent.artifact import Artifact, check_manifest
from agent.trees import TREES, check_trees, walked
from models.provisioning.learning.manifest import new_manifest
from models.provisioning.learning.trees import without_trees
from models.provisioning.mirage import training
from models.provisioning.mirage.artifact import DayArtifact
from models.provisioning.mirage.foundations import BOUNDS_H, RELEASED_H, within
from models.provisioning.mirage.snapshots import HISTORY, INPUTS, VERSION, Histories
from models.provisioning.policies.forest import from_sklearn
from models.provisioning.policies.xgboost import from_xgboost
from models.provisioning.protocol import PairTable
from traces.arrays import Float32s, Float64s, Int64s

KIND = "mirage-trees"
FLAT_ROWS = 64  # states flattened at once


class TreesArtifact(DayArtifact):
    """Trees whose sum is the predicted gap in hours. Raises ValueError, one line, if the parts are inconsistent."""

    def __post_init__(self) -> None:
        check_manifest(self.manifest)
        if self.manifest["kind"] != KIND or set(self.arrays) != set(TREES):
            raise ValueError(f"not a fit of kind {KIND} with the arrays {', '.join(TREES)}")
        if self.parameters.get("state_version") != VERSION:
            raise ValueError(f"state version {self.parameters.get('state_version')!r}; this program reads {VERSION}")
        check_trees(self.arrays, HISTORY * INPUTS)

    def favours(self, histories: Histories) -> Float64s:
        """(d,) predicted gaps in hours."""
        every = np.arange(len(histories.last))
        parts = np.split(every, np.arange(FLAT_ROWS, len(every), FLAT_ROWS))
        return within(np.concatenate([walked(self.arrays, flat(histories, part)).sum(axis=1) for part in parts]))


@dataclass
class MirageTrees:
    """A random forest, or gradient boosting, on seven probes a pair."""

    name: str
    trees: int = 100
    knob: str = "gap at which it submits, hours"
    settings: tuple[float, ...] = BOUNDS_H
    is_learned: bool = True

    def fit(self, pairs: PairTable, seed: int) -> tuple[TreesArtifact, dict[str, list[float]]]:
        """Fit the trees. Metrics: mean squared error on the probes fitted, h^2. Raises InputError without snapshots."""
        histories = Histories.of_table(pairs)
        probes = training.probe_rows(pairs)
        states, gap_h = flat(histories, probes), pairs.gap_h[probes]
        if self.name == "mirage-forest":
            from sklearn.ensemble import RandomForestRegressor

            model = RandomForestRegressor(n_estimators=self.trees, random_state=seed, n_jobs=1).fit(states, gap_h)
            arrays = from_sklearn(model)
        else:
            from xgboost import XGBRegressor

            model = XGBRegressor(n_estimators=self.trees, random_state=seed, n_jobs=1).fit(states, gap_h)
            arrays = from_xgboost(model.get_booster())
        error = float(np.mean((model.predict(states) - gap_h) ** 2))
        manifest = new_manifest(self, KIND, RELEASED_H, {"state_version": VERSION})
        return TreesArtifact(manifest, arrays), {"fit_mse_h2": [error]}

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """Remove all trees: a predicted gap of 0."""
        return without_trees(artifact)


def flat(histories: Histories, rows: Int64s) -> Float32s:
    """(b, HISTORY x INPUTS) one state per row."""
    return histories.at(rows).reshape(len(rows), HISTORY * INPUTS)


def forest() -> MirageTrees:
    """scikit-learn's random forest."""
    return MirageTrees("mirage-forest")


def xgboost() -> MirageTrees:
    """XGBoost."""
    return MirageTrees("mirage-xgboost")
