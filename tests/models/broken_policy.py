"""A policy that cannot be fitted, in a module of its own: the process that fits imports it by name."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent.artifact import Artifact
from models.provisioning.policies.reactive import Reactive
from models.provisioning.protocol import PairTable


@dataclass
class Broken(Reactive):
    """Prints, and then raises or ends its process."""

    kills: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        print("of a library", flush=True)
        if self.kills:
            os._exit(7)
        raise ValueError(f"no fit with seed {seed}")
