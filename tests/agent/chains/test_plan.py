"""The arithmetic of a plan: its objective by hand, and what it says is to be expected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agent.chains.plan import (
    PlannedLink,
    PlanTerms,
    best_of,
    cautious_s,
    covered_until,
    elastic_candidates,
    node_counts,
    plan_candidates,
    plan_losses,
    plan_moment,
)
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S

NOW = 100 * HOUR_S


def terms(*limits_h: float, restart_s: int = HOUR_S // 2) -> PlanTerms:
    return PlanTerms(tuple(int(limit * HOUR_S) for limit in limits_h), restart_s, 0.5, HOUR_S)


def test_the_objective_is_the_expected_loss_for_each_hour_added() -> None:
    """Gaps of 3 and -1 h at once, 4 and 0 h an hour later; a restart costs 0.5 h, half an hour of both jobs 0.25 h."""
    gap_s = np.array([3, -1]) * HOUR_S
    now, later = plan_losses(terms(10), gap_s, np.array([0, HOUR_S]), np.full(2, 10 * HOUR_S))
    assert now == pytest.approx(((3 + 0 + 0.25) / 2 + 0.5) / (10 + 1))
    assert later == pytest.approx((4 / 2 + 0.5) / (10 + 2))


def test_a_link_that_would_add_nothing_is_never_best() -> None:
    assert plan_losses(terms(1), np.array([-5 * HOUR_S]), np.array([0]), np.array([HOUR_S])).tolist() == [np.inf]


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
    early = replace(found, gap_s=found.gap_s - 2 * HOUR_S)
    assert early.expectation["lost_h_per_day"] is None and early.expectation["ci95"] is None


def test_of_a_delay_the_wait_after_it_counts() -> None:
    """Four hours left: two hours of 2 h start at once now, or 9 h later than submitted; 12 h wait for 5 h now."""
    asked: list[tuple[int, int]] = []
    waits = lambda limit_s, horizon_s: np.array([0 if limit_s == 2 * HOUR_S else 5 * HOUR_S])  # noqa: E731

    def later(limit_s: int, horizon_s: int, delay_s: int) -> np.ndarray:
        asked.append((limit_s // HOUR_S, delay_s // HOUR_S))
        assert horizon_s == 4 * HOUR_S + DAY_S
        return np.array([9 * HOUR_S])

    short = replace(terms(2, 12), restart_s=600)
    until = np.array([NOW + 4 * HOUR_S])
    alike = best_of(plan_candidates(short, NOW, until, waits))
    assert (alike.limit_s, alike.delay_s) == (2 * HOUR_S, 4 * HOUR_S)
    found = best_of(plan_candidates(short, NOW, until, waits, later))
    assert (found.limit_s, found.delay_s) == (12 * HOUR_S, 0) and found.rate == pytest.approx((1 + 1 / 6) / 13)
    assert sorted(asked) == [(2, 2), (2, 4)], "12 h are best submitted now; 2 h after four hours, of which two are seen"


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
    (found,) = plan_candidates(terms(2, 12), NOW, covered, waits)
    (short,) = plan_candidates(terms(2), NOW, covered, waits)
    assert found.limit_s == 12 * HOUR_S and short.rate > found.rate


def test_the_start_estimate_is_one_more_future_and_a_queued_link_covers_the_work() -> None:
    assert cautious_s(np.array([100, 200]), 300.0).tolist() == [150, 300, 600]
    assert covered_until(50).tolist() == [50]
    assert covered_until(50, {30: np.array([10, 60])}).tolist() == [50, 90, 90]


@pytest.mark.parametrize(("weight", "delay_h"), [(0.1, 3), (0.5, 5), (4.0, 7)])
def test_a_job_that_never_saves_counts_the_whole_overlap(weight: float, delay_h: int) -> None:
    """Waits of 1, 3 and 5 h, an end in 8 h: the dearer the overlap, the later a link is submitted."""
    wait_s = np.array([1, 3, 5]) * HOUR_S
    found = plan_moment(replace(terms(10), weight=weight), NOW, NOW + 8 * HOUR_S, lambda *_: wait_s, is_held=False)
    assert found.delay_s == delay_h * HOUR_S and found.gap_s.tolist() == (wait_s + found.delay_s - 8 * HOUR_S).tolist()


@pytest.mark.parametrize(("weight", "later_h", "delay_h"), [(0.5, 0, 7), (0.5, 9, 2), (0.01, 9, 0)])
def test_a_job_that_never_saves_plans_with_the_wait_after_a_delay(weight: float, later_h: int, delay_h: int) -> None:
    """A link submitted now waits 1 h, with 8 h left, and 10 h after a delay: it is submitted soon, or now."""

    def waits(limit_s: int, horizon_s: int, delay_s: int = 0) -> Int64s:
        assert horizon_s == 8 * HOUR_S + DAY_S
        return np.array([1 + later_h * (delay_s > 0)]) * HOUR_S

    found = plan_moment(replace(terms(10), weight=weight), NOW, NOW + 8 * HOUR_S, waits, is_held=False)
    assert found.delay_s == delay_h * HOUR_S and found.soon_s.tolist() == [-7 * HOUR_S]
    assert found.start_s.tolist() == [NOW + waits(0, 8 * HOUR_S + DAY_S, found.delay_s)[0] + found.delay_s]


def test_a_held_link_starts_no_earlier_than_the_end_of_the_older_one() -> None:
    found = plan_moment(terms(10), NOW, NOW + 4 * HOUR_S, lambda *_: np.array([1, 6]) * HOUR_S, is_held=True)
    assert found.delay_s == 0 and found.gap_s.tolist() == [0, 2 * HOUR_S]
    assert found.start_s.tolist() == [NOW + 4 * HOUR_S, NOW + 6 * HOUR_S]
    assert found.rate == pytest.approx((1 + 0.5) / (10 + 1))


def test_a_link_that_can_live_with_less_is_placed_by_its_least_limit_and_gets_what_fits() -> None:
    """2 h start at once in both futures; 12 h too in the first, and 5 h later in the second."""
    waits_h = {2: [0, 0], 12: [0, 5], 48: [9, 9]}
    waits = lambda limit_s, horizon_s: np.array(waits_h[limit_s // HOUR_S]) * HOUR_S  # noqa: E731
    found = plan_candidates(replace(terms(2, 12, 48), shortens=True), NOW, np.array([NOW]), waits)
    assert [(one.limit_s, one.least_s) for one in found] == [(48 * HOUR_S, least * HOUR_S) for least in (48, 12, 2)]
    assert [(one.held_s // HOUR_S).tolist() for one in found] == [[48, 48], [12, 12], [12, 2]]
    assert found[2].rate == pytest.approx(0.5 / 7) and best_of(found).least_s == 2 * HOUR_S
    alike = plan_candidates(replace(terms(2, 12), shortens=True), NOW, np.array([NOW]), lambda *_: np.zeros(2, int))
    assert best_of(alike).least_s == best_of(alike).limit_s == 12 * HOUR_S, "less is offered only where that helps"


def test_a_queued_link_covers_the_work_for_as_long_as_it_will_get() -> None:
    """Its least limit of 30 s starts at 10 or 60; 80 s only fit in the first future."""
    starts = {30: np.array([10, 60]), 80: np.array([10, 99])}
    assert covered_until(50, starts).tolist() == [90, 90, 90]
    assert covered_until(50, starts | {90: np.array([10, 60])}).tolist() == [100, 150, 150]
    assert covered_until(40, {30: np.array([10, 20]), 80: np.array([10, 99])}).tolist() == [90, 50, 50], (
        "the latest start"
    )


def test_a_slow_link_loses_hours_and_is_cheap_to_replace() -> None:
    """10 h at half the speed lose 5; taking over 2 h early from a link of half the speed saves 1 h."""
    slow = replace(terms(10), speed=0.5)
    gap_s, held_s = np.array([HOUR_S]), np.array([10 * HOUR_S])
    assert plan_losses(slow, gap_s, np.array([0]), held_s) == pytest.approx((1 + 0.5 + 5) / 11)
    early = replace(terms(10), covered_speed=0.5)
    assert plan_losses(early, -2 * gap_s, np.array([0]), held_s) == pytest.approx((0.25 + 0.5 - 1) / 8)
    (found,) = plan_candidates(slow, NOW, np.array([NOW]), lambda *_: np.zeros(1, int))
    assert found.expectation["lost_h_per_day"] == pytest.approx(24 * (0.5 + 4.75) / 4.75)


@pytest.mark.parametrize(("nodes", "least", "found"), [(16, 3, (16, 8, 4, 3)), (6, 6, (6,)), (1, 1, (1,))])
def test_numbers_of_nodes_are_halves(nodes: int, least: int, found: tuple[int, ...]) -> None:
    assert node_counts(nodes, least) == found


@pytest.mark.parametrize(("wait_h", "simulated"), [(1, [4]), (15, [4, 2, 1])])
def test_numbers_of_nodes_that_cannot_win_are_not_simulated(wait_h: int, simulated: list[int]) -> None:
    asked: list[int] = []

    def of_nodes(one: PlanTerms, nodes: int) -> list[PlannedLink]:
        asked.append(nodes)
        return plan_candidates(one, NOW, np.array([NOW]), lambda *_: np.array([wait_h * HOUR_S]))

    found = elastic_candidates(terms(10), (4, 2, 1), 0.5, of_nodes)
    assert asked == simulated and best_of(found).nodes == 4
