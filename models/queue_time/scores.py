"""Scores of forecasts, with intervals from blocks of 7 days: the figures of `baton wait --from --to`.

crps_h is the mean continuous ranked probability score, h: twice the mean pinball loss over the levels (Laio and Tamea,
"Verification tools for probabilistic forecasts of continuous hydrological variables", HESS 11, 2007, equation 5). The
point forecast is the median. Long waits are those over ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from features.bootstrap import BLOCK_S, block_count, interval, resampled_percentiles, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS
from models.queue_time.protocol import LEVELS, SHORT_S, Forecast
from simulator.metrics import spearman
from traces import instants
from traces.arrays import Bools, Float64s, Int64s
from traces.units import HOUR_S, WEEK_S

INTERVALS = {"0.5": (9, 29), "0.8": (3, 35), "0.95": (0, 38)}  # positions of their ends among LEVELS
RELIABILITY_BINS = 10


@dataclass(frozen=True)
class Judged:
    """The outcomes of n jobs, and the draws of blocks that every method is judged with."""

    submit_s: Int64s
    wait_s: Int64s
    size_class: Int64s
    threshold: float | Float64s  # share of short waits in the fit, or (n,): a job with this probability counts as short
    weights: Float64s | None  # (draws, n); None if the window is no longer than one block

    @classmethod
    def of(cls, submit_s: Int64s, wait_s: Int64s, size_class: Int64s, threshold: float | Float64s) -> Judged:
        """Collect n jobs by rising submission, at least one."""
        return cls(submit_s, wait_s, size_class, threshold, start_weights(submit_s))

    @property
    def is_short(self) -> Bools:
        """(n,) whether the job started within ten minutes."""
        return np.asarray(self.wait_s < SHORT_S, bool)

    @property
    def blocks(self) -> int:
        """Number of 7-day blocks that hold a job."""
        return block_count(self.submit_s, int(self.submit_s[0]), BLOCK_S) if len(self.submit_s) else 0


@dataclass(frozen=True)
class _Ratio:
    """A figure that is a mean over some rows: sum of `value` over sum of `counted`, both (n,)."""

    value: Float64s
    counted: Float64s

    def now(self) -> float:
        total = float(self.counted.sum())
        return float(self.value.sum()) / total if total else float("nan")

    def drawn(self, weights: Float64s) -> Float64s:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((weights @ self.value) / (weights @ self.counted), np.float64)


def crps_h(forecast: Forecast, wait_s: Int64s) -> Float64s:
    """(n,) the CRPS of each job, h."""
    error = wait_s[:, None] - forecast.quantiles_s
    return np.asarray(2 * np.maximum(LEVELS * error, (LEVELS - 1) * error).mean(axis=1) / HOUR_S, np.float64)


def figures(judged: Judged, forecast: Forecast) -> dict[str, Any]:
    """The figures of one method, and `ci95` of those with an interval."""
    ratios = _ratios(judged, forecast)
    now: dict[str, float | None] = {name: _number(ratio.now()) for name, ratio in ratios.items()}
    drawn = {} if judged.weights is None else {name: ratio.drawn(judged.weights) for name, ratio in ratios.items()}
    now["balanced_accuracy"] = _balanced(now)
    if drawn:
        drawn["balanced_accuracy"] = (drawn["_of_short"] + drawn["_of_long"]) / 2
    long = ~judged.is_short
    error_h = np.abs(forecast.median_s - judged.wait_s)[long] / HOUR_S
    now["median_ae_h"] = _number(float(np.median(error_h)) if long.any() else float("nan"))
    if drawn and judged.weights is not None and long.any():
        seeds = np.ones((len(judged.weights), 1))
        drawn["median_ae_h"] = resampled_percentiles(error_h[None], judged.weights[:, long], seeds, [50.0])[:, 0]
    now["spearman"] = _number(spearman(forecast.median_s, judged.wait_s))
    coverage = {name: now.pop(f"coverage_{name}") for name in INTERVALS}
    widths = {name: now.pop(f"width_{name}") for name in INTERVALS}
    ci95 = {name: interval(values) for name, values in drawn.items() if not name.startswith("_")}
    shown = {name: value for name, value in now.items() if not name.startswith("_")}
    return {
        "n": len(judged.wait_s),
        "n_over_10min": int(long.sum()),
        "blocks": judged.blocks,
        "indicative": judged.blocks < INDICATIVE_BELOW_BLOCKS,
        **shown,
        "coverage": coverage,
        "width_h": widths["0.95"],
        "widths_h": widths,
        "ci95": ci95,
    }


def _ratios(judged: Judged, forecast: Forecast) -> dict[str, _Ratio]:
    wait, every = judged.wait_s.astype(np.float64), np.ones(len(judged.wait_s))
    short, long = judged.is_short.astype(np.float64), (~judged.is_short).astype(np.float64)
    p, median_s = forecast.p_under_600s, forecast.median_s
    is_called_short = p >= judged.threshold
    near = (median_s <= 2 * wait) & (median_s >= wait / 2)
    score = crps_h(forecast, judged.wait_s)
    ratios = {
        "crps_h": _Ratio(score, every),
        "pinball_h": _Ratio(score / 2, every),
        "brier": _Ratio((p - short) ** 2, every),
        "within_factor_2": _Ratio(near * long, long),
        "_of_short": _Ratio(is_called_short * short, short),
        "_of_long": _Ratio(~is_called_short * long, long),
    }
    for name, (low, high) in INTERVALS.items():
        a, b = forecast.quantiles_s[:, low], forecast.quantiles_s[:, high]
        ratios[f"coverage_{name}"] = _Ratio(((wait >= a) & (wait <= b)).astype(np.float64), every)
        ratios[f"width_{name}"] = _Ratio((b - a) / HOUR_S, every)
    return ratios


def _balanced(now: dict[str, float | None]) -> float | None:
    short, long = now["_of_short"], now["_of_long"]
    return None if short is None or long is None else (short + long) / 2


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def difference(judged: Judged, forecast: Forecast, other: Forecast) -> dict[str, Any]:
    """The differences of a method to another on the same jobs, with paired intervals: CRPS (h), balanced accuracy.

    Also the ratio of the median absolute errors of the long waits: 0.7 means 30 % less.
    """
    own, theirs = _ratios(judged, forecast), _ratios(judged, other)
    ratio = _Ratio(own["crps_h"].value - theirs["crps_h"].value, own["crps_h"].counted)

    def accuracy(ratios: dict[str, _Ratio], weights: Float64s) -> Float64s:
        return (ratios["_of_short"].drawn(weights) + ratios["_of_long"].drawn(weights)) / 2

    once = np.ones((1, len(judged.wait_s)))
    weights = judged.weights
    long = ~judged.is_short
    errors = [np.abs(one.median_s - judged.wait_s)[long] for one in (forecast, other)]
    medians = [float(np.median(error)) if len(error) else float("nan") for error in errors]
    return {
        "crps_h": _number(ratio.now()),
        "ci95": None if weights is None else interval(ratio.drawn(weights)),
        "balanced_accuracy": _number(float((accuracy(own, once) - accuracy(theirs, once))[0])),
        "balanced_accuracy_ci95": None
        if weights is None
        else interval(accuracy(own, weights) - accuracy(theirs, weights)),
        "median_ae_ratio": _number(medians[0] / medians[1]) if medians[1] else None,
    }


def by_week(judged: Judged, forecast: Forecast) -> list[dict[str, Any]]:
    """Score each week from the first submission on: jobs, CRPS, 95 % coverage, actual and predicted waits."""
    number = (judged.submit_s - judged.submit_s[0]) // WEEK_S
    return [
        {"week_utc": instants.text(int(judged.submit_s[0] + one * WEEK_S)), **_part(judged, forecast, number == one)}
        for one in np.unique(number)
    ]


def by_size(judged: Judged, forecast: Forecast) -> list[dict[str, Any]]:
    """Score each size class, as `by_week` does for weeks."""
    names = ("smallest", "up to four times it", "larger")
    return [
        {"size": names[one], **_part(judged, forecast, judged.size_class == one)}
        for one in np.unique(judged.size_class)
    ]


def _part(judged: Judged, forecast: Forecast, chosen: Bools) -> dict[str, Any]:
    part = Forecast(forecast.quantiles_s[chosen], forecast.p_under_600s[chosen])
    wait = judged.wait_s[chosen]
    low, high = INTERVALS["0.95"]
    covered = (wait >= part.quantiles_s[:, low]) & (wait <= part.quantiles_s[:, high])
    return {
        "n": len(wait),
        "crps_h": float(crps_h(part, wait).mean()),
        "coverage_95": float(covered.mean()),
        "mean_wait_h": float(wait.mean() / HOUR_S),
        "median_wait_h": float(np.median(wait) / HOUR_S),
        "median_predicted_h": float(np.median(part.median_s) / HOUR_S),
    }


def reliability(judged: Judged, forecast: Forecast) -> list[dict[str, Any]]:
    """For each tenth of the probability of a short wait: jobs, mean probability, share of short waits."""
    number = np.minimum((forecast.p_under_600s * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    return [
        {
            "n": int((number == one).sum()),
            "p": float(forecast.p_under_600s[number == one].mean()),
            "share": float(judged.is_short[number == one].mean()),
        }
        for one in np.unique(number)
    ]
