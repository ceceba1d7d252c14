"""Distance of one week from a set of earlier weeks, with a bound that similar weeks exceed with a known probability.

The distance of a week in a feature is the population stability index (`features.load.load`) between its rows and those
of all other weeks together. Numbers use ten bins with equal shares of all weeks; names use one bin each.
`features.load.bounds` computes the largest distance that counts as normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from features.load.bounds import LEAST_ROWS, LEAST_WEEKS, bounds
from features.load.load import BINS, stability_index
from traces.arrays import Float64s, Int64s


class Distance(NamedTuple):
    """The distance of the new week in one feature."""

    feature: str
    n_before: int  # rows of the earlier weeks with a known value
    n: int  # rows of the new week with a known value
    psi: float  # population stability index of the new week against all earlier ones
    bound: float  # largest normal index


class DriftComparison(NamedTuple):
    """The comparison of the new week with the earlier ones."""

    weeks: int  # earlier weeks compared
    chance: float  # share of weeks that exceed a bound of any feature, where weeks are exchangeable
    distances: list[Distance]

    @property
    def beyond(self) -> list[str]:
        """Features in which the new week exceeds the bound."""
        return [distance.feature for distance in self.distances if distance.psi > distance.bound]


def against(
    before: pl.DataFrame, now: pl.DataFrame, *, numbers: Sequence[str], names: Sequence[str] = ()
) -> DriftComparison | None:
    """Compare the rows `now`, all of one week, with those `before`; both have `week_utc` and one column per feature.

    None where fewer than LEAST_WEEKS earlier weeks have LEAST_ROWS rows, where the new week has fewer rows, where no
    feature is known in all weeks, or where no feature varies.
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
    allowed = bounds({feature: distances for feature, _, distances in found}, now_at)
    if allowed is None:
        return None
    return DriftComparison(
        weeks=len(weeks),
        chance=allowed.chance,
        distances=[
            Distance(
                feature=feature,
                n_before=int(np.delete(counts, now_at, axis=0).sum()),
                n=int(counts[now_at].sum()),
                psi=float(distances[now_at]),
                bound=allowed.of[feature],
            )
            for feature, counts, distances in found
            if feature in allowed.of
        ],
    )


def _counts(values: pl.Series, place: Int64s, *, is_number: bool) -> Int64s:
    """Count the known values by week and by non-empty bin, (weeks, bins); place: (n,), week of each value."""
    known = values.is_not_null().to_numpy()
    week_of_value, values = place[known], values.drop_nulls()
    if is_number:
        number = values.to_numpy().astype(np.float64)
        quantiles = np.arange(1, BINS) / BINS
        edges = np.unique(np.quantile(number, quantiles, method="inverted_cdf")) if len(number) else number
        bins, code = len(edges) + 1, np.searchsorted(edges, number, side="left")
    else:
        bins, code = values.n_unique(), values.rank("dense").to_numpy().astype(np.int64) - 1
    weeks = int(place.max()) + 1
    counts = np.bincount(week_of_value * bins + code, minlength=weeks * bins).reshape(weeks, bins)
    return counts[:, counts.any(axis=0)].astype(np.int64)


def _distances(counts: Int64s) -> Float64s:
    """Compute the distance of each week from all others together, (weeks,)."""
    total = counts.sum(axis=0)
    return np.array([stability_index(total - week, week) for week in counts])
