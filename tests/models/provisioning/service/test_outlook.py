"""What to expect of a chain under three ways to run it: by hand, and as a chain played link by link."""

from __future__ import annotations

import numpy as np
import pytest

from agent.chains.plan import PlanTerms
from models.provisioning.service.moment import LinkWaits
from models.provisioning.service.outlook import (
    ONE_AHEAD,
    RECOMMENDED,
    SCRIPT,
    best_outlook,
    expected_links,
    outlook_row,
    outlooks,
    reactive_outlook,
)
from traces.units import DAY_S, HOUR_S

NOW = 100 * DAY_S
RESTART_S = HOUR_S // 2
WORK_S = 10 * DAY_S


def terms(*limits_h: int) -> PlanTerms:
    return PlanTerms(tuple(HOUR_S * limit for limit in limits_h), RESTART_S, 0.5, 600)


def waits(futures: int = 2, **of_limit: tuple[float, ...]) -> LinkWaits:
    """Waits in hours by limit: h10=(2, 4)."""
    found = {
        HOUR_S * int(name[1:]): np.rint(HOUR_S * np.array(hours)).astype(np.int64) for name, hours in of_limit.items()
    }
    return LinkWaits(NOW, found, futures, 0)


def test_a_reactive_chain_loses_its_waits_and_restarts() -> None:
    """Waits of 2 and 4 h before links of 10 h; two nodes."""
    seen = waits(h10=(2, 4))
    row = outlook_row(SCRIPT, reactive_outlook(terms(10), seen, 10 * HOUR_S), terms(10), seen, WORK_S, 2)
    assert row["lost_h_per_day"] == pytest.approx(24 * (3 + 0.5) / 9.5) and row["interruption_h"] == 3
    assert row["ci95"] == pytest.approx([24 * 2.5 / 9.5, 24 * 4.5 / 9.5])
    assert row["restarts_per_day"] == pytest.approx(24 / 9.5) and row["overlap_h_per_day"] == 0
    assert (row["ahead"], row["links"]) == (0, int(np.ceil(240 / 9.5)))
    assert row["node_hours"] == pytest.approx(2 * 240 * 10 / 9.5)
    assert row["first_start_s"] == NOW + 3 * HOUR_S
    assert row["first_start_range_s"] == [NOW + round(2.2 * HOUR_S), NOW + round(3.8 * HOUR_S)]


def test_one_link_ahead_is_submitted_its_wait_before_the_end() -> None:
    best = best_outlook(terms(10), waits(h10=(3, 3)), 2)
    assert (best.ahead, best.submit_after_s, best.link.gap_s.tolist()) == (1, 7 * HOUR_S, [0, 0])
    tied = best_outlook(terms(10), waits(h10=(10, 10)), 2)
    assert (tied.ahead, tied.submit_after_s) == (1, 0), "two queued would lose as little"


def test_a_link_that_starts_early_costs_overlap_and_part_of_a_limit() -> None:
    """Of waits of 1 and 9 h it is best to count on the longer one: the link takes over 8 h early or in time."""
    seen = waits(h10=(1, 9))
    row = outlook_row(ONE_AHEAD, best_outlook(terms(10), seen, 1), terms(10), seen, WORK_S, 1)
    assert (row["submit_after_s"], row["interruption_h"]) == (HOUR_S, 0)
    assert row["restarts_per_day"] == pytest.approx(24 / (6 - 0.5))
    assert row["overlap_h_per_day"] == pytest.approx(24 * (1 / 24) / 5.5), "half of ten minutes in half of the futures"
    assert row["node_hours"] == pytest.approx(240 * (6 + 1 / 24) / 5.5)


@pytest.mark.parametrize(("wait_h", "after_h"), [(15, 5), (20, 0), (26, 0)])
def test_two_links_ahead_bridge_a_wait_of_two_links(wait_h: int, after_h: int) -> None:
    seen = waits(h10=(wait_h, wait_h))
    best, single = best_outlook(terms(10), seen, 2), best_outlook(terms(10), seen, 1)
    assert (best.ahead, best.submit_after_s) == (2, after_h * HOUR_S)
    assert (single.ahead, single.submit_after_s) == (1, 0) and single.link.gap_s[0] == (wait_h - 10) * HOUR_S
    start_s = [0, best.spacing_s]  # link by link: two starts before, after_h later, and then its wait
    for number in range(2, 8):
        start_s.append(start_s[number - 2] + (after_h + wait_h) * HOUR_S)
    assert start_s[-1] - start_s[-2] == best.spacing_s == max(10, wait_h / 2) * HOUR_S
    _, one, two = outlooks(terms(10), seen, 10 * HOUR_S, 2, WORK_S, 1)["plans"]
    assert (one["ahead"], two["ahead"]) == (1, 2) and one["interruption_h"] == wait_h - 10


def test_a_chain_that_never_waits_is_reactive_and_asks_for_the_longest() -> None:
    found = outlooks(terms(2, 10, 24), waits(h2=(0, 0), h10=(0, 0), h24=(0, 0)), 10 * HOUR_S, 2, WORK_S, 1)
    assert [row["ahead"] for row in found["plans"]] == [0, 0, 0]
    queued, lost = found["recommendation"].split(": ")
    assert queued == "ask for 24 h links, submit each when the one before ends"
    assert lost == "0.5 h lost a day [0.5, 0.5] in place of 1.3 with 10 h"


def test_three_plans_and_the_recommendation_in_words() -> None:
    """Links of 24 h wait 30 or 60 h, those of 10 h 2 or 4 h: timing alone makes the shorter ones best."""
    seen = waits(h10=(2, 4), h24=(30, 60))
    found = outlooks(terms(10, 24), seen, 24 * HOUR_S, 2, WORK_S, 1)
    assert [row["plan"] for row in found["plans"]] == [SCRIPT, ONE_AHEAD, RECOMMENDED]
    own, one, best = found["plans"]
    assert (own["limit_s"], one["limit_s"], best["limit_s"]) == (24 * HOUR_S, 10 * HOUR_S, 10 * HOUR_S)
    assert own["lost_h_per_day"] == pytest.approx(24 * 45.5 / 23.5)
    assert best["lost_h_per_day"] <= one["lost_h_per_day"] < own["lost_h_per_day"]
    assert found["recommendation"].startswith("ask for 10 h links, keep one queued: ")
    assert found["recommendation"].endswith("] in place of 46.5 with 24 h")
    only = outlooks(terms(10, 24), seen, None, 2, WORK_S, 1)
    assert [row["plan"] for row in only["plans"]] == [ONE_AHEAD, RECOMMENDED] and "place" not in only["recommendation"]


def test_what_is_not_known_is_none() -> None:
    """No futures: no interval. Links whose restart takes longer than their limit: no work."""
    found = outlooks(terms(10), waits(0, h10=(3,)), 10 * HOUR_S, 1, WORK_S, 1)
    assert [row["ci95"] for row in found["plans"]] == [None] * 3 and "[" not in found["recommendation"]
    useless = PlanTerms((HOUR_S,), 2 * HOUR_S, 0.5, 600)
    row = outlook_row(SCRIPT, reactive_outlook(useless, waits(h1=(0,)), HOUR_S), useless, waits(h1=(0,)), WORK_S, 1)
    assert [row[name] for name in ("lost_h_per_day", "ci95", "links", "node_hours", "overlap_h_per_day")] == [None] * 5


@pytest.mark.parametrize("hours", [(3, 3), (15, 15), (26, 26), (0, 0)])
def test_the_expected_links_follow_the_plan(hours: tuple[float, float]) -> None:
    seen = waits(h10=hours)
    best = best_outlook(terms(10), seen, 2)
    rows = expected_links(best, terms(10), seen, 5)
    assert [row["link"] for row in rows] == [1, 2, 3, 4, 5] and rows[0]["submit_s"] == NOW
    assert all(row["start_s"] - row["submit_s"] == hours[0] * HOUR_S for row in rows), "each waits that long"
    assert all(row["end_s"] - row["start_s"] == 10 * HOUR_S for row in rows)
    for row in rows:
        assert sum(one["submit_s"] <= row["submit_s"] < one["start_s"] for one in rows) <= 2
    assert len(expected_links(best, terms(10), seen, 2)) == 2
    alone = expected_links(reactive_outlook(terms(10), seen, 10 * HOUR_S), terms(10), seen, 5)
    assert [row["submit_s"] for row in alone[1:]] == [row["end_s"] for row in alone[:-1]]


def test_an_expected_link_ends_soon_after_a_newer_one_starts() -> None:
    """One starts 8 h early, one in time: 4 h early in the median future, seen after five minutes."""
    seen = waits(h10=(1, 9))
    first, second, *_ = expected_links(best_outlook(terms(10), seen, 1), terms(10), seen, 5)
    assert second["start_s"] - first["start_s"] == 6 * HOUR_S and first["end_s"] == second["start_s"] + 300
