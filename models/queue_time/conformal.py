"""Conformal calibration by group: move quantiles so that, on held-out rows, each covers what its level promises.

A point forecast becomes a distribution by the residuals of held-out rows (split conformal prediction; Lei et al.,
"Distribution-free predictive inference for regression", JASA 113(523), 2018, section 2.2), on the logarithm of one
second more than the wait. A distribution is moved by the levels at which its quantiles really covered (Chernozhukov,
Wuthrich and Zhu, "Distributional conformal prediction", PNAS 118(48), 2021, section 2). Groups are partition x size, as
in Mondrian conformal prediction (Vovk, Gammerman and Shafer, 2005, section 4.5). A group of few rows is shrunk towards
all rows, and all rows towards the forecast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.moves import CalibratedLevels
from models.queue_time.protocol import LEVELS, FittedMethod, Forecast, Method, Rows
from traces.arrays import Float64s, Int64s

HELD_BACK = 0.25  # share of the rows, the newest
GROUP_PRIOR_ROWS = 100.0  # rows of a group that weigh as much as all the others
ALL_PRIOR_ROWS = 400.0  # rows that weigh as much as the forecast itself
LEAST_ROWS = 40  # to hold some out; with fewer the forecast is not moved


def ranks(forecast: Forecast, wait_s: Int64s) -> Float64s:
    """(n,) the position of each wait in its forecast, 0 to 1: uniform if the forecast is calibrated.

    A wait that equals several quantiles lies at the middle of their levels.
    """
    wait = wait_s.astype(np.float64)[:, None]
    below, upto = (forecast.quantiles_s < wait).sum(axis=1), (forecast.quantiles_s <= wait).sum(axis=1)
    return np.asarray((below + upto + 1) / 2.0 / (len(LEVELS) + 1), np.float64)


def calibrated_levels(forecast: Forecast, rows: Rows) -> CalibratedLevels:
    """Fit the levels on a forecast of rows that the forecast was not fitted on."""
    rank = ranks(forecast, rows.wait_s)
    all_rows = _levels(rank, LEVELS, ALL_PRIOR_ROWS)
    group = rows.group
    by_group = {int(one): _levels(rank[group == one], all_rows, GROUP_PRIOR_ROWS) for one in np.unique(group)}
    return CalibratedLevels(by_group, all_rows)


def _levels(rank: Float64s, prior: Float64s, prior_rows: float) -> Float64s:
    """(levels,) the quantiles of the ranks, shrunk towards `prior`, which weighs as much as `prior_rows` rows."""
    if not len(rank):
        return prior
    own = np.quantile(rank, LEVELS)
    weight = len(rank) / (len(rank) + prior_rows)
    return np.asarray(weight * own + (1 - weight) * prior, np.float64)


@dataclass(frozen=True)
class Calibrated:
    """A method whose quantiles are moved by their coverage on the newest rows of the fit."""

    method: Method

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name

    def fit(self, rows: Rows, seed: int) -> FittedMethod:
        """Fit on the older rows, learn the moves on the newer ones, then fit on all rows."""
        whole = self.method.fit(rows, seed)
        if len(rows) < LEAST_ROWS:
            return whole
        cut = int(len(rows) * (1 - HELD_BACK))
        known = rows.submit_s + rows.wait_s < rows.submit_s[cut]
        older = np.zeros(len(rows), bool)
        older[:cut] = known[:cut]
        held = rows.take(slice(cut, None))
        if older.sum() < LEAST_ROWS:
            return whole
        fitted_on_older = self.method.fit(rows.take(older), seed)
        return CalibratedMethod(whole, calibrated_levels(fitted_on_older.forecast(held), held))


@dataclass(frozen=True)
class CalibratedMethod:
    """A fitted method with calibrated quantile levels."""

    fitted: FittedMethod
    moved: CalibratedLevels

    def forecast(self, rows: Rows) -> Forecast:
        """The method's forecast, with moved quantiles."""
        return self.moved(self.fitted.forecast(rows), rows.group)
