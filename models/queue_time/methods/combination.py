"""The combination of methods: quantiles averaged level by level, with the weights that did best on rows held back.

(Vincent averaging; Lichtendahl, Grushka-Cockayne and Winkler, "Is it better to average probabilities or quantiles?",
Management Science 59(7), 2013.) Weights are quarters, so that few rows can tell between them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from models.queue_time.protocol import LEVELS, Fitted, Float64s, Forecast, Method, Rows, forecast_of

PARTS = (
    "models.queue_time.methods.boosting:Boosting",
    "models.queue_time.methods.trout_boosting:TroutBoosting",
    "models.queue_time.methods.estimates:expected",
)
STEPS = 4  # weights are multiples of one in so many
HELD_BACK = 0.25  # of the rows, the newest
LEAST_ROWS = 40


@dataclass(frozen=True)
class Combination:
    """Boosting, the hierarchy and the start estimate with its residuals."""

    name: str = "combination"
    needs_queue: bool = True
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> _Mixed:
        """Each fitted on the older rows for the weights, and on all of them for the forecast."""
        methods = [_made(place) for place in PARTS]
        weights = np.full(len(methods), 1.0 / len(methods))
        cut = int(len(rows) * (1 - HELD_BACK))
        if len(rows) >= LEAST_ROWS:
            known = (np.arange(len(rows)) < cut) & (rows.submit_s + rows.wait_s < rows.submit_s[cut])
            held = rows.take(slice(cut, None))
            if known.sum() >= LEAST_ROWS:
                older = rows.take(known)
                told = [method.fit(older, seed).forecast(held).quantiles_s for method in methods]
                weights = best_weights(told, held.wait_s.astype(np.float64))
        used = [(method, weight) for method, weight in zip(methods, weights, strict=True) if weight > 0]
        return _Mixed(tuple((method.fit(rows, seed), float(weight)) for method, weight in used))


def best_weights(told: list[Float64s], wait_s: Float64s) -> Float64s:
    """Weights (methods,) of quantiles (n, levels) each, that add up to 1, of the least pinball loss of waits (n,)."""
    best, least = np.full(len(told), 1.0 / len(told)), np.inf
    for steps in itertools.product(range(STEPS + 1), repeat=len(told)):
        if sum(steps) == STEPS:
            weights = np.asarray(steps, np.float64) / STEPS
            error = wait_s[:, None] - np.tensordot(weights, np.stack(told), axes=1)
            loss = float(np.maximum(LEVELS * error, (LEVELS - 1) * error).mean())
            if loss < least:
                best, least = weights, loss
    return best


def _made(place: str) -> Method:
    module, _, name = place.partition(":")
    method: Method = getattr(import_module(module), name)()
    return method


@dataclass(frozen=True)
class _Mixed:
    parts: tuple[tuple[Fitted, float], ...]

    def forecast(self, rows: Rows) -> Forecast:
        """Quantiles and probabilities, each weighted."""
        told = [(fitted.forecast(rows), weight) for fitted, weight in self.parts]
        quantiles = np.sum([forecast.quantiles_s * weight for forecast, weight in told], axis=0)
        return forecast_of(quantiles, np.sum([forecast.p_under_600s * weight for forecast, weight in told], axis=0))
