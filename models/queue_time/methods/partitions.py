"""The naive methods: the mean, or the median, wait of a partition, as computing centres publish it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.protocol import LEVELS, MEDIAN, SHORT_S, Forecast, Rows, forecast_of
from traces.arrays import Float64s, Int64s


@dataclass(frozen=True)
class PartitionTable:
    """For each partition, the quantiles of all its jobs' waits, and the share of short waits."""

    quantiles_s: dict[int, Float64s]
    short: dict[int, float]
    of_all: Float64s
    short_of_all: float

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the partition's waits; for an unknown partition, those of all jobs."""
        quantiles = np.stack([self.quantiles_s.get(int(one), self.of_all) for one in rows.partition])
        short = np.array([self.short.get(int(one), self.short_of_all) for one in rows.partition])
        return forecast_of(quantiles, short)


@dataclass(frozen=True)
class PartitionMedian:
    """The waits of the fit's jobs of the partition: the median is the point, the rest its distribution."""

    name: str = "partition-median"
    needs_queue: bool = False
    is_naive: bool = True

    def fit(self, rows: Rows, seed: int) -> PartitionTable:
        """Make the table; nothing is random."""
        return _table(rows, is_mean=False)


@dataclass(frozen=True)
class PartitionMean:
    """The same with the mean in place of the median; levels on the wrong side of the mean are moved to it."""

    name: str = "partition-mean"
    needs_queue: bool = False
    is_naive: bool = True

    def fit(self, rows: Rows, seed: int) -> PartitionTable:
        """Make the table; nothing is random."""
        return _table(rows, is_mean=True)


def _table(rows: Rows, is_mean: bool) -> PartitionTable:
    quantiles, short = {}, {}
    for one in np.unique(rows.partition):
        wait_s = rows.wait_s[rows.partition == one]
        quantiles[int(one)], short[int(one)] = _quantiles(wait_s, is_mean), float((wait_s < SHORT_S).mean())
    return PartitionTable(quantiles, short, _quantiles(rows.wait_s, is_mean), float((rows.wait_s < SHORT_S).mean()))


def _quantiles(wait_s: Int64s, is_mean: bool) -> Float64s:
    """(levels,) of waits (n,). With `is_mean` the mean is the middle, and every level stays on its side of it."""
    levels: Float64s = np.quantile(wait_s.astype(np.float64), LEVELS)
    if is_mean:
        mean = float(wait_s.mean())
        levels[:MEDIAN] = np.minimum(levels[:MEDIAN], mean)
        levels[MEDIAN] = mean
        levels[MEDIAN + 1 :] = np.maximum(levels[MEDIAN + 1 :], mean)
    return levels
