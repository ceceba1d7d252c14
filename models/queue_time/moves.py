"""Quantiles read off a forecast at other levels than it says: what conformal calibration comes to. numpy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.queue_time.protocol import LEVELS, Float64s, Forecast, Int64s, forecast_of


@dataclass(frozen=True)
class Moved:
    """By group, the level to read off a forecast where another is wanted."""

    level: dict[int, Float64s]  # group -> (levels,)
    of_all: Float64s  # (levels,)

    def __call__(self, forecast: Forecast, group: Int64s) -> Forecast:
        """The forecast (n rows) with moved quantiles; the probability of a short wait stays."""
        out = np.empty_like(forecast.quantiles_s)
        ends = np.concatenate([[0.0], LEVELS, [1.0]])
        q = forecast.quantiles_s
        padded = np.concatenate([q[:, :1] * 0.5, q, q[:, -1:] * 1.5], axis=1)
        for one in np.unique(group):
            rows = group == one
            wanted = self.level.get(int(one), self.of_all)
            at = np.clip(np.searchsorted(ends, wanted) - 1, 0, len(ends) - 2)
            part = (wanted - ends[at]) / (ends[at + 1] - ends[at])
            out[rows] = padded[rows][:, at] * (1 - part) + padded[rows][:, at + 1] * part
        return forecast_of(out, forecast.p_under_600s)
