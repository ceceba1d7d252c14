"""Forecasts corrected as their outcomes become known, and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from models.queue_time.protocol import LEVELS, MEDIAN, Forecast, forecast_of
from models.queue_time.rolling import PRIOR_OUTCOMES, WINDOW, Correction, classes, rolled
from models.queue_time.scores import INTERVALS
from traces.arrays import Int64s
from traces.units import HOUR_S

LOW, HIGH = INTERVALS["0.95"]


def drawn(count: int, factor: float, seed: int = 0) -> tuple[Forecast, Int64s, Int64s]:
    """A job every half hour that waits `factor` times what the same forecast of each says; submissions and waits."""
    rng = np.random.default_rng(seed)
    submit = np.arange(count, dtype=np.int64) * (HOUR_S // 2)
    usual = np.expm1(np.quantile(rng.normal(8.0, 1.0, 20_000), LEVELS))
    wait = (np.exp(rng.normal(8.0, 1.0, count)) * factor).astype(np.int64)
    return forecast_of(np.tile(usual, (count, 1)), np.full(count, 0.25)), submit, wait


def covered(forecast: Forecast, wait_s: Int64s) -> float:
    return float(((wait_s >= forecast.quantiles_s[:, LOW]) & (wait_s <= forecast.quantiles_s[:, HIGH])).mean())


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_intervals_cover_again_once_outcomes_are_known(factor: float) -> None:
    forecast, submit, wait = drawn(3000, factor)
    late = slice(2 * WINDOW, None)
    found = rolled(forecast, submit, wait)
    result = Forecast(found.quantiles_s[late], found.p_under_600s[late])
    assert abs(covered(result, wait[late]) - 0.95) < 0.02
    assert (covered(forecast, wait) < 0.85) == (factor != 1.0)
    assert (np.diff(found.quantiles_s, axis=1) >= 0).all() and (found.p_under_600s == forecast.p_under_600s).all()


def test_nothing_that_comes_later_changes_anything() -> None:
    """The waits of jobs that have not started by an instant may be any: what is said until then stays."""
    forecast, submit, wait = drawn(400, 3.0)
    at_s = int(submit[250])
    other = np.where(submit + wait >= at_s, wait + 1 + 7 * HOUR_S, wait)
    until = submit <= at_s
    assert (other != wait).sum() > 150 and (other != wait)[until].any()
    found, also = rolled(forecast, submit, wait), rolled(forecast, submit, other)
    assert (found.quantiles_s[until] == also.quantiles_s[until]).all()
    assert (found.quantiles_s[~until] != also.quantiles_s[~until]).any()


def test_the_first_jobs_by_hand() -> None:
    """Nobody is known to the first; the second knows one residual, which weighs 1 in 1 + PRIOR_OUTCOMES."""
    forecast = forecast_of(np.full((3, len(LEVELS)), 4.0 * HOUR_S))
    submit, wait = np.array([0, 5 * HOUR_S, 6 * HOUR_S]), np.array([4 * HOUR_S + 600, 90 * HOUR_S, 10])
    found = rolled(forecast, submit, wait).quantiles_s
    assert found[0] == pytest.approx(4.0 * HOUR_S)
    moved = np.expm1(np.log1p(4 * HOUR_S) + np.log((4 * HOUR_S + 601) / (4 * HOUR_S + 1)) / (1 + PRIOR_OUTCOMES))
    assert found[1] == pytest.approx(moved) and found[2] == pytest.approx(moved), "the second still waits at the third"


def test_classes_of_what_was_said_are_apart_and_the_oldest_outcomes_forgotten() -> None:
    count = 2 * WINDOW
    is_long = np.arange(count + 2) >= count
    said = np.where(is_long, 100.0 * HOUR_S, 5.0)
    submit = np.arange(count + 2, dtype=np.int64) * HOUR_S
    wait = np.where(is_long, 100 * HOUR_S, np.where(np.arange(count + 2) < WINDOW, 3000, 50)).astype(np.int64)
    found = rolled(forecast_of(np.repeat(said[:, None], len(LEVELS), axis=1)), submit, wait).quantiles_s
    assert found[count:] == pytest.approx(100.0 * HOUR_S), "jobs said to start at once tell nothing of long waits"
    share = WINDOW / (WINDOW + PRIOR_OUTCOMES)
    assert found[WINDOW] == pytest.approx(np.expm1(np.log1p(5) + np.log(3001 / 6) * share))
    assert found[count - 1, MEDIAN] == pytest.approx(np.expm1(np.log1p(5) + np.log(51 / 6) * share), rel=1e-3)


def test_one_job_is_corrected_as_it_would_be_in_a_window() -> None:
    forecast, submit, wait = drawn(2000, 3.0)
    forecast = forecast_of(forecast.quantiles_s * np.resize([0.01, 1.0, 4.0], 2000)[:, None], forecast.p_under_600s)
    wanted = rolled(forecast, submit, wait)
    for at in (1, 300, 1000, 1999):
        one = Forecast(forecast.quantiles_s[at : at + 1], forecast.p_under_600s[at : at + 1])
        correction = Correction.at(int(submit[at]), forecast, submit, wait)
        assert correction(one).quantiles_s[0] == pytest.approx(wanted.quantiles_s[at], rel=1e-12)
        assert correction(one).p_under_600s == one.p_under_600s
        started = (submit + wait < submit[at]) & (classes(forecast) == classes(one))
        assert correction.outcomes[classes(one)[0]] == min(started.sum(), WINDOW)


def test_without_outcomes_nothing_moves() -> None:
    forecast, submit, wait = drawn(50, 3.0)
    correction = Correction.at(0, forecast, submit, wait)
    assert not correction.outcomes.any() and correction(forecast) is forecast
