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
    said = np.log1p(forecast.quantiles_s)
    residual = np.log1p(wait_s.astype(np.float64))[:, None] - said
    kind = np.searchsorted(np.asarray(CUTS_S), forecast.median_s, side="right")
    out = said.copy()
    for one in np.unique(kind):
        mine = np.flatnonzero(kind == one)
        by_start = mine[np.argsort(start_s[mine], kind="stable")]
        known = np.searchsorted(start_s[by_start], submit_s[mine])
        for count in np.unique(known[known > 0]):
            newest = by_start[max(count - WINDOW, 0) : count]
            out[mine[known == count]] += _moves(residual[newest])
    return forecast_of(np.expm1(out), forecast.p_under_600s)


def _moves(residual: Float64s) -> Float64s:
    """(levels,) from residuals (m, levels): its conformal quantile at each level, shrunk."""
    m = len(residual)
    at = np.minimum((LEVELS * m).astype(np.int64), m - 1)
    return np.asarray(np.sort(residual, axis=0)[at, np.arange(len(LEVELS))] * m / (m + LEANS), np.float64)
