"""Simulate ahead: play possible futures of the state visible now, and submit when the successor would be due.

The successor is submitted now in K futures (`models.provisioning.futures.recorded`). The lower quartile of its waits
replaces the start
estimate: submit when setting x that wait >= remaining time. Nothing is fitted on pairs. Run times and arrivals are
inferred anew at each decision from what was recorded before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.protocol import PairTable

FACTORS = (0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.5, 5.0)  # from least to most overlap


@dataclass
class SimulateAhead:
    """Submit when setting x the lower quartile of the futures' waits >= remaining time."""

    name: str = "simulate-ahead"
    knob: str = "factor on the lower quartile of the futures' waits"
    settings: tuple[float, ...] = FACTORS
    is_learned: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Make the artifact; there is nothing to fit."""
        parameters = {"feature": "ahead_wait_p25_h"}
        return new_artifact(self, "estimate-ratio", 1.0, parameters=parameters, looks_ahead=True), {}
