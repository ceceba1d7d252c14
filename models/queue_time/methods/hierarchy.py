"""TROUT's hierarchy: predict first whether the job starts within ten minutes, then how long it waits if it does not.

"A Hierarchical Deep Learning Approach for Predicting Job Queue Times in HPC Systems", SC24 Workshops, pp. 621-628. The
paper predicts a class and a number. Here the class's probability is kept, and the number is surrounded by the errors on
rows held out from its fit. Together they give a distribution: with probability p a short wait, else a long one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.distribution import of_hierarchy
from models.queue_time.protocol import LEVELS, SHORT_S, Forecast, Rows, forecast_of
from traces.arrays import Float32s, Float64s

Predict = Callable[[Float32s], Float64s]
FitClass = Callable[[Float32s, NDArray[np.bool_], int], Predict]
FitNumber = Callable[[Float32s, Float64s, int], Predict]
HELD_BACK = 0.2  # share of the long waits, the newest
LEAST_LONG = 25  # long waits of a fit; with fewer, all of them represent a long wait


@dataclass(frozen=True)
class Hierarchy:
    """The two fits of one kind of model: of the class, and of log(1 + wait) of the long class."""

    name: str
    fit_class: FitClass
    fit_number: FitNumber
    needs_queue: bool = False
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> Hierarchical:
        """Make two fits on all rows, and one of the number on the older rows for its errors on the newer."""
        is_short = rows.wait_s < SHORT_S
        log_wait, observed = np.log1p(rows.wait_s), rows.observed
        share = float(is_short.mean())
        p = self.fit_class(observed, is_short, seed) if 0 < share < 1 else Constant(share)
        short_s = np.quantile(rows.wait_s[is_short], LEVELS) if share > 0 else np.zeros(len(LEVELS))
        long = np.flatnonzero(~is_short)
        if len(long) < LEAST_LONG:
            middle = float(np.median(log_wait[long])) if len(long) else float(np.log1p(SHORT_S))
            errors = log_wait[long] - middle if len(long) else np.zeros(1)
            return Hierarchical(p, Constant(middle), short_s, np.quantile(errors, LEVELS), float(rows.wait_s.max()))
        cut = long[int(len(long) * (1 - HELD_BACK))]
        older, newer = long[long < cut], long[long >= cut]
        errors = log_wait[newer] - self.fit_number(observed[older], log_wait[older], seed)(observed[newer])
        number = self.fit_number(observed[long], log_wait[long], seed)
        return Hierarchical(p, number, short_s, np.quantile(errors, LEVELS), float(rows.wait_s.max()))


@dataclass(frozen=True)
class Constant:
    """A constant prediction, for rows of a single class or of too few long waits."""

    value: float

    def __call__(self, observed: Float32s) -> Float64s:
        """(n,) the value."""
        return np.full(len(observed), self.value)


@dataclass(frozen=True)
class Hierarchical:
    """A fitted hierarchy."""

    p_short: Predict
    log_wait: Predict
    short_s: Float64s  # (levels,) of short waits
    error: Float64s  # (levels,) of the long ones' logarithm
    longest_s: float

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast a short wait with probability p, else a long one."""
        p, number = self.p_short(rows.observed), self.log_wait(rows.observed)
        return forecast_of(*of_hierarchy(p, number, self.short_s, self.error, self.longest_s))
