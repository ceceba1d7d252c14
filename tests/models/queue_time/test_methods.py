"""The contract of every method of the registry, and what each is by its definition."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from models.queue_time.conformal import Calibrated, ranks
from models.queue_time.methods.bins import POINTS, Bins
from models.queue_time.methods.boosting import Boosting, start_from
from models.queue_time.methods.combination import _brier, _pinball, best_weights
from models.queue_time.methods.futures import Futures
from models.queue_time.protocol import (
    LEVELS,
    LONGEST_S,
    MEDIAN,
    SHORT_S,
    FittedMethod,
    Forecast,
    KnownStarts,
    Rows,
    forecast_of,
    share_below,
)
from models.queue_time.registry import METHODS, make_method
from models.queue_time.scores import crps_h
from tests.models.queue_time.grounds import generated_rows
from traces.errors import InputError


def parts() -> tuple[Rows, Rows]:
    """Rows to fit on, and later ones."""
    rows = generated_rows()
    return rows.take(slice(0, 500)), rows.take(slice(500, None))


@cache
def fitted(name: str) -> FittedMethod:
    return make_method(name).fit(parts()[0], 3)


@cache
def forecast_by(name: str) -> Forecast:
    return fitted(name).forecast(parts()[1])


@pytest.mark.parametrize("name", METHODS)
def test_a_forecast_is_a_distribution(name: str) -> None:
    forecast, rows = forecast_by(name), parts()[1]
    assert forecast.quantiles_s.shape == (len(rows), len(LEVELS)) and forecast.p_under_600s.shape == (len(rows),)
    assert np.isfinite(forecast.quantiles_s).all() and (np.diff(forecast.quantiles_s, axis=1) >= 0).all()
    assert (forecast.quantiles_s >= 0).all() and (forecast.quantiles_s <= LONGEST_S).all()
    assert ((forecast.p_under_600s >= 0) & (forecast.p_under_600s <= 1)).all()
    assert make_method(name).name == name


@pytest.mark.parametrize("name", METHODS)
def test_no_method_sees_what_it_is_judged_on_or_a_later_start(name: str) -> None:
    rows = parts()[1]
    past, instant = rows.past, int(rows.submit_s[0])
    later = past.start_s >= instant
    altered = KnownStarts(past.start_s, past.wait_s * (1 + 5 * later), past.partition)
    hidden = replace(rows, wait_s=rows.wait_s[::-1] * 7, past=altered)
    first = np.arange(len(rows)) == 0
    again = fitted(name).forecast(hidden.take(first))
    assert np.allclose(again.quantiles_s, forecast_by(name).quantiles_s[:1], rtol=1e-9)


@pytest.mark.parametrize("name", ["boosting", "trout-boosting"])
def test_one_seed_gives_one_forecast(name: str) -> None:
    again = make_method(name).fit(parts()[0], 3).forecast(parts()[1])
    assert (again.quantiles_s == forecast_by(name).quantiles_s).all()


AHEAD = ["simulate-ahead", "boosting-ahead", "combination-ahead"]
SEEING = ["limits", "expected", "trout-boosting", "boosting", "combination", *AHEAD]


@pytest.mark.parametrize("name", SEEING)
def test_those_that_see_the_queue_beat_those_that_do_not(name: str) -> None:
    wait_s = parts()[1].wait_s
    naive = crps_h(forecast_by("partition-median"), wait_s).mean()
    assert crps_h(forecast_by(name), wait_s).mean() < 0.7 * naive


@pytest.mark.parametrize("name", [name for name in METHODS if name != "combination"])  # which is made of the others
def test_every_job_alike_and_every_wait_short_can_be_fitted(name: str) -> None:
    rows = generated_rows(count=60, seed=1)
    past = replace(rows.past, wait_s=np.full(60, 5))
    alike = {"observed": np.zeros_like(rows.observed), "futures_s": np.full((60, 8), 1)}
    same = replace(rows, **alike, wait_s=np.full(60, 5), past=past)
    forecast = make_method(name).fit(same, 0).forecast(same)
    assert np.isfinite(forecast.quantiles_s).all()
    assert (forecast.p_under_600s > 0.9).all()


@pytest.mark.parametrize("name", AHEAD)
def test_rows_without_futures_are_fitted_on_by_what_needs_none_alone(name: str) -> None:
    fit, later = parts()
    assert fit.futures_s is not None
    played = np.arange(len(fit)) >= 200
    some = replace(fit, futures_s=np.where(played[:, None], fit.futures_s, -1))
    found = make_method(name).fit(some, 0).forecast(later)
    few = make_method(name).fit(fit.take(played), 0).forecast(later)
    is_same = (found.quantiles_s == few.quantiles_s).all()
    assert is_same == (name != "combination-ahead"), "whose trees see every row"


def test_the_combination_is_the_mean_of_its_parts() -> None:
    fit, later = parts()
    ahead, trees = make_method("simulate-ahead"), Calibrated(make_method("trout-boosting"))
    parts_told = [method.fit(fit, 0).forecast(later) for method in (ahead, trees)]
    found = make_method("combination-ahead").fit(fit, 0).forecast(later)
    assert np.allclose(found.quantiles_s, np.mean([one.quantiles_s for one in parts_told], axis=0))
    assert np.allclose(found.p_under_600s, np.mean([one.p_under_600s for one in parts_told], axis=0))


def test_futures_are_dressed_with_the_errors_of_the_nearest() -> None:
    rows = generated_rows(count=90, seed=4)
    said = np.tile([10, 1000, 40_000], (90, 1))
    wait = np.tile([20, 1500, 40_000], 30)
    played = replace(rows, futures_s=said, wait_s=wait)
    dressed = Futures("simulate-ahead").fit(played, 0)
    for one, error in ((0, np.log(21 / 11)), (1, np.log(1501 / 1001)), (3, 0.0)):
        assert np.allclose(dressed.error[one], error)
    forecast = dressed.forecast(played)
    assert (
        forecast.quantiles_s[0, [0, MEDIAN, -1]] == pytest.approx([20, 1500, 40_000])
        and 0.3 < forecast.p_under_600s[0] < 0.37
    )
    with pytest.raises(ValueError, match="were not played"):
        dressed.forecast(replace(played, futures_s=None))


def test_the_mean_and_the_median_are_those_of_the_partition() -> None:
    rows, later = parts()
    for name, figure in (("partition-mean", np.mean), ("partition-median", np.median)):
        for one in (0, 1):
            point = forecast_by(name).median_s[later.partition == one]
            assert np.allclose(point, figure(rows.wait_s[rows.partition == one]))
    unseen = fitted("partition-median").forecast(replace(later, partition=np.full(len(later), 9)))
    assert np.allclose(unseen.median_s, np.median(rows.wait_s))


def test_a_probability_is_read_off_between_the_levels() -> None:
    quantiles = np.array([np.linspace(0, 3800, len(LEVELS)), np.full(len(LEVELS), 1e4), np.zeros(len(LEVELS))])
    assert np.allclose(share_below(quantiles, 1050.0), [(0.275 + 0.3) / 2, 0.0125, 0.9875])
    assert forecast_of(quantiles[:, ::-1]).quantiles_s[0, 0] == 0


def test_bins_hold_the_values_they_were_cut_at() -> None:
    values = np.random.default_rng(0).exponential(5, 1000)
    bins = Bins.of(values, 10, also=3.0)
    number = bins.classes(values)
    assert set(number.tolist()) == set(range(len(bins))) and 3.0 in bins.edges
    for one in range(len(bins)):
        inside = values[number == one]
        assert bins.edges[one] <= inside.min() and inside.max() <= bins.edges[one + 1]
        points = bins.points[one * POINTS : (one + 1) * POINTS]
        assert inside.min() <= points[0] and points[-1] <= inside.max()
    assert len(Bins.of(np.zeros(50), 10)) == 1


def test_trees_start_from_what_became_of_jobs_with_a_like_estimate() -> None:
    start = np.exp(start_from(np.array([0] * 90 + [1] * 10), 2, np.array([0] * 90 + [7] * 10)))
    assert np.allclose(start.sum(axis=1), 1)
    assert start[0, 0] > start[3, 0] == pytest.approx(0.9) and start[7, 1] == pytest.approx((10 + 30 * 0.1) / 40)


def test_the_scores_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import lightgbm

    kept = []
    train = lightgbm.train

    def keeping(*arguments: Any, **options: Any) -> Any:
        kept.append(train(*arguments, **options))
        return kept[-1]

    monkeypatch.setattr(lightgbm, "train", keeping)
    rows, later = parts()
    model = Boosting().fit(rows, 0)
    for part, booster in zip(model.parts, kept, strict=True):
        ours = part.scores(later.observed, np.zeros(len(later), np.int64)) - part.start[0]
        assert np.allclose(ours, booster.predict(later.observed, raw_score=True), atol=1e-9)


def test_the_best_weights_are_those_of_the_better_forecast() -> None:
    rng = np.random.default_rng(0)
    wait = rng.exponential(1000, 400)
    good, bad = np.quantile(wait, LEVELS)[None].repeat(400, 0), np.full((400, len(LEVELS)), 5000.0)
    assert best_weights([good, bad, bad], partial(_pinball, wait)).tolist() == [1, 0, 0]
    over, under = np.full((400, len(LEVELS)), 900.0), np.full((400, len(LEVELS)), 1100.0)
    assert best_weights([over, under], partial(_pinball, np.full(400, 1000.0))).tolist() == [0.5, 0.5]
    sure = [np.full(4, 0.9), np.full(4, 0.2)]
    assert best_weights(sure, partial(_brier, np.array([True] * 4))).tolist() == [1, 0]


class Narrow:
    """Says too little of the spread."""

    name, needs_queue, is_naive = "narrow", False, False

    def fit(self, rows: Rows, seed: int) -> Narrow:
        return self

    def forecast(self, rows: Rows) -> Forecast:
        middle = 3000.0
        return forecast_of(np.tile(middle + (LEVELS - 0.5) * 600, (len(rows), 1)))


def test_calibration_makes_quantiles_cover_what_they_say() -> None:
    rng = np.random.default_rng(1)
    rows = generated_rows(count=4000, seed=2)
    wait = np.where(rows.partition == 0, rng.normal(3000, 100, 4000), rng.normal(3000, 250, 4000)).astype(np.int64)
    rows = replace(rows, wait_s=wait)
    fit_on, later = rows.take(slice(0, 3000)), rows.take(slice(3000, None))
    before, after = Narrow().forecast(later), Calibrated(Narrow()).fit(fit_on, 0).forecast(later)

    def covered(forecast: Forecast, of: np.ndarray) -> float:
        inside = (later.wait_s >= forecast.quantiles_s[:, 3]) & (later.wait_s <= forecast.quantiles_s[:, 35])
        return float(inside[of].mean())

    for one in (0, 1):
        of = later.partition == one
        assert abs(covered(after, of) - 0.8) < abs(covered(before, of) - 0.8)
        assert abs(covered(after, of) - 0.8) < 0.1
    assert np.isclose(ranks(before, np.full(len(later), 3000)).mean(), 0.5, atol=0.02)


def test_an_unknown_method_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown method 'best'; known: limits, expected"):
        make_method("best")
    assert SHORT_S == 600
