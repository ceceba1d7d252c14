"""A distribution around a point estimate: its residuals on rows with known waits, by group.

Residuals are on the logarithm of one second more than the wait, because errors grow with waits. A group is the class of
the estimate (none, up to two hours, up to twelve, above) and partition x size. A small group is shrunk towards all rows
of its estimate class (conformal prediction by groups: Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random
World", 2005, 4.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.protocol import LEVELS, SHORT_S, Forecast, Rows, forecast_of
from traces.arrays import Float64s, Int64s

CUTS_S = (60.0, 2 * 3600.0, 12 * 3600.0)
PRIOR_ROWS = 100.0  # rows of a group that weigh as much as all those of the same estimate class


@dataclass(frozen=True)
class Residuals:
    """For each estimate class and group, the levels of log(1 + wait) - log(1 + point), and the share of short waits."""

    of_class: Float64s  # (classes, levels)
    short: Float64s  # (classes,)
    of_group: dict[tuple[int, int], tuple[Float64s, float]]
    longest_s: float  # longest wait of the fit

    @classmethod
    def of(cls, point_s: Float64s, rows: Rows) -> Residuals:
        """Compute the residuals of the rows of a fit, at least one, around the point estimates (n,), s."""
        residual = np.log1p(rows.wait_s) - np.log1p(point_s)
        is_short, kind, group = rows.wait_s < SHORT_S, _classes(point_s), rows.group
        of_class, short = np.zeros((len(CUTS_S) + 1, len(LEVELS))), np.zeros(len(CUTS_S) + 1)
        of_group = {}
        for one in range(len(of_class)):
            mine = kind == one
            used = mine if mine.any() else np.ones(len(rows), bool)
            of_class[one], short[one] = np.quantile(residual[used], LEVELS), is_short[used].mean()
            for which in np.unique(group[mine]):
                both = mine & (group == which)
                weight = both.sum() / (both.sum() + PRIOR_ROWS)
                levels = weight * np.quantile(residual[both], LEVELS) + (1 - weight) * of_class[one]
                of_group[one, int(which)] = levels, weight * is_short[both].mean() + (1 - weight) * short[one]
        return cls(of_class, short, of_group, float(rows.wait_s.max()))

    def around(self, point_s: Float64s, rows: Rows) -> Forecast:
        """The forecast of rows around `point_s` (n,), s; rows of an unseen group get the residuals of their class."""
        kind, group = _classes(point_s), rows.group
        levels, short = self.of_class[kind].copy(), self.short[kind].copy()
        for one, which in {(int(a), int(b)) for a, b in zip(kind, group, strict=True)}:
            if (known := self.of_group.get((one, which))) is not None:
                both = (kind == one) & (group == which)
                levels[both], short[both] = known
        quantiles = np.expm1(np.log1p(point_s)[:, None] + levels)
        return forecast_of(np.minimum(quantiles, self.longest_s), short)


def _classes(point_s: Float64s) -> Int64s:
    return np.searchsorted(CUTS_S, point_s, side="right").astype(np.int64)
