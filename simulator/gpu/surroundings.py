"""What surrounds the clock of rounds: who enters the queue, and the GPUs in service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Surroundings:
    """A cluster on its own: jobs enter the queue as they arrive, and all GPUs are in service.

    `simulator.gpu.events.recorded_machine.RecordedSurroundings` is that of a record.
    """

    change_s = np.inf  # next change, s from the origin
    outside = 0  # number of jobs that wait outside the queue
    may_strand = False  # whether a job may wait for ever

    def entering(self, _now_s: float, come: Sequence[int], _ended: Sequence[int]) -> Sequence[int]:
        """Return the jobs that enter the queue, given those that arrived and ended since the last call, by number."""
        return come

    def machine(self, machine: Any, _held: float) -> Any:
        """Return the GpuMachine that a policy may use now, given that of the last call and the GPUs that jobs hold."""
        return machine
