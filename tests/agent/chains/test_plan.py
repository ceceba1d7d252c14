"""The arithmetic of a plan: its objective by hand, and what it says is to be expected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agent.chains.plan import PlanTerms, best_of, cautious_s, covered_until, plan_candidates, plan_losses, plan_moment
from traces.units import DAY_S, HOUR_S

NOW = 100 * HOUR_S


def terms(*limits_h: float, restart_s: int = HOUR_S // 2) -> PlanTerms:
    return PlanTerms(tuple(int(limit * HOUR_S) for limit in limits_h), restart_s, 0.5, HOUR_S)


def test_the_objective_is_the_expected_loss_for_each_hour_added() -> None:
    """Gaps of 3 and -1 h at once, 4 and 0 h an hour later; a restart costs 0.5 h, half an hour of both jobs 0.25 h."""
    gap_s = np.array([3, -1]) * HOUR_S
    now, later = plan_losses(terms(10), gap_s, np.array([0, HOUR_S]), 10 * HOUR_S)
    assert now == pytest.approx(((3 + 0 + 0.25) / 2 + 0.5) / (10 + 1))
    assert later == pytest.approx((4 / 2 + 0.5) / (10 + 2))


def test_a_link_that_would_add_nothing_is_never_best() -> None:
    assert plan_losses(terms(1), np.array([-5 * HOUR_S]), np.array([0]), HOUR_S).tolist() == [np.inf]


def test_what_to_expect_of_a_candidate() -> None:
    """Waits of 3 and 5 h, an end in 4 h: 0 or 1 h of interruption in 9 or 10 h, a restart of 0.5 h."""
    waits = lambda limit_s, horizon_s: np.array([3, 5]) * HOUR_S  # noqa: E731
    (found,) = plan_candidates(terms(10), NOW, np.array([NOW + 4 * HOUR_S]), waits)
    expected = found.expectation
    assert (found.delay_s, expected["delay_s"]) == (0, 0)
    assert expected["lost_h_per_day"] == pytest.approx(24 * (0.5 + 0.5) / (9.5 - 0.5))
    assert expected["ci95"] == pytest.approx([24 * 0.5 / 8.5, 24 * 1.5 / 9.5])
    assert expected["restarts_per_day"] == pytest.approx(24 / 9)
    assert expected["start_s"] == NOW + 4 * HOUR_S and expected["start_range_s"][0] < expected["start_range_s"][1]


def test_nothing_is_expected_of_a_link_that_would_do_no_work() -> None:
    waits = lambda limit_s, horizon_s: np.zeros(2, np.int64)  # noqa: E731
    (found,) = plan_candidates(terms(2), NOW, np.array([NOW + 1]), waits)
    early = type(found)(found.limit_s, 0, np.inf, HOUR_S, found.gap_s - 2 * HOUR_S, found.start_s)
    assert early.expectation["lost_h_per_day"] is None and early.expectation["ci95"] is None


def test_a_limit_below_three_restart_costs_is_no_candidate() -> None:
    asked: list[int] = []

    def waits(limit_s: int, horizon_s: int) -> np.ndarray:
        asked.append(limit_s)
        assert horizon_s == 4 * HOUR_S + DAY_S
        return np.array([10 * HOUR_S])

    found = plan_candidates(terms(1, 2, 12), NOW, np.array([NOW + 4 * HOUR_S]), waits)
    assert asked == [12 * HOUR_S, 2 * HOUR_S] and best_of(found).limit_s == 12 * HOUR_S


def test_a_limit_is_left_out_if_its_restarts_alone_cost_more_than_a_longer_one() -> None:
    waits = lambda limit_s, horizon_s: np.array([0])  # noqa: E731
    covered = np.array([NOW])
    assert [one.limit_s for one in plan_candidates(terms(2, 12), NOW, covered, waits)] == [12 * HOUR_S]
    assert len(plan_candidates(terms(2, 12), NOW, covered, waits, prune=False)) == 2


def test_the_start_estimate_is_one_more_future_and_a_queued_link_covers_the_work() -> None:
    assert cautious_s(np.array([100, 200]), 300.0).tolist() == [150, 300, 600]
    assert cautious_s(np.array([100]), None).tolist() == [150]
    assert covered_until(50).tolist() == [50]
    assert covered_until(50, np.array([10, 60]), 30).tolist() == [50, 90, 90]


@pytest.mark.parametrize(("weight", "delay_h"), [(0.1, 3), (0.5, 5), (4.0, 7)])
def test_a_job_that_never_saves_counts_the_whole_overlap(weight: float, delay_h: int) -> None:
    """Waits of 1, 3 and 5 h, an end in 8 h: the dearer the overlap, the later a link is submitted."""
    wait_s = np.array([1, 3, 5]) * HOUR_S
    found = plan_moment(replace(terms(10), weight=weight), NOW, NOW + 8 * HOUR_S, wait_s, is_held=False)
    assert found.delay_s == delay_h * HOUR_S and found.gap_s.tolist() == (wait_s + found.delay_s - 8 * HOUR_S).tolist()


def test_a_held_link_starts_no_earlier_than_the_end_of_the_older_one() -> None:
    found = plan_moment(terms(10), NOW, NOW + 4 * HOUR_S, np.array([1, 6]) * HOUR_S, is_held=True)
    assert found.delay_s == 0 and found.gap_s.tolist() == [0, 2 * HOUR_S]
    assert found.start_s.tolist() == [NOW + 4 * HOUR_S, NOW + 6 * HOUR_S]
    assert found.rate == pytest.approx((1 + 0.5) / (10 + 1))
