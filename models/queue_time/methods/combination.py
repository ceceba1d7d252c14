"""Combine methods: average their quantiles level by level, with the weights that did best on held-out rows.

The probabilities of a short wait have weights of their own. (Vincent averaging; Lichtendahl, Grushka-Cockayne and
Winkler, "Is it better to average probabilities or quantiles?", Management Science 59(7), 2013.) Weights are quarters,
so that few rows suffice to choose them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import numpy as np

from models.queue_time.protocol import LEVELS, SHORT_S, FittedMethod, Forecast, Method, Rows, forecast_of
from traces.arrays import Bools, Float64s

PARTS = (
    "models.queue_time.methods.boosting:Boosting",
    "models.queue_time.methods.trout_boosting:TroutBoosting",
    "models.queue_time.methods.estimates:expected",
)
STEPS = 4  # weights are multiples of 1 / STEPS
HELD_BACK = 0.25  # share of the rows, the newest
LEAST_ROWS = 40


@dataclass(frozen=True)
class Combination:
    """A weighted combination of boosting, the hierarchy and the start estimate with its residuals."""

    name: str = "combination"
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> Mixed:
        """Fit each method on the older rows to choose the weights, and on all rows for the forecast."""
        methods = [_made(place) for place in PARTS]
        of_wait = of_short = np.full(len(methods), 1.0 / len(methods))
        cut = int(len(rows) * (1 - HELD_BACK))
        if len(rows) >= LEAST_ROWS:
            known = (np.arange(len(rows)) < cut) & (rows.submit_s + rows.wait_s < rows.submit_s[cut])
            held = rows.take(slice(cut, None))
            if known.sum() >= LEAST_ROWS:
                older = rows.take(known)
                forecasts = [method.fit(older, seed).forecast(held) for method in methods]
                wait_s = held.wait_s.astype(np.float64)
                of_wait = best_weights([one.quantiles_s for one in forecasts], partial(_pinball, wait_s))
                of_short = best_weights([one.p_under_600s for one in forecasts], partial(_brier, wait_s < SHORT_S))
        chosen = zip(methods, of_wait, of_short, strict=True)
        return Mixed(tuple((method.fit(rows, seed), float(a), float(b)) for method, a, b in chosen if a + b > 0))


def best_weights(forecasts: list[Float64s], loss: Callable[[Float64s], float]) -> Float64s:
    """Weights (methods,) that add up to 1 and give the weighted mean of the forecasts the least loss."""
    best, least = np.full(len(forecasts), 1.0 / len(forecasts)), np.inf
    for steps in itertools.product(range(STEPS + 1), repeat=len(forecasts)):
        if sum(steps) == STEPS:
            weights = np.asarray(steps, np.float64) / STEPS
            found = loss(np.tensordot(weights, np.stack(forecasts), axes=1))
            if found < least:
                best, least = weights, found
    return best


def _pinball(wait_s: Float64s, quantiles_s: Float64s) -> float:
    error = wait_s[:, None] - quantiles_s
    return float(np.maximum(LEVELS * error, (LEVELS - 1) * error).mean())


def _brier(is_short: Bools, p_short: Float64s) -> float:
    return float(((p_short - is_short) ** 2).mean())


def _made(place: str) -> Method:
    module, _, name = place.partition(":")
    method: Method = getattr(import_module(module), name)()
    return method


@dataclass(frozen=True)
class Mixed:
    """Fitted methods with their weights."""

    parts: tuple[tuple[FittedMethod, float, float], ...]  # each with weights of the quantiles and of the probability

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the weighted means of quantiles and of probabilities."""
        forecasts = [(fitted.forecast(rows), a, b) for fitted, a, b in self.parts]
        quantiles = np.sum([forecast.quantiles_s * a for forecast, a, _ in forecasts], axis=0)
        return forecast_of(quantiles, np.sum([forecast.p_under_600s * b for forecast, _, b in forecasts], axis=0))
