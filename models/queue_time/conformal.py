"""Conformal calibration by group: quantiles moved so that, on rows held back, each covered what its level says.

A point forecast becomes a distribution by the residuals of rows held back (split conformal prediction; Lei et al.,
"Distribution-free predictive inference for regression", JASA 113(523), 2018, section 2.2), on the logarithm of one
second more than the wait. A distribution is moved by the levels at which its quantiles really covered (Chernozhukov,
Wuthrich and Zhu, "Distributional conformal prediction", PNAS 118(48), 2021, section 2). Groups are partition x size, as
Mondrian conformal prediction has them (Vovk, Gammerman and Shafer, 2005, section 4.5); a group of few rows leans on
all, and all of them on what the forecast said.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.moves import Moved
from models.queue_time.protocol import LEVELS, Fitted, Float64s, Forecast, Int64s, Method, Rows

HELD_BACK = 0.25  # of the rows, the newest
GROUP_LEANS = 100.0  # rows of a group that weigh as much as all the others
ALL_LEAN = 400.0  # rows that weigh as much as the forecast's own word
LEAST_ROWS = 40  # of which some are held back; with fewer a forecast stays as it is


def ranks(forecast: Forecast, wait_s: Int64s) -> Float64s:
    """(n,) where each wait lies in its forecast, 0 to 1: uniform where the forecast is calibrated.

    A wait that equals several quantiles lies at the middle of their levels.
    """
    wait = wait_s.astype(np.float64)[:, None]
    below, upto = (forecast.quantiles_s < wait).sum(axis=1), (forecast.quantiles_s <= wait).sum(axis=1)
    return np.asarray((below + upto + 1) / 2.0 / (len(LEVELS) + 1), np.float64)


def moved(forecast: Forecast, rows: Rows) -> Moved:
    """Fitted on a forecast of rows that it was not fitted on."""
    rank = ranks(forecast, rows.wait_s)
    everybody = _levels(rank, LEVELS, ALL_LEAN)
    group = rows.group
    return Moved({int(one): _levels(rank[group == one], everybody, GROUP_LEANS) for one in np.unique(group)}, everybody)


def _levels(rank: Float64s, prior: Float64s, leans: float) -> Float64s:
    """(levels,) the quantiles of the ranks, leaning on `prior` as `leans` rows would."""
    if not len(rank):
        return prior
    own = np.quantile(rank, LEVELS)
    weight = len(rank) / (len(rank) + leans)
    return np.asarray(weight * own + (1 - weight) * prior, np.float64)


@dataclass(frozen=True)
class Calibrated:
    """A method whose quantiles are moved by what they covered on the newest rows of the fit."""

    method: Method

    @property
    def name(self) -> str:
        """That of the method."""
        return self.method.name

    def fit(self, rows: Rows, seed: int) -> Fitted:
        """Fit on the older rows, learn the moves on the newer ones, then fit on all."""
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
        return Both(whole, moved(self.method.fit(rows.take(older), seed).forecast(held), held))


@dataclass(frozen=True)
class Both:
    """A fitted method, and how its quantiles move."""

    fitted: Fitted
    moved: Moved

    def forecast(self, rows: Rows) -> Forecast:
        """The method's forecast, moved."""
        return self.moved(self.fitted.forecast(rows), rows.group)
