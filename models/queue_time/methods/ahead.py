"""Simulating ahead: the waits in the futures of a job, each dressed with how far the nearest future was off.

Where some future nearly always came close to the truth, what is left to say is how close: the errors, in logarithms, of
the future that was nearest to each wait of the fit, by how long that future said (best-member dressing: Roulston and
Smith, "Combining dynamical and statistical ensembles", Tellus 55A, 2003, section 3). The futures are played from what
was visible at a submission and never fitted on a wait, so every row of the fit stands for one not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from features.ahead.summary import HOUR_S
from features.ahead.summary import LEVELS as TOLD
from features.submission.index import FEATURES
from models.queue_time.conformal import Calibrated
from models.queue_time.methods.boosting import Boosting
from models.queue_time.methods.trout_boosting import TroutBoosting
from models.queue_time.protocol import LEVELS, SHORT_S, Fitted, Float64s, Forecast, Int64s, Rows, forecast_of

CUTS_S = (90.0, 3600.0, 6 * 3600.0)  # classes of what a future says
POINTS = 39  # quantiles of the errors, which dress each future; nine lose the tails (January: .84 of 95 %, not .90)
LEAST = 20  # errors of a class, below which those of all stand for them


@dataclass(frozen=True)
class Futures:
    """Futures that are dressed with the errors of the nearest one: `simulate-ahead`, and the bound `informed`.

    Its quantiles are not moved by what they covered: that is what the errors are.
    """

    name: str
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> Dressed:
        """Errors of the rows of a fit whose futures were played, at least one."""
        rows = _played(rows)
        told, wait = np.log1p(_futures(rows)), np.log1p(rows.wait_s)
        at = np.abs(told - wait[:, None]).argmin(axis=1)
        nearest = told[np.arange(len(rows)), at]
        error, kind = wait - nearest, _class(np.expm1(nearest))
        errors = [error[kind == one] for one in range(len(CUTS_S) + 1)]
        inner = (np.arange(POINTS) + 0.5) / POINTS
        return Dressed(np.stack([np.quantile(one if len(one) >= LEAST else error, inner) for one in errors]))


@dataclass(frozen=True)
class Dressed:
    """Fitted errors, (classes, POINTS), of the logarithm of one second more than the wait."""

    error: Float64s

    def forecast(self, rows: Rows) -> Forecast:
        """Quantiles of all futures with all errors of their classes."""
        told = _futures(rows)
        every = np.log1p(told)[:, :, None] + self.error[_class(told)]
        return forecast_of(np.expm1(np.quantile(every.reshape(len(rows), -1), LEVELS, axis=1).T))


def _class(said_s: Float64s) -> Int64s:
    return np.searchsorted(CUTS_S, said_s + 1e-6).astype(np.int64)


def _futures(rows: Rows) -> Float64s:
    if rows.futures_s is None:
        raise ValueError("the futures of these rows were not played")
    return rows.futures_s.astype(np.float64)


def _played(rows: Rows) -> Rows:
    """Those whose futures were played."""
    return rows.take(_futures(rows)[:, 0] >= 0)


def simulate_ahead() -> Futures:
    """What the policies of that name look at, for jobs of the log."""
    return Futures("simulate-ahead")


def informed() -> Futures:
    """The one future that is told who comes, how long everybody runs and when held jobs are released: a bound."""
    return Futures("informed")


@dataclass(frozen=True)
class BoostingAhead:
    """The recipe of `boosting`, with the futures among its inputs and their median where its estimate stands."""

    name: str = "boosting-ahead"
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> Fitted:
        """Two fits, calibrated, on the rows whose futures were played; the same seed gives the same bytes."""
        recipe = Calibrated(Boosting(base=len(FEATURES) + TOLD.index(0.5)))
        return Looking(recipe.fit(_beside(_played(rows)), seed))


@dataclass(frozen=True)
class Looking:
    """A fitted distribution that sees the futures beside the observation."""

    fitted: Fitted

    def forecast(self, rows: Rows) -> Forecast:
        """Of jobs at their submission."""
        return self.fitted.forecast(_beside(rows))


def _beside(rows: Rows) -> Rows:
    """Rows with the futures behind their observations: quantiles and mean, h, and the share under ten minutes."""
    told = _futures(rows)
    columns = [*np.quantile(told, TOLD, axis=1) / HOUR_S, told.mean(axis=1) / HOUR_S, (told < SHORT_S).mean(axis=1)]
    observed = np.column_stack([rows.observed, *columns]).astype(np.float32)
    return replace(rows, observed=observed)


@dataclass(frozen=True)
class CombinationAhead:
    """The mean of what `simulate-ahead` and `trout-boosting` say, quantile by quantile, with nothing left to learn.

    The one knows the queue's rules and who is in it, the other what became of jobs like this one. Weights that are
    learned held for no other month (`combination`).
    """

    name: str = "combination-ahead"
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> Fitted:
        """The futures on the rows where they were played, the trees on all."""
        return Mean((simulate_ahead().fit(rows, seed), Calibrated(TroutBoosting()).fit(rows, seed)))


@dataclass(frozen=True)
class Mean:
    """Fitted methods that count alike."""

    parts: Sequence[Fitted]

    def forecast(self, rows: Rows) -> Forecast:
        """Means of their quantiles and of their probabilities of a short wait."""
        told = [part.forecast(rows) for part in self.parts]
        quantiles_s = np.mean([one.quantiles_s for one in told], axis=0)
        return forecast_of(quantiles_s, np.mean([one.p_under_600s for one in told], axis=0))
