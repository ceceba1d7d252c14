"""Gavel: max-min fair fractions of time on each GPU type by a linear programme, received round by round.

Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads" (OSDI 2020). The
programme maximises the smallest normalised speed of a job, weighted by its GPUs (`algorithms.time_shares`). Every
round, the jobs that received the least of their fractions run (`policies.gavel.share_rounds`). Jobs never change their
number of GPUs.

| point | paper | authors' program (c4fa400) | here |
|---|---|---|---|
| rounds | 6 min | 360 s | `round_s` |
| new fractions | when a job arrives or ends | also at least 1,920 s after the last | `reset_s`, 0 or 1920 |
| GPU types | speed on each is known | also without: all as fast as the reference | `heterogeneity`, 1 or 0 |
| order of the types in a round | open | fastest first; without speeds, at random each round | as the program; `seed` |
| several optimal allocations | open | where the solver ends | the analytic centre |
| stopping and moving a job | costs a restart | free in the simulator | `pause_s` 0: free; -1: the model's restart |
| packing of two jobs | an option | other policies | not here |

Test: `tests/simulator/gpu/test_gavel_references.py` compares with the authors' program.

Our reading: the speed of a job on a type is that on the fewest nodes of the type. Speeds follow from the profile and
are known; Gavel can estimate them. All jobs have the same weight. A job without profile is equally fast everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.gpu.algorithms import time_shares
from simulator.gpu.algorithms.time_shares import SharedGpus
from simulator.gpu.policies.gavel.share_rounds import ShareRounds, fastest_first
from simulator.gpu.round_policy import Placed, View
from simulator.gpu.scheduler import RoundScheduler, check_seconds
from traces.arrays import Float64s


class Gavel:
    """Gavel with the objective of max-min fairness. Other objectives override `_shares`."""

    name = "gavel"

    def __init__(
        self,
        round_s: float = 360.0,
        reset_s: float = 0.0,
        pause_s: float = -1.0,
        heterogeneity: bool = True,
        seed: int = 0,
    ) -> None:
        check_seconds(self.name, round_s=round_s, reset_s=reset_s)
        self.round_s, self.heterogeneity = round_s, heterogeneity
        self.pause_s: float | None = None if pause_s < 0.0 else pause_s
        self._rounds = ShareRounds(round_s, reset_s)
        self._shuffle = np.random.default_rng(seed)

    @property
    def guests(self) -> Mapping[int, int]:
        """As `simulator.gpu.round_policy.RoundPolicy`: no job shares its GPUs."""
        return self._rounds.guests

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        if self._rounds.is_due(view):
            shared = self._shared(view)
            members = [(job.number,) for job in view.jobs]
            self._rounds.reset(members, shared.speed, self._shares(view, shared), view.now_s)
        if self.heterogeneity:
            order = fastest_first(self._rounds.speeds)
        else:
            order = self._shuffle.permutation(len(self._rounds.capacity)).tolist()
        return self._rounds.place(view, order)

    def _shared(self, view: View) -> SharedGpus:
        speed = np.array([self._rounds.speeds[job.number] for job in view.jobs])
        if not self.heterogeneity:
            speed = np.where(speed > 0.0, 1.0, 0.0)
        return SharedGpus(speed, np.array([float(job.gpus) for job in view.jobs]), self._rounds.capacity)

    def _shares(self, view: View, shared: SharedGpus) -> Float64s:
        """Return the fractions of time of each present job, (jobs, types)."""
        return time_shares.max_min(shared)


SCHEDULER = RoundScheduler(Gavel)
