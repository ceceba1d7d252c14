"""Baselines without learning that scale one estimate of the wait: submit when setting x estimate >= remaining time.

`average-wait` is the mean wait of the last 100 started jobs at the decision instant. (The baseline of Mirage, SC'23,
takes it when the predecessor starts and keeps it: `models.provisioning.comparison.outcomes.play_frozen_average`.)
`start-estimate` is the estimate of `squeue --start`: a reservation profile on time limits. `start-expected` is the same
profile with run times expected from recently ended jobs instead of the limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.protocol import PairTable

RECENT_WAIT = "recent_wait_mean_h"
AVERAGE_FACTORS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 48.0)


@dataclass
class ScaledEstimate:
    """Submit when setting x feature >= remaining time."""

    name: str
    feature: str
    settings: tuple[float, ...]
    knob: str = "factor on the estimated wait"
    is_learned: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Make the artifact; there is nothing to fit."""
        return new_artifact(self, "estimate-ratio", 1.0, parameters={"feature": self.feature}), {}


def average_wait() -> ScaledEstimate:
    """The mean wait of the last 100 started jobs, times the setting."""
    return ScaledEstimate("average-wait", RECENT_WAIT, AVERAGE_FACTORS)


def start_by_limits() -> ScaledEstimate:
    """The reservation profile's wait by time limits, times the setting."""
    factors = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
    return ScaledEstimate("start-estimate", "start_estimate_h", factors)


def start_by_expected_run_times() -> ScaledEstimate:
    """The reservation profile's wait by expected run times, times the setting."""
    factors = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0)
    return ScaledEstimate("start-expected", "start_estimate_expected_h", factors)
