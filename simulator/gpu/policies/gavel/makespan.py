"""Gavel with the least makespan: fractions of time on each GPU type with which the last job ends first.

As `gavel`, with another objective (Narayanan et al., OSDI 2020, section 4.2): minimise the largest left / speed. It is
meant for a batch of jobs that have all arrived.

| point | paper | authors' program (c4fa400) | here |
|---|---|---|---|
| makespan | the least | bisection; every job may end up to 5 % later | `precision` 0 or 0.05 |

Other parameters as for `gavel`.
"""

from __future__ import annotations

import numpy as np

from simulator.gpu.algorithms import time_shares
from simulator.gpu.algorithms.time_shares import SharedGpus
from simulator.gpu.policies.gavel.max_min import Gavel
from simulator.gpu.round_policy import View
from simulator.gpu.scheduler import RoundScheduler, check_range
from traces.arrays import Float64s


class GavelMakespan(Gavel):
    """Gavel with the objective of the least makespan."""

    name = "gavel-makespan"

    def __init__(
        self,
        round_s: float = 360.0,
        reset_s: float = 0.0,
        pause_s: float = -1.0,
        heterogeneity: bool = True,
        seed: int = 0,
        precision: float = 0.0,
    ) -> None:
        super().__init__(round_s, reset_s, pause_s, heterogeneity, seed)
        check_range(self.name, below=1.0, precision=precision)
        self.precision = precision

    def _shares(self, view: View, shared: SharedGpus) -> Float64s:
        return time_shares.least_makespan(shared, np.array([job.left_s for job in view.jobs]), self.precision)


SCHEDULER = RoundScheduler(GavelMakespan)
