"""Baselines that fit nothing and scale one feature, an estimate of the wait: submit when a x estimate >= remaining.

`average-wait` is the baseline of Mirage (SC'23): the mean wait of the last 100 jobs started, but taken at the decision
instant (the published one is frozen when the predecessor starts and three times worse). `start-estimate` is what
`squeue --start` shows, a reservation profile on time limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.learning.manifest import new_artifact
from models.protocol import PairTable


@dataclass
class ScaledEstimate:
    """Submit when setting x feature >= remaining time."""

    name: str
    feature: str
    settings: tuple[float, ...]
    knob: str = "factor on the estimated wait"
    is_learned: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Nothing to fit."""
        return new_artifact(self, "estimate-ratio", 1.0, parameters={"feature": self.feature}), {}


def average_wait() -> ScaledEstimate:
    """The mean wait of the last 100 jobs started, times a."""
    factors = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 48.0)
    return ScaledEstimate("average-wait", "recent_wait_mean_h", factors)


def start_estimate() -> ScaledEstimate:
    """The reservation profile's wait, times a."""
    factors = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
    return ScaledEstimate("start-estimate", "start_estimate_h", factors)
