"""Random numbers, run times, arrivals and summaries of futures, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from features.futures.arrivals import MOST_S, WEEKS_S, cycles_s
from features.futures.draws import spread, uniform
from features.futures.run_times import LEAST_LEFT_S, ROOM, RunTimeHistory, draw_run_s, history, like_runs
from features.futures.summary import AHEAD, summary
from traces.units import DAY_S

HOUR = 3600


def test_each_part_of_the_unit_interval_gets_one_of_a_jobs_numbers() -> None:
    orders = set()
    for job in range(50):
        numbers = np.zeros(16)
        spread(job, 0, numbers)
        assert sorted((numbers * 16).astype(int).tolist()) == list(range(16))
        orders.add(tuple(np.argsort(numbers).tolist()))
    assert len(orders) == 50


def test_numbers_of_jobs_and_futures_are_uniform_and_unrelated() -> None:
    drawn = np.array([[uniform(job, future, 0) for future in range(16)] for job in range(400)])
    assert drawn.mean() == pytest.approx(0.5, abs=0.02) and drawn.std() == pytest.approx(12**-0.5, abs=0.02)
    related = np.abs(np.corrcoef(drawn.T) - np.eye(16))
    assert related.max() < 0.2
    assert uniform(7, 3, 0) == uniform(7, 3, 0) != uniform(7, 3, 1)


def known() -> RunTimeHistory:
    """User 0 runs script 5 for a tenth of its limit and script 6 for all of it; user 1 runs for half of it."""
    shares = [(0, 5, 0.1)] * 30 + [(0, 6, 1.0)] * 30 + [(1, 7, 0.5)] * 30
    user, name, share = (np.array(column) for column in zip(*shares, strict=True))
    end_s = np.arange(len(shares)) * 100
    return history(end_s, (share * 10 * HOUR).astype(np.int64), np.full(len(shares), 10 * HOUR), user, name)


def median_h(user: int, name: int, elapsed_h: float, known_s: int = 10**6, limit_h: int = 10) -> float:
    share, weight, out = np.zeros(ROOM), np.zeros(ROOM), np.zeros(1, np.int64)
    limit_s, elapsed_s = limit_h * HOUR, round(elapsed_h * HOUR)
    count = like_runs(known(), user, name, limit_s, elapsed_s, known_s, share, weight)
    if count:
        assert weight[:count].sum() == pytest.approx(1.0)
        assert (np.diff(share[:count]) >= 0).all()
    draw_run_s(share, weight, count, limit_s, elapsed_s, np.array([0.5]), out)
    return float(out[0] / HOUR)


def test_a_job_runs_like_those_of_its_user_and_name() -> None:
    assert median_h(0, 5, 0.0) == pytest.approx(1.0)
    assert median_h(0, 6, 0.0) == pytest.approx(10.0)
    assert median_h(1, 7, 0.0) == pytest.approx(5.0)


def test_what_has_passed_rules_out_shorter_runs() -> None:
    assert median_h(0, 5, 2.0) == pytest.approx(10.0)  # of the user's, script 6 alone runs that long
    assert median_h(1, 7, 6.0) == pytest.approx(10.0)  # of anybody's


def test_nothing_that_ended_later_is_read() -> None:
    assert median_h(0, 6, 0.0, known_s=3000) == pytest.approx(1.0)  # script 6 had not ended once
    assert median_h(1, 7, 0.0, known_s=1) == pytest.approx(1.0)


def test_of_whom_nothing_is_known_the_run_is_uniform_up_to_the_limit() -> None:
    assert median_h(1, 7, 4.0, known_s=0) == pytest.approx(7.0)
    assert median_h(9, 9, 10.0, known_s=0) == pytest.approx(10 + LEAST_LEFT_S / HOUR)


def test_shares_carry_over_to_other_limits() -> None:
    assert median_h(1, 7, 0.0, limit_h=4) == pytest.approx(2.0)


def test_arrivals_come_from_weeks_and_days_in_turn() -> None:
    cycles = cycles_s(16)
    assert set(WEEKS_S) <= set(cycles.tolist())
    assert (cycles % DAY_S == 0).all() and cycles.max() <= MOST_S == 28 * DAY_S
    assert len(cycles_s(100)) == 100


def test_a_summary_is_quantiles_mean_and_share_in_time() -> None:
    start_s = np.array([[0, 1, 2, 3, 4], [10, 10, 10, 10, 10]]) * HOUR
    found = summary(start_s, np.zeros(2, np.int64), np.array([3, 9]) * HOUR)
    row = dict(zip(AHEAD, found[0].tolist(), strict=True))
    assert row["ahead_wait_p50_h"] == row["ahead_wait_mean_h"] == 2.0
    assert row["ahead_wait_p25_h"] == 1.0 and row["ahead_wait_p75_h"] == 3.0
    assert row["ahead_wait_p10_h"] == pytest.approx(0.4) and row["ahead_in_time_share"] == pytest.approx(0.8)
    assert found[1].tolist() == [10.0] * 6 + [0.0]
    assert summary(np.zeros((0, 4), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)).shape == (0, len(AHEAD))
