"""The figures by hand on a few jobs, and what a study refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from models.engine import work
from models.engine.local import each_here
from models.provisioning.futures.revealed import NOTHING
from models.queue_time import scores
from models.queue_time.futures import ALL, waits_in_futures
from models.queue_time.ground import GAP_S, SubmittedJobs, submitted_jobs
from models.queue_time.protocol import LEVELS, Forecast, forecast_of
from models.queue_time.registry import make_method
from models.queue_time.scores import Judged
from models.queue_time.study import figures_of, judge_jobs, judge_origins, origin_of, pooled
from tests.features.submission.logs import ORIGIN_S, generated_log
from traces.errors import InputError
from traces.units import DAY_S

HOUR = 3600


def constant(values: list[float], p: list[float]) -> Forecast:
    return forecast_of(np.repeat(np.array(values, float)[:, None], len(LEVELS), 1), np.array(p))


def judged(wait_s: list[int], days: float = 1.0) -> Judged:
    submit = np.linspace(0, days * DAY_S, len(wait_s)).astype(np.int64)
    return Judged.of(submit, np.array(wait_s), np.zeros(len(wait_s), np.int64), 0.5)


def test_figures_by_hand() -> None:
    found = scores.figures(judged([60, 2 * HOUR, 4 * HOUR, 10 * HOUR]),
                           constant([60, HOUR, 4 * HOUR, HOUR], [0.9, 0.6, 0.2, 0.0]))  # fmt: skip
    assert found["crps_h"] == pytest.approx((0 + 1 + 0 + 9) / 4)  # of a point: the absolute error
    assert found["balanced_accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.04 + 0) / 4)
    assert found["median_ae_h"] == pytest.approx(1.0)
    assert found["within_factor_2"] == pytest.approx(2 / 3)
    assert found["coverage"] == {"0.5": 0.5, "0.8": 0.5, "0.95": 0.5} and found["width_h"] == 0
    assert found["ci95"] == {} and found["n"] == 4 and found["n_over_10min"] == 3 and found["indicative"]


def test_the_score_of_a_distribution_is_that_of_its_integral() -> None:
    forecast = forecast_of(LEVELS[None] * HOUR)
    wait = np.array([1800])
    score = scores.crps_h(forecast, wait)[0]
    grid = np.linspace(-0.5, 1.5, 200_001)  # uniform on [0, 1] h, and a wait of half an hour
    exact = float(((np.clip(grid, 0, 1) - (grid >= 0.5)) ** 2).sum() * (grid[1] - grid[0]))
    assert score == pytest.approx(exact, rel=0.05)


def test_a_difference_is_paired_and_zero_to_itself() -> None:
    rng = np.random.default_rng(0)
    wait = rng.integers(0, 20 * HOUR, 400)
    of = judged(wait.tolist(), days=40)
    near, far = constant((wait * 1.1).tolist(), (wait < 600).tolist()), constant([HOUR] * 400, [0.5] * 400)
    itself = scores.difference(of, near, near)
    assert itself["crps_h"] == 0 and itself["ci95"] == [0, 0] and itself["median_ae_ratio"] == 1
    other = scores.difference(of, near, far)
    assert other["crps_h"] < 0 and other["ci95"][1] < 0 and other["ci95"][0] < other["crps_h"] < other["ci95"][1]
    assert other["balanced_accuracy_ci95"][0] > 0 and other["median_ae_ratio"] < 0.5
    whole = scores.figures(of, near)
    for name in ("crps_h", "brier", "within_factor_2", "median_ae_h"):
        assert whole["ci95"][name][0] <= whole[name] <= whole["ci95"][name][1]


def test_weeks_sizes_and_reliability_add_up() -> None:
    of = judged([60, 2 * HOUR, 4 * HOUR, 10 * HOUR], days=20)
    forecast = constant([60, HOUR, 4 * HOUR, HOUR], [0.92, 0.61, 0.2, 1.0])
    weeks = scores.by_week(of, forecast)
    assert [week["n"] for week in weeks] == [2, 1, 1] and weeks[0]["coverage_95"] == 0.5
    (size,) = scores.by_size(of, forecast)
    assert size["n"] == 4 and size["mean_wait_h"] == pytest.approx((60 / HOUR + 16) / 4)
    assert [(one["n"], one["share"]) for one in scores.reliability(of, forecast)] == [(1, 0), (1, 0), (2, 0.5)]


@pytest.fixture(scope="module")
def ground() -> SubmittedJobs:
    return submitted_jobs(generated_log(3, jobs=400, days=30), ORIGIN_S + 20 * DAY_S)


def test_what_is_known_started_before_and_a_day_before(ground: SubmittedJobs) -> None:
    rows, at_s = ground.rows, ORIGIN_S + 20 * DAY_S
    known = ground.known(at_s)
    assert known.any() and (rows.submit_s[known] < at_s - GAP_S).all()
    assert (rows.submit_s[known] + rows.wait_s[known] < at_s).all()
    assert not (known & ground.within(at_s, at_s + 5 * DAY_S)).any()
    later = submitted_jobs(ground.log, at_s, ORIGIN_S + 5 * DAY_S)
    assert later.rows.submit_s[later.known(at_s)].min() >= ORIGIN_S + 5 * DAY_S
    withdrawn = ~ground.log.record.ran
    assert ground.never_started(ORIGIN_S, ORIGIN_S + 31 * DAY_S) == withdrawn.sum() > 0


def test_fits_that_follow_each_other_are_judged_together(ground: SubmittedJobs) -> None:
    ends = [ORIGIN_S + days * DAY_S for days in (20, 25, 30)]
    methods = [make_method(name) for name in ("partition-median", "limits")]
    grounds = [ground, submitted_jobs(ground.log, ends[1])]
    parts = [
        judge_jobs(on, "lab", from_s, to_s, from_s, methods, 0)
        for on, from_s, to_s in zip(grounds, ends[:-1], ends[1:], strict=True)
    ]
    both = pooled(parts)
    assert parts[0].fitted_on < both.fitted_on == parts[1].fitted_on and both.window_s == (ends[0], ends[2])
    assert (both.rows.submit_s == np.concatenate([part.rows.submit_s for part in parts])).all()
    assert len(both.forecasts["limits"].p_under_600s) == len(both.rows) == len(np.atleast_1d(both.judged.threshold))
    shares, found = [len(part.rows) / len(both.rows) for part in parts], figures_of(both)
    for at, row in enumerate(found["results"]):
        singly = [figures_of(part)["results"][at] for part in parts]
        assert row["crps_h"] == pytest.approx(np.dot(shares, [one["crps_h"] for one in singly]))
        assert row["coverage"]["0.95"] == pytest.approx(np.dot(shares, [one["coverage"]["0.95"] for one in singly]))
    once = figures_of(judge_jobs(ground, "lab", ends[0], ends[2], ends[0], methods, 0))
    assert once["results"][0]["crps_h"] != found["results"][0]["crps_h"]


def test_fits_in_other_processes_forecast_the_same(ground: SubmittedJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [ORIGIN_S + days * DAY_S for days in (20, 25, 30)]
    origins = [origin_of(ground, "lab", from_s, to_s, from_s) for from_s, to_s in itertools.pairwise(ends)]
    methods = [make_method(name) for name in ("limits", "partition-median", "simulate-ahead")]
    here = judge_origins(origins, methods, 0)  # short
    monkeypatch.setattr(work, "SHORT_S", 0.0)
    there = judge_origins(origins, methods, 0, partial(each_here, processes=2))
    for one, other in zip(here, there, strict=True):
        assert list(one.forecasts) == list(other.forecasts) == [method.name for method in methods]
        for name in one.forecasts:
            np.testing.assert_array_equal(one.forecasts[name].quantiles_s, other.forecasts[name].quantiles_s)
            np.testing.assert_array_equal(one.forecasts[name].p_under_600s, other.forecasts[name].p_under_600s)


def test_futures_see_no_more_than_the_queue_and_the_bound_sees_all(ground: SubmittedJobs) -> None:
    from_s, to_s = ORIGIN_S + 20 * DAY_S, ORIGIN_S + 30 * DAY_S
    methods = [make_method(name) for name in ("partition-median", "simulate-ahead", "boosting-ahead", "informed")]
    found = judge_jobs(ground, "lab", from_s, to_s, from_s, methods, 0)
    naive, ahead, _, _ = (row["crps_h"] for row in figures_of(found)["results"])
    assert ahead < 0.7 * naive
    at_s = int(found.rows.submit_s[found.rows.wait_s.argmax()])  # of whom the later alterations matter most
    record, wanted = ground.log.record, (ground.rows.submit_s <= at_s) & (ground.rows.submit_s >= from_s)
    start_s = record.start_s + 5000 * (record.ran & (record.start_s > at_s))
    end_s = record.end_s + 9000 * (record.end_s > at_s)
    altered = replace(record, start_s=start_s, end_s=end_s, size=np.where(record.submit_s > at_s, 4, record.size))
    judged = ground.within(from_s, to_s)
    blind_s, told_s = (waits_in_futures(ground.log, judged, result) for result in (NOTHING, ALL))
    error_s = [np.abs(np.median(one, axis=1) - found.rows.wait_s).mean() for one in (blind_s, told_s)]
    assert told_s.shape[1] == 1 and error_s[1] < 0.5 * error_s[0]
    same = waits_in_futures(replace(ground.log, record=altered), wanted)
    np.testing.assert_array_equal(same, waits_in_futures(ground.log, wanted))
    then_s, now_s = (waits_in_futures(log, wanted, ALL) for log in (replace(ground.log, record=altered), ground.log))
    assert (then_s != now_s).any(), "what is told is another truth"


def test_a_window_is_scored_and_a_short_one_is_refused(ground: SubmittedJobs) -> None:
    from_s, to_s = ORIGIN_S + 20 * DAY_S, ORIGIN_S + 30 * DAY_S
    methods = [make_method(name) for name in ("limits", "partition-median", "expected")]
    found = figures_of(judge_jobs(ground, "lab", from_s, to_s, from_s, methods, 0))
    assert [row["method"] for row in found["results"]] == ["limits", "partition-median", "expected"]
    assert found["jobs"] == ground.within(from_s, to_s).sum() == found["results"][0]["n"]
    best = min(found["results"], key=lambda row: row["crps_h"])
    assert best["difference_to_best_naive"]["crps_h"] == 0
    assert best["difference_to_best_naive"]["method"] == best["method"]
    with pytest.raises(InputError, match="0 jobs that started were submitted from"):
        judge_jobs(ground, "lab", to_s + 50 * DAY_S, to_s + 60 * DAY_S, from_s, methods, 0)
    with pytest.raises(InputError, match="can be used to fit; at least 100"):
        judge_jobs(ground, "lab", from_s, to_s, ORIGIN_S + 2 * DAY_S, methods, 0)
