"""A forecast corrected as its outcomes become known: rolling conformal prediction, for whoever asks a released model.

A fit is what was known at its date, so it stays as it is. What moves is a correction beside it. At each submission the
jobs that the same model forecast before and that have started since are looked at, the newest WINDOW of those whose
predicted median was of the same class. Each quantile is moved, on the logarithm of one second more than the wait, by
its own conformal quantile of their residuals (Lei et al., "Distribution-free predictive inference for regression", JASA
113(523), 2018, section 2.2). Taking the newest alone is the answer to waits that are not exchangeable (Barber et al.,
"Conformal prediction beyond exchangeability", Annals of Statistics 51(2), 2023, with weights of 0 and 1). Few outcomes
lean on the forecast.

Adaptive conformal inference (Gibbs and Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021)
was tried and not taken (docs/decisions/0030-waits-as-distributions.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.methods.residuals import CUTS_S
from models.queue_time.protocol import LEVELS, Fitted, Float64s, Forecast, Int64s, Method, Rows, forecast_of

WINDOW = 500  # outcomes of a class, the newest; chosen on January of the A100 trace
LEANS = 100.0  # outcomes that weigh as much as the forecast's own word


@dataclass(frozen=True)
class Rolling:
    """The row of a method whose forecasts are corrected; its fit is the method's."""

    method: Method

    @property
    def name(self) -> str:
        """That of the method, and what is done to it."""
        return f"{self.method.name}, rolling"

    @property
    def is_naive(self) -> bool:
        """Never: differences are to what learns nothing at all."""
        return False

    @property
    def needs_queue(self) -> bool:
        """As the method."""
        return self.method.needs_queue

    def fit(self, rows: Rows, seed: int) -> Fitted:
        """The method's: the correction is none of a fit."""
        return self.method.fit(rows, seed)


def rolled(forecast: Forecast, submit_s: Int64s, wait_s: Int64s) -> Forecast:
    """The forecast of n jobs by rising submission (epoch s), each corrected by those that had started before it.

    The wait of a job (s) is used for jobs submitted after its start alone. The probability of a short wait stays.
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
    """By class of the predicted median, what `rolled` would move the forecast of a job submitted at one instant by."""

    moves: Float64s  # (classes, levels) on log(1 + s)
    outcomes: Int64s  # (classes,) of how many jobs; 0 where nothing moves

    @classmethod
    def at(cls, at_s: int, forecast: Forecast, submit_s: Int64s, wait_s: Int64s) -> Correction:
        """Of n jobs that were forecast, those that had started before `at_s` (epoch s)."""
        start_s, residual, kind = submit_s + wait_s, _residuals(forecast, wait_s), classes(forecast)
        moves, outcomes = np.zeros((len(CUTS_S) + 1, len(LEVELS))), np.zeros(len(CUTS_S) + 1, np.int64)
        for one in np.unique(kind[start_s < at_s]):
            known = np.flatnonzero((kind == one) & (start_s < at_s))
            newest = known[np.argsort(start_s[known], kind="stable")][-WINDOW:]
            moves[one], outcomes[one] = _moves(residual[newest]), len(newest)
        return cls(moves, outcomes)

    def __call__(self, forecast: Forecast) -> Forecast:
        """The forecast, corrected; the very same where no outcome is known. The probability of a short wait stays."""
        if not self.outcomes.any():
            return forecast
        moved = np.expm1(np.log1p(forecast.quantiles_s) + self.moves[classes(forecast)])
        return forecast_of(moved, forecast.p_under_600s)


def classes(forecast: Forecast) -> Int64s:
    """(n,) the class of each predicted median."""
    return np.searchsorted(np.asarray(CUTS_S), forecast.median_s, side="right").astype(np.int64)


def _residuals(forecast: Forecast, wait_s: Int64s) -> Float64s:
    """(n, levels) how much longer than each quantile each job waited, on log(1 + s)."""
    return np.asarray(np.log1p(wait_s.astype(np.float64))[:, None] - np.log1p(forecast.quantiles_s), np.float64)


def _moves(residual: Float64s) -> Float64s:
    """(levels,) from residuals (m, levels): its conformal quantile at each level, shrunk."""
    m = len(residual)
    at = np.minimum((LEVELS * m).astype(np.int64), m - 1)
    return np.asarray(np.sort(residual, axis=0)[at, np.arange(len(LEVELS))] * m / (m + LEANS), np.float64)
