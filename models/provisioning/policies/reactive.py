"""The baseline policy: submit when the predecessor ends. It never overlaps, and every wait is an interruption."""

from __future__ import annotations

from dataclasses import dataclass

from agent.artifact import Artifact
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.protocol import PairTable


@dataclass
class Reactive:
    """Constant lead of zero hours."""

    name: str = "reactive"
    knob: str = "lead, h"
    settings: tuple[float, ...] = (0.0,)
    is_learned: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Make the artifact; there is nothing to fit."""
        return new_artifact(self, "constant-lead", 0.0), {}
