"""TROUT's hierarchy: first whether the job starts within ten minutes, then how long it waits if it does not.

"A Hierarchical Deep Learning Approach for Predicting Job Queue Times in HPC Systems", SC24 Workshops, pp. 621-628. The
paper gives a class and a number; here the class's probability is kept, and around the number stand the errors on rows
held back from its fit, so that both give a distribution: with probability p a short wait, else a long one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.queue_time.protocol import LEVELS, SHORT_S, Float32s, Float64s, Forecast, Rows, forecast_of

Predict = Callable[[Float32s], Float64s]
FitClass = Callable[[Float32s, NDArray[np.bool_], int], Predict]
FitNumber = Callable[[Float32s, Float64s, int], Predict]
HELD_BACK = 0.2  # of the long waits, the newest
LEAST_LONG = 25  # long waits of a fit, below which all of them stand for a long wait


@dataclass(frozen=True)
class Hierarchy:
    """The two fits of one kind of model: of the class, and of log(1 + wait) of the long class."""

    name: str
    fit_class: FitClass
    fit_number: FitNumber
    needs_queue: bool = False
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> _Fitted:
        """Two fits on all rows, and one of the number on the older ones for its errors on the newer."""
        is_short = rows.wait_s < SHORT_S
        log_wait, observed = np.log1p(rows.wait_s), rows.observed
        share = float(is_short.mean())
        p = self.fit_class(observed, is_short, seed) if 0 < share < 1 else _constant(share)
        short_s = np.quantile(rows.wait_s[is_short], LEVELS) if share > 0 else np.zeros(len(LEVELS))
        long = np.flatnonzero(~is_short)
        if len(long) < LEAST_LONG:
            middle = float(np.median(log_wait[long])) if len(long) else float(np.log1p(SHORT_S))
            errors = log_wait[long] - middle if len(long) else np.zeros(1)
            return _Fitted(p, _constant(middle), short_s, np.quantile(errors, LEVELS), float(rows.wait_s.max()))
        cut = long[int(len(long) * (1 - HELD_BACK))]
        older, newer = long[long < cut], long[long >= cut]
        errors = log_wait[newer] - self.fit_number(observed[older], log_wait[older], seed)(observed[newer])
        number = self.fit_number(observed[long], log_wait[long], seed)
        return _Fitted(p, number, short_s, np.quantile(errors, LEVELS), float(rows.wait_s.max()))


def _constant(value: float) -> Predict:
    return lambda observed: np.full(len(observed), value)


@dataclass(frozen=True)
class _Fitted:
    p_short: Predict
    log_wait: Predict
    short_s: Float64s  # (levels,) of short waits
    error: Float64s  # (levels,) of the long ones' logarithm
    longest_s: float

    def forecast(self, rows: Rows) -> Forecast:
        """A short wait with probability p, else a long one."""
        p = np.clip(self.p_short(rows.observed), 1e-4, 1 - 1e-4)[:, None]
        number = self.log_wait(rows.observed)[:, None]
        level = LEVELS[None]
        short = np.interp(np.minimum(level / p, 1.0), LEVELS, self.short_s)
        error = np.interp(np.clip((level - p) / (1 - p), 0.0, 1.0), LEVELS, self.error)
        long = np.clip(np.expm1(number + error), SHORT_S, self.longest_s)
        return forecast_of(np.where(level <= p, short, long), p[:, 0])
