"""The start estimate as a method: that of `squeue --start`, and the same with expected run times.

It is a point: all its quantiles are one number (`models.queue_time.conformal` makes a distribution of it). The
reservation profile is that of `features.start_estimate`. Run times are expected from recently ended jobs, as in Brown
et al. ("Predicting batch queue job wait times", arXiv 2204.13543, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.methods.residuals import Residuals
from models.queue_time.protocol import Forecast, Rows
from traces.units import HOUR_S


@dataclass(frozen=True)
class StartEstimate:
    """A start estimate with its residuals on the rows of the fit, by size class and estimate."""

    name: str
    feature: str
    needs_queue: bool = True
    is_naive: bool = True

    def fit(self, rows: Rows, seed: int) -> Estimated:
        """Compute the residuals; nothing is random."""
        return Estimated(self.feature, Residuals.of(_point_s(rows, self.feature), rows))


@dataclass(frozen=True)
class Estimated:
    """A fitted start estimate."""

    feature: str
    residuals: Residuals

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the estimate with its residuals."""
        return self.residuals.around(_point_s(rows, self.feature), rows)


def _point_s(rows: Rows, feature: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return rows.feature(feature) * HOUR_S


def limits() -> StartEstimate:
    """By the time limits of running and waiting jobs, as in Slurm itself."""
    return StartEstimate("limits", "start_estimate_h")


def expected() -> StartEstimate:
    """By run times expected from recently ended jobs."""
    return StartEstimate("expected", "start_estimate_expected_h")
