"""Simulate ahead: the waits of a job in its futures, each dressed with the errors of the nearest future.

Often some future comes close to the actual wait, so the remaining uncertainty is how close. For each wait of the fit,
take the error, in logarithms, of the nearest future, by how long that future predicted (best-member dressing: Roulston
and Smith, "Combining dynamical and statistical ensembles", Tellus 55A, 2003, section 3). Futures are played from the
state visible at a submission and never fitted on a wait, so every row of the fit represents an unseen one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from features.futures.summary import LEVELS as FUTURE_LEVELS
from features.submission.index import FEATURES
from models.queue_time.conformal import Calibrated
from models.queue_time.methods.boosting import Boosting
from models.queue_time.methods.trout_boosting import TroutBoosting
from models.queue_time.protocol import LEVELS, SHORT_S, FittedMethod, Forecast, Rows, forecast_of
from traces.arrays import Float64s, Int64s
from traces.units import HOUR_S

CUTS_S = (90.0, 3600.0, 6 * 3600.0)  # classes of the wait in a future
POINTS = 39  # quantiles of the errors that dress each future; nine lose the tails (January: 0.84 of 95 %, not 0.90)
LEAST = 20  # errors of a class; with fewer, those of all classes are used


@dataclass(frozen=True)
class Futures:
    """Futures dressed with the errors of the nearest one: `simulate-ahead`, and the bound `informed`.

    Its quantiles are not calibrated again, because the errors do that already.
    """

    name: str
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> Dressed:
        """Compute the errors of those rows of a fit whose futures were played, at least one."""
        rows = _played(rows)
        futures, wait = np.log1p(_futures(rows)), np.log1p(rows.wait_s)
        at = np.abs(futures - wait[:, None]).argmin(axis=1)
        nearest = futures[np.arange(len(rows)), at]
        error, kind = wait - nearest, _class(np.expm1(nearest))
        errors = [error[kind == one] for one in range(len(CUTS_S) + 1)]
        inner = (np.arange(POINTS) + 0.5) / POINTS
        return Dressed(np.stack([np.quantile(one if len(one) >= LEAST else error, inner) for one in errors]))


@dataclass(frozen=True)
class Dressed:
    """Fitted errors, (classes, POINTS), of the logarithm of one second more than the wait."""

    error: Float64s

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the quantiles of all futures with all errors of their classes."""
        futures = _futures(rows)
        every = np.log1p(futures)[:, :, None] + self.error[_class(futures)]
        return forecast_of(np.expm1(np.quantile(every.reshape(len(rows), -1), LEVELS, axis=1).T))


def _class(future_s: Float64s) -> Int64s:
    return np.searchsorted(CUTS_S, future_s + 1e-6).astype(np.int64)


def _futures(rows: Rows) -> Float64s:
    if rows.futures_s is None:
        raise ValueError("the futures of these rows were not played")
    return rows.futures_s.astype(np.float64)


def _played(rows: Rows) -> Rows:
    """The rows whose futures were played."""
    return rows.take(_futures(rows)[:, 0] >= 0)


def simulate_ahead() -> Futures:
    """The futures that the policies of that name use, for jobs of the log."""
    return Futures("simulate-ahead")


def informed() -> Futures:
    """One future that knows arrivals, run times and releases of held jobs: a bound."""
    return Futures("informed")


@dataclass(frozen=True)
class BoostingAhead:
    """The recipe of `boosting`, with the futures as additional inputs and their median as its estimate."""

    name: str = "boosting-ahead"
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> FittedMethod:
        """Make two fits, calibrated, on the rows with played futures; the same seed gives the same bytes."""
        recipe = Calibrated(Boosting(base=len(FEATURES) + FUTURE_LEVELS.index(0.5)))
        return SeeingFutures(recipe.fit(_with_futures(_played(rows)), seed))


@dataclass(frozen=True)
class SeeingFutures:
    """A fitted distribution that sees the futures in addition to the observation."""

    fitted: FittedMethod

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the waits of jobs at their submission."""
        return self.fitted.forecast(_with_futures(rows))


def _with_futures(rows: Rows) -> Rows:
    """Append the futures to the observations: quantiles and mean, h, and the share under ten minutes."""
    futures = _futures(rows)
    columns = [
        *np.quantile(futures, FUTURE_LEVELS, axis=1) / HOUR_S,
        futures.mean(axis=1) / HOUR_S,
        (futures < SHORT_S).mean(axis=1),
    ]
    observed = np.column_stack([rows.observed, *columns]).astype(np.float32)
    return replace(rows, observed=observed)


@dataclass(frozen=True)
class CombinationAhead:
    """The mean of the forecasts of `simulate-ahead` and `trout-boosting`, quantile by quantile, with fixed weights.

    The first knows the queue's rules and its jobs, the second the outcomes of similar jobs. Learned weights did not
    hold for any other month (`combination`).
    """

    name: str = "combination-ahead"
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> FittedMethod:
        """Fit the futures on the rows where they were played, the trees on all rows."""
        return Mean((simulate_ahead().fit(rows, seed), Calibrated(TroutBoosting()).fit(rows, seed)))


@dataclass(frozen=True)
class Mean:
    """Fitted methods with equal weights."""

    parts: Sequence[FittedMethod]

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the means of their quantiles and of their probabilities of a short wait."""
        forecasts = [part.forecast(rows) for part in self.parts]
        quantiles_s = np.mean([one.quantiles_s for one in forecasts], axis=0)
        return forecast_of(quantiles_s, np.mean([one.p_under_600s for one in forecasts], axis=0))
