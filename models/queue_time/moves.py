"""Conformal calibration: map nominal quantile levels to the levels that cover as promised. Needs only numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.distribution import MOVES, move
from models.queue_time.protocol import LEVELS, Forecast
from traces.arrays import Float64s, Int64s


@dataclass(frozen=True)
class CalibratedLevels:
    """For each group, the level to read off a forecast for each nominal level."""

    level: dict[int, Float64s]  # group -> (levels,)
    of_all: Float64s  # (levels,)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As in a released distribution: groups (g,) rising, levels of each (g, levels), levels of all (levels,)."""
        groups = sorted(self.level)
        level = np.array([self.level[one] for one in groups]).reshape(len(groups), len(LEVELS))
        return dict(zip(MOVES, (np.array(groups, np.int64), level, self.of_all), strict=True))

    def __call__(self, forecast: Forecast, group: Int64s) -> Forecast:
        """The forecast (n rows) with moved quantiles; the probability of a short wait does not change."""
        own = self.arrays()
        groups, level, of_all = (own[name] for name in MOVES)
        return Forecast(move(forecast.quantiles_s, group, groups, level, of_all), forecast.p_under_600s)
