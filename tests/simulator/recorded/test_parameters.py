"""Planted limits and priorities are found again; where there are none, none are claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.recorded.calibration import judge
from simulator.recorded.calibration.judge import (
    ALL,
    Month,
    contributions,
    error_classes,
    figures,
    fits,
    judged_starts,
    months,
    steps,
)
from simulator.recorded.free import free_starts
from simulator.recorded.parameters import MECHANISMS, fit_slope, infer_parameters, jobs_of, shared_limit, user_peaks
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.single import single_starts
from simulator.recorded.state import RecordedJobs, RecordedRules
from traces.units import DAY_S

SLOPE = 40.0  # points an hour


def planted(count: int = 2500, days: int = 75, seed: int = 0) -> RecordedTrace:
    """A trace whose starts were made by the rules: 20 nodes, 4 jobs a user, Priority plus 40 points an hour."""
    random = np.random.default_rng(seed)
    submit = np.sort(random.integers(0, days * DAY_S, count))
    size, limit = random.choice([1, 1, 1, 2, 4], count), random.choice([7200, 36000, 86400], count)
    run = np.maximum((limit * random.random(count)).astype(np.int64), 60)
    user = random.integers(0, 9, count)
    priority = 1000 + 150 * user
    blank = RecordedTrace(submit, submit, submit + run, size, limit, user, priority, [f"{k:05d}" for k in range(count)])
    key = 3600 * priority - (SLOPE * submit).astype(np.int64)
    rules = RecordedRules(20, 0, 0, 4, NEVER, 0, 0)
    start = free_starts(blank, RecordedJobs(submit, size, limit, user, key), rules, np.array([20], np.int64))
    return RecordedTrace(submit, start, start + run, size, limit, user, priority, blank.job_key)


@pytest.fixture(scope="module")
def record() -> RecordedTrace:
    return planted()


def test_the_planted_rules_are_found(record: RecordedTrace) -> None:
    found = infer_parameters(record, 60 * DAY_S)
    assert found.max_jobs == 4
    assert found.max_nodes is None
    assert found.nodes == 20
    assert found.points_per_hour == pytest.approx(SLOPE, rel=0.15)
    assert found.concordance > 0.95 > found.concordance_fcfs


@pytest.mark.parametrize(
    ("peaks", "limit"),
    [
        ([1, 2, 3, 8, 8, 8, 7, 2], 8),
        ([1, 2, 3, 4, 5, 6, 7], None),  # a tail, not a limit
        ([8, 8, 8, 9, 10], None),  # too many go beyond
        ([8] * 20 + [9, 10], 8),  # a few exempt
        ([8, 8], None),
        ([0, 0, 0, 1, 1, 1], None),  # one job at a time says nothing
        ([], None),
    ],
)
def test_a_shared_limit_is_a_pile_with_hardly_anyone_beyond(peaks: list[int], limit: int | None) -> None:
    assert shared_limit(np.array(peaks, np.int64)) == limit


def test_user_peaks_against_counting(record: RecordedTrace) -> None:
    jobs, nodes = user_peaks(record, events(record))
    for user in range(record.users):
        own = np.flatnonzero(record.user == user)
        most_jobs = most_nodes = 0
        for row in own:
            at = record.start_s[row]
            held = own[(record.start_s[own] <= at) & (record.end_s[own] > at)]
            most_jobs = max(most_jobs, len(held))
            if len(held) > 1:
                most_nodes = max(most_nodes, int(record.size[held].sum()))
        assert (jobs[user], nodes[user]) == (most_jobs, most_nodes)


def test_without_priorities_the_order_is_first_come_first_served() -> None:
    waited = np.linspace(-5, 10, 400)
    assert fit_slope(np.zeros(400), waited)[0] is None
    assert fit_slope(np.ones(10), waited[:10])[0] is None  # too few pairs


def test_a_month_is_judged_by_what_came_before_it(record: RecordedTrace) -> None:
    judged = months(record)
    assert [month.from_s // DAY_S for month in judged] == [31, 59]  # 1 February and 1 March 1970
    month = judged[1]
    fitted = fits(record, month)
    assert fitted[0].until_s == month.from_s
    happened = events(record)
    frozen = figures(record, month, judged_starts("frozen", record, happened, month, fitted))
    informed = figures(record, month, judged_starts("informed", record, happened, month, fitted))
    bare = figures(record, month, judged_starts("frozen", record, happened, month, fitted, frozenset()))
    # The rules that made the trace explain it; without them it is far off.
    assert frozen["mean_absolute_error_s"] < 0.3 * frozen["recorded_mean_wait_s"]
    assert informed["spearman"] > 0.9
    assert bare["mean_absolute_error_s"] > 2 * frozen["mean_absolute_error_s"]


@pytest.mark.parametrize("form", ["forked", "informed"])
def test_a_month_of_a_long_record_is_played_from_14_days_before_each_week(
    record: RecordedTrace, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    month, happened = months(record)[1], events(record)
    near, fitted = replace(month, is_near=True), fits(record, month)
    result: list[int] = []
    played: list[RecordedTrace] = []
    whole = judged_starts(form, record, happened, month, fitted)

    def spied(part: RecordedTrace, *rest: Any, **of: Any) -> Any:
        played.append(part)
        return single_starts(part, *rest, **of)

    monkeypatch.setattr(judge, "single_starts", spied)
    found = judged_starts(form, record, happened, near, fitted, on_progress=result.append)
    np.testing.assert_array_equal(found[month.of(record)], whole[month.of(record)])
    assert len(result) == steps(form, near) == len(played) == 5
    for part, from_s in zip(played, near.weeks, strict=True):
        assert (
            from_s - 14 * DAY_S <= part.end_s.min() < from_s - 13 * DAY_S
            and part.submit_s.min() > record.submit_s.min()
        )


def test_a_month_of_a_long_record_is_fitted_on_four_weeks(record: RecordedTrace) -> None:
    month = replace(months(record)[1], is_near=True)
    four = [record.take(record.submit_s >= until_s - 28 * DAY_S) for until_s in month.weeks]
    expected = [infer_parameters(part, until_s) for part, until_s in zip(four, month.weeks, strict=True)]
    assert repr(fits(record, month)) == repr(expected)
    assert fits(record, month)[0].pairs < fits(record, months(record)[1])[0].pairs


def test_contributions_start_from_none_and_end_with_all(record: RecordedTrace) -> None:
    month = Month(60 * DAY_S, 70 * DAY_S)
    fitted, happened = fits(record, month), events(record)
    rows = contributions(record, happened, month, fitted, "informed")
    assert [name for how, name, _ in rows if how == "added"] == list(MECHANISMS)
    assert [name for how, name, _ in rows if how == "left out"] == list(MECHANISMS)
    whole = figures(record, month, judged_starts("informed", record, happened, month, fitted, ALL))
    last = next(found for how, name, found in rows if how == "added" and name == list(MECHANISMS)[-1])
    assert last == whole


def test_the_queue_is_first_come_first_served_without_a_growth(record: RecordedTrace) -> None:
    assert (np.diff(jobs_of(record, None).key) <= 0).all()
    assert (np.diff(jobs_of(record, SLOPE).key) > 0).any()


def test_error_classes() -> None:
    recorded, wait = np.array([100, 100, 90_000, 100]), np.array([700, 1000, 100, 9000])
    assert error_classes(recorded, wait).to_list() == [
        "within 10 minutes",
        "10 minutes to 1 hour off",
        "over 1 hour early",
        "over 1 hour late",
    ]
