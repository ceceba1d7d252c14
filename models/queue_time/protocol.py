"""The interface of queue-time prediction methods: their rows, their forecasts, and the grid of quantile levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from agent.distribution import LEVELS as LEVELS
from agent.distribution import LONGEST_S as LONGEST_S
from agent.distribution import SHORT_S as SHORT_S  # "under ten minutes": TROUT's boundary between short and long waits
from agent.distribution import sorted_quantiles
from features.submission.index import FEATURES
from traces.arrays import Bools, Float32s, Float64s, Int64s

MEDIAN = 19  # position of 0.5 among the levels
COLUMN = {name: at for at, name in enumerate(FEATURES)}


@dataclass(frozen=True)
class KnownStarts:
    """All starts in the log, by rising start, so that those known at an instant are a slice."""

    start_s: Int64s  # (starts,) epoch s
    wait_s: Int64s  # (starts,)
    partition: Int64s  # (starts,) number of the partition


@dataclass(frozen=True)
class Rows:
    """Jobs at their submissions, n of them, by rising submission."""

    observed: Float32s  # (n, len(FEATURES))
    submit_s: Int64s  # (n,) epoch s
    wait_s: Int64s  # (n,) until the start; a method reads it only in `fit`
    partition: Int64s  # (n,) number of the partition
    size_class: Int64s  # (n,) 0 the smallest size, 1 up to four times that, 2 above
    past: KnownStarts
    futures_s: Int64s | None = None  # (n, futures) wait of each job in its futures; negative if not played

    def __len__(self) -> int:
        return len(self.submit_s)

    def take(self, chosen: Bools | slice) -> Rows:
        """The rows of a mask or a slice, with the same past."""
        columns = ("observed", "submit_s", "wait_s", "partition", "size_class")
        futures_s = None if self.futures_s is None else self.futures_s[chosen]
        return replace(self, futures_s=futures_s, **{name: getattr(self, name)[chosen] for name in columns})

    def feature(self, name: str) -> Float64s:
        """(n,) one column of `observed`."""
        column: Float64s = self.observed[:, COLUMN[name]].astype(np.float64)
        return column

    @property
    def group(self) -> Int64s:
        """(n,) partition x size: the group for calibrating coverage."""
        return np.asarray(self.partition * 3 + self.size_class, np.int64)


@dataclass(frozen=True)
class Forecast:
    """The forecast waits of n jobs at their submissions."""

    quantiles_s: Float64s  # (n, len(LEVELS)) rising along each row
    p_under_600s: Float64s  # (n,)

    def __len__(self) -> int:
        return len(self.p_under_600s)

    @property
    def median_s(self) -> Float64s:
        """(n,) the point forecast, which minimises the mean absolute error."""
        return np.asarray(self.quantiles_s[:, MEDIAN], np.float64)


class FittedMethod(Protocol):
    """A fitted method."""

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast jobs at their submission, ignoring starts in `rows.past` at or after a row's own submission."""
        ...


class Method(Protocol):
    """A prediction method. `fit` sees rows with known outcomes, by rising submission."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def needs_queue(self) -> bool:
        """Whether it reads features that a request-only log lacks."""
        ...

    @property
    def is_naive(self) -> bool:
        """Whether it learns only a table of past waits."""
        ...

    def fit(self, rows: Rows, seed: int) -> FittedMethod:
        """Fit on rows whose waits were known at the fit."""
        ...


def forecast_of(quantiles_s: Float64s, p_under_600s: Float64s | None = None) -> Forecast:
    """Make a forecast with rising quantiles within a year; a missing probability is read off the quantiles."""
    rising = sorted_quantiles(quantiles_s)
    p = share_below(rising, float(SHORT_S)) if p_under_600s is None else p_under_600s
    return Forecast(rising, np.clip(p, 0.0, 1.0))


def share_below(quantiles_s: Float64s, wait_s: float | Float64s) -> Float64s:
    """(n,) the probability of a wait below `wait_s`, linear between the levels of (n, levels) rising quantiles.

    Below the lowest quantile it is half its level; above the highest it is halfway between the highest level and 1.
    """
    asked = np.broadcast_to(np.asarray(wait_s, np.float64), len(quantiles_s))
    under = (quantiles_s < asked[:, None]).sum(axis=1)
    low, high = np.clip(under - 1, 0, len(LEVELS) - 1), np.clip(under, 0, len(LEVELS) - 1)
    row = np.arange(len(quantiles_s))
    a, b = quantiles_s[row, low], quantiles_s[row, high]
    part = np.divide(asked - a, b - a, out=np.zeros(len(row)), where=b > a)
    inside = LEVELS[low] + (LEVELS[high] - LEVELS[low]) * part
    ends = np.where(under == 0, LEVELS[0] / 2, np.where(under == len(LEVELS), (1 + LEVELS[-1]) / 2, inside))
    return np.asarray(ends, np.float64)
