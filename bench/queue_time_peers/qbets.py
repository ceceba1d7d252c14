"""Upper bounds from the waits of the partition's latest starts, by the binomial distribution.

After QBETS (Nurmi, Brevik and Wolski, "QBETS: Queue Bounds Estimation from Time Series", JSSPP 2007, section 3): of n
waits in rising order, the k-th is an upper bound of the quantile q with confidence c, where k is the least number with
P(Binomial(n, q) < k) >= c. A window of the last LAST starts replaces its detection of change points, and follows
changes as quickly. Levels below the median are the plain order statistics. A forecast uses only starts before the
submission.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from models.queue_time.protocol import LEVELS, Forecast, Rows, forecast_of
from traces.arrays import Float64s, Int64s

LAST = 200  # latest starts that count
CONFIDENCE = 0.95  # of the bounds, as in the paper
LEAST = 10  # starts of the partition; with fewer, those of all partitions are used


@dataclass(frozen=True)
class Qbets:
    """The bound follows the queue; nothing is fitted."""

    name: str = "qbets"
    needs_queue: bool = False
    is_naive: bool = True

    def fit(self, rows: Rows, seed: int) -> _Bounds:
        """Keep the waits of the fit, for a log without a start before a submission."""
        return _Bounds(np.quantile(rows.wait_s.astype(np.float64), LEVELS))


@dataclass(frozen=True)
class _Bounds:
    without: Float64s  # (levels,)

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast each row from the starts in its partition before it."""
        past, out = rows.past, np.empty((len(rows), len(LEVELS)))
        all_starts = _Starts(past.start_s, past.wait_s)
        for one in np.unique(rows.partition):
            mine = past.partition == one
            own = _Starts(past.start_s[mine], past.wait_s[mine])
            for row in np.flatnonzero(rows.partition == one):
                waits = own.before(rows.submit_s[row])
                if len(waits) < LEAST:
                    waits = all_starts.before(rows.submit_s[row])
                out[row] = np.sort(waits)[places(len(waits))] if len(waits) else self.without
        return forecast_of(out)


@dataclass(frozen=True)
class _Starts:
    start_s: Int64s  # rising
    wait_s: Int64s

    def before(self, instant_s: int) -> Int64s:
        """The waits of the last LAST jobs that started before an instant."""
        after = int(np.searchsorted(self.start_s, instant_s, side="left"))
        return self.wait_s[max(after - LAST, 0) : after]


@cache
def places(count: int) -> Int64s:
    """(levels,) position, from 0, of each level's bound among `count` rising waits; the last if none suffices."""
    from scipy.stats import binom

    bound = binom.ppf(CONFIDENCE, count, LEVELS)
    plain = np.floor(LEVELS * count)
    return np.minimum(np.where(LEVELS > 0.5, bound, plain), count - 1).astype(np.int64)
