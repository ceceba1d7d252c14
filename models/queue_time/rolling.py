"""Correct forecasts as outcomes become known: rolling conformal prediction for a released model.

A fit holds what was known at its date and stays as it is; a correction on top of it moves. At each submission, consider
the jobs that the same model forecast before and that have started since. The newest WINDOW of those with a predicted
median of the same class count. Each quantile is moved by its own conformal quantile of their residuals (Lei et al.,
"Distribution-free predictive inference for regression", JASA 113(523), 2018, section 2.2), on the logarithm of one
second more than the wait. Using only the newest outcomes allows for waits that are not exchangeable (Barber et al.,
"Conformal prediction beyond exchangeability", Annals of Statistics 51(2), 2023, with weights of 0 and 1). With few
outcomes, the correction is shrunk towards the forecast.

Adaptive conformal inference (Gibbs and Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021)
was tried and not adopted (docs/decisions/0030-waits-as-distributions.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.methods.residuals import CUTS_S
from models.queue_time.protocol import LEVELS, FittedMethod, Forecast, Method, Rows, forecast_of
from traces.arrays import Float64s, Int64s

WINDOW = 500  # newest outcomes of a class that count; chosen on January of the A100 trace
PRIOR_OUTCOMES = 100.0  # outcomes that weigh as much as the forecast itself


@dataclass(frozen=True)
class Rolling:
    """A method with corrected forecasts; its fit is that of the method."""

    method: Method

    @property
    def name(self) -> str:
        """The method's name, marked as rolling."""
        return f"{self.method.name}, rolling"

    @property
    def is_naive(self) -> bool:
        """Never, because differences are to methods that learn nothing."""
        return False

    @property
    def needs_queue(self) -> bool:
        """As for the method."""
        return self.method.needs_queue

    def fit(self, rows: Rows, seed: int) -> FittedMethod:
        """Fit the method; the correction is not part of a fit."""
        return self.method.fit(rows, seed)


def rolled(forecast: Forecast, submit_s: Int64s, wait_s: Int64s) -> Forecast:
    """The forecast of n jobs by rising submission (epoch s), each corrected by those that had started before it.

    The wait of a job (s) is used only for jobs submitted after its start. The probability of a short wait does not
    change.
    """
    start_s = submit_s + wait_s
    residual, kind = _residuals(forecast, wait_s), classes(forecast)
    out = np.log1p(forecast.quantiles_s)
    for one in np.unique(kind):
        mine = np.flatnonzero(kind == one)
        by_start = mine[np.argsort(start_s[mine], kind="stable")]
        known = np.searchsorted(start_s[by_start], submit_s[mine])
        for count in np.unique(known[known > 0]):
            newest = by_start[max(count - WINDOW, 0) : count]
            out[mine[known == count]] += _moves(residual[newest])
    return forecast_of(np.expm1(out), forecast.p_under_600s)


@dataclass(frozen=True)
class Correction:
    """For each class of the predicted median, the moves that `rolled` would make for a job submitted at one instant."""

    moves: Float64s  # (classes, levels) on log(1 + s)
    outcomes: Int64s  # (classes,) number of jobs behind each move; 0 means no move

    @classmethod
    def at(cls, at_s: int, forecast: Forecast, submit_s: Int64s, wait_s: Int64s) -> Correction:
        """Compute the correction from those of n forecast jobs that had started before `at_s` (epoch s)."""
        start_s, residual, kind = submit_s + wait_s, _residuals(forecast, wait_s), classes(forecast)
        moves, outcomes = np.zeros((len(CUTS_S) + 1, len(LEVELS))), np.zeros(len(CUTS_S) + 1, np.int64)
        for one in np.unique(kind[start_s < at_s]):
            known = np.flatnonzero((kind == one) & (start_s < at_s))
            newest = known[np.argsort(start_s[known], kind="stable")][-WINDOW:]
            moves[one], outcomes[one] = _moves(residual[newest]), len(newest)
        return cls(moves, outcomes)

    def __call__(self, forecast: Forecast) -> Forecast:
        """The corrected forecast; unchanged without known outcomes. The probability of a short wait does not change."""
        if not self.outcomes.any():
            return forecast
        moved = np.expm1(np.log1p(forecast.quantiles_s) + self.moves[classes(forecast)])
        return forecast_of(moved, forecast.p_under_600s)


def classes(forecast: Forecast) -> Int64s:
    """(n,) the class of each predicted median."""
    return np.searchsorted(np.asarray(CUTS_S), forecast.median_s, side="right").astype(np.int64)


def _residuals(forecast: Forecast, wait_s: Int64s) -> Float64s:
    """(n, levels) the difference of each job's wait to each quantile, on log(1 + s)."""
    return np.asarray(np.log1p(wait_s.astype(np.float64))[:, None] - np.log1p(forecast.quantiles_s), np.float64)


def _moves(residual: Float64s) -> Float64s:
    """(levels,) from residuals (m, levels): the conformal quantile at each level, shrunk."""
    m = len(residual)
    at = np.minimum((LEVELS * m).astype(np.int64), m - 1)
    return np.asarray(np.sort(residual, axis=0)[at, np.arange(len(LEVELS))] * m / (m + PRIOR_OUTCOMES), np.float64)
