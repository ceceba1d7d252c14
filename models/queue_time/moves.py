"""Quantiles read off a forecast at other levels than it says: what conformal calibration comes to. numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.distribution import MOVES, move
from models.queue_time.protocol import LEVELS, Float64s, Forecast, Int64s


@dataclass(frozen=True)
class Moved:
    """By group, the level to read off a forecast where another is wanted."""

    level: dict[int, Float64s]  # group -> (levels,)
    of_all: Float64s  # (levels,)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a released distribution has them: groups (g,) rising, their levels (g, levels), those of all (levels,)."""
        groups = sorted(self.level)
        level = np.array([self.level[one] for one in groups]).reshape(len(groups), len(LEVELS))
        return dict(zip(MOVES, (np.array(groups, np.int64), level, self.of_all), strict=True))

    def __call__(self, forecast: Forecast, group: Int64s) -> Forecast:
        """The forecast (n rows) with moved quantiles; the probability of a short wait stays."""
        own = self.arrays()
        groups, level, of_all = (own[name] for name in MOVES)
        return Forecast(move(forecast.quantiles_s, group, groups, level, of_all), forecast.p_under_600s)
