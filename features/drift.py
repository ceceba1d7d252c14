"""How far one week differs from a set of earlier weeks, with a bound that such weeks exceed by a stated share.

A feature's distance of a week is the population stability index (`features.load`) of its rows against those of all
other weeks together, in ten bins of equal mass of all of them; names have a bin each. What distance is too much is said
by `features.bounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.bounds import LEAST_ROWS, LEAST_WEEKS, bounds
from features.load import BINS, stability_index

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


class Distance(NamedTuple):
    """One feature of the new week."""

    feature: str
    n_before: int  # rows of the earlier weeks that know it
    n: int  # rows of the new one
    psi: float  # of the new week against all earlier ones
    bound: float  # of the index


class DriftComparison(NamedTuple):
    """The new week against the earlier ones."""

    weeks: int  # earlier weeks compared
    chance: float  # share of weeks that exceed a bound of any feature, where weeks are exchangeable
    distances: list[Distance]

    @property
    def beyond(self) -> list[str]:
        """Features of which the new week is beyond the bound."""
        return [one.feature for one in self.distances if one.psi > one.bound]


def against(
    before: pl.DataFrame, now: pl.DataFrame, *, numbers: Sequence[str], names: Sequence[str] = ()
) -> DriftComparison | None:
    """The rows `now`, all of one week, against those `before`, both with a column `week_utc` and one a feature.

    None where fewer than LEAST_WEEKS earlier weeks have LEAST_ROWS rows, or the new one has not, or where no feature
    is known in all of them, or none varies.
    """
    sizes = before.group_by("week_utc").len().filter(pl.col("len") >= LEAST_ROWS).sort("week_utc")
    weeks = sizes["week_utc"].to_list()
    if len(weeks) < LEAST_WEEKS or len(now) < LEAST_ROWS:
        return None
    rows = pl.concat([before.filter(pl.col("week_utc").is_in(weeks)), now])
    place = rows["week_utc"].rank("dense").to_numpy().astype(np.int64) - 1
    now_at = int(place[-1])
    found: list[tuple[str, Int64s, Float64s]] = []
    for feature in (*numbers, *names):
        counts = _counts(rows[feature], place, is_number=feature in numbers)
        if counts.sum(axis=1).min() >= LEAST_ROWS:
            found.append((feature, counts, _distances(counts)))
    held = bounds({feature: distances for feature, _, distances in found}, now_at)
    if held is None:
        return None
    return DriftComparison(
        weeks=len(weeks),
        chance=held.chance,
        distances=[
            Distance(
                feature=feature,
                n_before=int(np.delete(counts, now_at, axis=0).sum()),
                n=int(counts[now_at].sum()),
                psi=float(distances[now_at]),
                bound=held.of[feature],
            )
            for feature, counts, distances in found
            if feature in held.of
        ],
    )


def _counts(values: pl.Series, place: Int64s, *, is_number: bool) -> Int64s:
    """Known values by week and bin that holds any, (weeks, bins); place: (n,) week of each value."""
    known = values.is_not_null().to_numpy()
    at, values = place[known], values.drop_nulls()
    if is_number:
        number = values.to_numpy().astype(np.float64)
        quantiles = np.arange(1, BINS) / BINS
        edges = np.unique(np.quantile(number, quantiles, method="inverted_cdf")) if len(number) else number
        bins, code = len(edges) + 1, np.searchsorted(edges, number, side="left")
    else:
        bins, code = values.n_unique(), values.rank("dense").to_numpy().astype(np.int64) - 1
    weeks = int(place.max()) + 1
    counts = np.bincount(at * bins + code, minlength=weeks * bins).reshape(weeks, bins)
    return counts[:, counts.any(axis=0)].astype(np.int64)


def _distances(counts: Int64s) -> Float64s:
    """Of each week from all others together, (weeks,)."""
    total = counts.sum(axis=0)
    return np.array([stability_index(total - week, week) for week in counts])
