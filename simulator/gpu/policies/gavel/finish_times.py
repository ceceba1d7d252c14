"""Gavel with finish-time fairness: each job should end no later than with an equal part of the cluster for itself.

As `gavel`, with the objective of Themis (Mahajan et al., NSDI 2020) in Gavel's form (Narayanan et al., OSDI 2020,
section 4.2). It minimises the largest rho = (age + left / speed) / (time alone). The time alone is that of the whole
job on equal parts of the cluster. Past work counts with the parts at its time, the rest with the present ones.

Paper and program agree; the test is that of `gavel`. Parameters as there.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from simulator.gpu.algorithms import time_shares
from simulator.gpu.algorithms.time_shares import SharedGpus
from simulator.gpu.policies.gavel.max_min import Gavel
from simulator.gpu.round_policy import View
from simulator.gpu.scheduler import RoundScheduler
from traces.arrays import Float64s


class GavelFinishTimes(Gavel):
    """Gavel with the objective of finish-time fairness."""

    name = "gavel-ftf"

    @cached_property
    def _alone(self) -> dict[int, tuple[float, float, float]]:
        """Job -> seconds alone so far, and its work left and speed alone at that instant."""
        return {}

    def _shares(self, view: View, shared: SharedGpus) -> Float64s:
        speed = time_shares.isolated_speed(shared)
        before, self._alone = self._alone, {}
        for job, alone in zip(view.jobs, speed.tolist(), strict=True):
            passed_s, left_s, slow = before.get(job.number, (0.0, job.run_s, 1.0))
            done_s = (left_s - job.left_s) / slow if job.number in before else 0.0
            self._alone[job.number] = (passed_s + done_s, job.left_s, alone)
        left = np.array([job.left_s for job in view.jobs])
        passed = np.array([self._alone[job.number][0] for job in view.jobs])
        age_s = np.array([view.now_s - job.submit_s for job in view.jobs])
        return time_shares.finish_time_fair(shared, age_s, left, passed + left / speed)


SCHEDULER = RoundScheduler(GavelFinishTimes)
