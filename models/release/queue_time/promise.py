"""The promise of a release about its forecasts: scores by whole weeks, with which later weeks are compared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.load.bounds import LEAST_ROWS
from models.queue_time import scores
from models.queue_time.protocol import Forecast, Rows
from models.study.windows import whole_step_s
from traces.units import WEEK_S

SCORES = ("crps_h", "missed_95")


class WeekScores(NamedTuple):
    """A forecast's scores on the jobs of one week."""

    week_s: int  # epoch s, a Monday, 00:00 UTC
    n: int
    crps_h: float
    missed_95: float  # (waits outside the 95 % interval + 1) / (n + 1): above 0, so that one can divide by it


def by_week(forecast: Forecast, rows: Rows, from_s: int, until_s: int) -> list[WeekScores]:
    """Score each whole week within [from_s, until_s), epoch s, in which at least LEAST_ROWS rows were submitted."""
    crps_h, (low, high) = scores.crps_h(forecast, rows.wait_s), scores.INTERVALS["0.95"]
    missed = (rows.wait_s < forecast.quantiles_s[:, low]) | (rows.wait_s > forecast.quantiles_s[:, high])
    found = []
    for week_s in range(whole_step_s(from_s + WEEK_S - 1, WEEK_S), until_s - WEEK_S + 1, WEEK_S):
        at = slice(*np.searchsorted(rows.submit_s, [week_s, week_s + WEEK_S]).tolist())
        n = at.stop - at.start
        if n >= LEAST_ROWS:
            share = (int(missed[at].sum()) + 1) / (n + 1)
            found.append(WeekScores(week_s, n, float(crps_h[at].mean()), share))
    return found
