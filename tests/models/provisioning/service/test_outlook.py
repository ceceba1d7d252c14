"""What to expect of a chain under three ways to run it: by hand, and as a chain played link by link."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from agent.chains.plan import PlanTerms
from models.provisioning.service.moment import LinkWaits
from models.provisioning.service.outlook import (
    ONE_AHEAD,
    RECOMMENDED,
    SCRIPT,
    ChainOutlook,
    ChainWish,
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


def wish(
    asked: PlanTerms, seen: LinkWaits, own_h: int | None = 10, most_ahead: int = 2, nodes: tuple[int, ...] = (1,)
) -> ChainWish:
    own_s = () if own_h is None else (own_h * HOUR_S,)
    return ChainWish(asked, lambda _: seen, WORK_S, own_s, most_ahead, nodes)


def best(asked: PlanTerms, seen: LinkWaits, most_ahead: int) -> ChainOutlook:
    return best_outlook(wish(asked, seen), most_ahead)


def plans(*asked: ChainWish) -> dict[str, Any]:
    return outlooks(asked)


def test_a_reactive_chain_loses_its_waits_and_restarts() -> None:
    """Waits of 2 and 4 h before links of 10 h; two nodes."""
    seen = waits(h10=(2, 4))
    row = outlook_row(SCRIPT, reactive_outlook(terms(10), seen, (10 * HOUR_S,)), wish(terms(10), seen, nodes=(2,)))
    assert row["lost_h_per_day"] == pytest.approx(24 * (3 + 0.5) / 9.5) and row["interruption_h"] == 3
    assert row["ci95"] == pytest.approx([24 * 2.5 / 9.5, 24 * 4.5 / 9.5])
    assert row["restarts_per_day"] == pytest.approx(24 / 9.5) and row["overlap_h_per_day"] == 0
    assert (row["ahead"], row["links"]) == (0, int(np.ceil(240 / 9.5)))
    assert row["node_hours"] == pytest.approx(2 * 240 * 10 / 9.5)
    assert row["first_start_s"] == NOW + 3 * HOUR_S
    assert row["first_start_range_s"] == [NOW + round(2.2 * HOUR_S), NOW + round(3.8 * HOUR_S)]


def test_one_link_ahead_is_submitted_its_wait_before_the_end() -> None:
    found = best(terms(10), waits(h10=(3, 3)), 2)
    assert (found.ahead, found.submit_after_s, found.link.gap_s.tolist()) == (1, 7 * HOUR_S, [0, 0])
    tied = best(terms(10), waits(h10=(10, 10)), 2)
    assert (tied.ahead, tied.submit_after_s) == (1, 0), "two queued would lose as little"


def test_a_link_that_starts_early_costs_overlap_and_part_of_a_limit() -> None:
    """Of waits of 1 and 9 h it is best to count on the longer one: the link takes over 8 h early or in time."""
    seen = waits(h10=(1, 9))
    row = outlook_row(ONE_AHEAD, best(terms(10), seen, 1), wish(terms(10), seen))
    assert (row["submit_after_s"], row["interruption_h"]) == (HOUR_S, 0)
    assert row["restarts_per_day"] == pytest.approx(24 / (6 - 0.5))
    assert row["overlap_h_per_day"] == pytest.approx(24 * (1 / 24) / 5.5), "half of ten minutes in half of the futures"
    assert row["node_hours"] == pytest.approx(240 * (6 + 1 / 24) / 5.5)


@pytest.mark.parametrize(("wait_h", "after_h"), [(15, 5), (20, 0), (26, 0)])
def test_two_links_ahead_bridge_a_wait_of_two_links(wait_h: int, after_h: int) -> None:
    seen = waits(h10=(wait_h, wait_h))
    double, single = best(terms(10), seen, 2), best(terms(10), seen, 1)
    assert (double.ahead, double.submit_after_s) == (2, after_h * HOUR_S)
    assert (single.ahead, single.submit_after_s) == (1, 0) and single.link.gap_s[0] == (wait_h - 10) * HOUR_S
    assert double.spacing_s == max(10, wait_h / 2) * HOUR_S
    _, one, two = plans(wish(terms(10), seen))["plans"]
    assert (one["ahead"], two["ahead"]) == (1, 2) and one["interruption_h"] == wait_h - 10


def test_a_chain_that_never_waits_is_reactive_and_asks_for_the_longest() -> None:
    found = plans(wish(terms(2, 10, 24), waits(h2=(0, 0), h10=(0, 0), h24=(0, 0))))
    assert [row["ahead"] for row in found["plans"]] == [0, 0, 0]
    queued, lost = found["recommendation"].split(": ")
    assert queued == "ask for 24 h links, submit each when the one before ends"
    assert lost == "0.51 h lost a day [0.51, 0.51] in place of 1.26 with 10 h"


def test_three_plans_and_the_recommendation_in_words() -> None:
    """Links of 24 h wait 30 or 60 h, those of 10 h 2 or 4 h: timing alone makes the shorter ones best."""
    seen = waits(h10=(2, 4), h24=(30, 60))
    found = plans(wish(terms(10, 24), seen, 24))
    assert [row["plan"] for row in found["plans"]] == [SCRIPT, ONE_AHEAD, RECOMMENDED]
    own, one, recommended = found["plans"]
    assert (own["limit_s"], one["limit_s"], recommended["limit_s"]) == (24 * HOUR_S, 10 * HOUR_S, 10 * HOUR_S)
    assert own["lost_h_per_day"] == pytest.approx(24 * 45.5 / 23.5)
    assert recommended["lost_h_per_day"] <= one["lost_h_per_day"] < own["lost_h_per_day"]
    assert found["recommendation"].startswith("ask for 10 h links, keep one queued: ")
    assert found["recommendation"].endswith("] in place of 46.47 with 24 h")
    only = plans(wish(terms(10, 24), seen, None))
    assert [row["plan"] for row in only["plans"]] == [ONE_AHEAD, RECOMMENDED] and "place" not in only["recommendation"]


def test_what_is_not_known_is_none() -> None:
    """No futures: no interval. Links whose restart takes longer than their limit: no work."""
    found = plans(wish(terms(10), waits(0, h10=(3,)), most_ahead=1))
    assert [row["ci95"] for row in found["plans"]] == [None] * 3 and "[" not in found["recommendation"]
    useless = PlanTerms((HOUR_S,), 2 * HOUR_S, 0.5, 600)
    seen = waits(h1=(0,))
    row = outlook_row(SCRIPT, reactive_outlook(useless, seen, (HOUR_S,)), wish(useless, seen))
    assert [row[name] for name in ("lost_h_per_day", "ci95", "links", "node_hours", "overlap_h_per_day")] == [None] * 5


@pytest.mark.parametrize("hours", [(3, 3), (15, 15), (26, 26), (0, 0)])
def test_the_expected_links_follow_the_plan(hours: tuple[float, float]) -> None:
    seen = waits(h10=hours)
    found = best(terms(10), seen, 2)
    rows = expected_links(found, terms(10), NOW, 5)
    assert [row["link"] for row in rows] == [1, 2, 3, 4, 5] and rows[0]["submit_s"] == NOW
    assert all(row["start_s"] - row["submit_s"] == hours[0] * HOUR_S for row in rows), "each waits that long"
    assert all(row["end_s"] - row["start_s"] == 10 * HOUR_S for row in rows)
    for row in rows:
        assert sum(one["submit_s"] <= row["submit_s"] < one["start_s"] for one in rows) <= 2
    assert len(expected_links(found, terms(10), NOW, 2)) == 2
    alone = expected_links(reactive_outlook(terms(10), seen, (10 * HOUR_S,)), terms(10), NOW, 5)
    assert [row["submit_s"] for row in alone[1:]] == [row["end_s"] for row in alone[:-1]]


def test_an_expected_link_ends_soon_after_a_newer_one_starts() -> None:
    """One starts 8 h early, one in time: 4 h early in the median future, seen after five minutes."""
    seen = waits(h10=(1, 9))
    first, second, *_ = expected_links(best(terms(10), seen, 1), terms(10), NOW, 5)
    assert second["start_s"] - first["start_s"] == 6 * HOUR_S and first["end_s"] == second["start_s"] + 300


def test_links_that_can_live_with_less_get_what_fits() -> None:
    """2 h wait 1 or 3 h. In the first future 12 h fit as well, in the second only 2 h.

    Submitted 2 h before the end, so 10 h after the start of a link of 12 h, and at the start of one of 2 h: the gaps
    are -1 and 1 h. So 1 h of 6 h of work is lost.
    """
    seen, asked = waits(h2=(1, 3), h12=(1, 30)), replace(terms(2, 12), shortens=True)
    found = plans(wish(asked, seen, 12, 1))
    row = found["plans"][-1]
    assert (row["limit_s"], row["least_s"], row["ahead"]) == (12 * HOUR_S, 2 * HOUR_S, 1)
    assert row["submit_after_s"] == 5 * HOUR_S, "10 and 0 h"
    assert (row["interruption_h"], row["lost_h_per_day"]) == (0.5, pytest.approx(24 * (0.5 + 0.5) / 6))
    assert row["node_hours"] == pytest.approx(240 * (6.5 + 1 / 24) / 6) and row["links"] == 40
    assert (row["first_start_s"], row["restarts_per_day"]) == (NOW + 2 * HOUR_S, pytest.approx(24 / 6))
    assert found["recommendation"].startswith("ask for 12 h links that can live with 2 h, keep one queued: ")
    first, second, *_ = found["timeline"]
    assert first["end_s"] - first["start_s"] == 7 * HOUR_S, "12 and 2 h"
    assert second["start_s"] - first["start_s"] == 7 * HOUR_S, "11 and 3 h"
    rigid = plans(wish(terms(2, 12), seen, 12, 1))["plans"][-1]
    assert rigid["least_s"] == rigid["limit_s"] and rigid["lost_h_per_day"] > row["lost_h_per_day"]


def test_links_of_half_the_nodes_lose_half_of_their_hours() -> None:
    """Four nodes are waited for three links long, two not at all. Two links ahead of four nodes lose less."""
    of_nodes, asked = {4: waits(h10=(30, 30)), 2: waits(h10=(0, 0)), 1: waits(h10=(0, 0))}, list[int]()

    def waits_of(nodes: int) -> LinkWaits:
        asked.append(nodes)
        return of_nodes[nodes]

    four = wish(terms(10), of_nodes[4], 10, 1, (4, 2, 1))
    found = plans(replace(four, waits_of=waits_of))
    row = found["plans"][-1]
    assert (row["nodes"], row["ahead"]) == (2, 0) and 1 not in asked, "a quarter of the speed cannot win"
    assert row["lost_h_per_day"] == pytest.approx(24 * (0.5 + 9.5 / 2) / (9.5 / 2))
    assert row["node_hours"] == pytest.approx(2 * 240 * 10 / (9.5 / 2)) and row["links"] == 51
    assert found["recommendation"].startswith("ask for 10 h links on 2 of 4 nodes, submit each when")
    *_, one, two = plans(replace(four, own_s=(), most_ahead=2, nodes=(4, 2), waits_of=waits_of))["plans"]
    assert (one["nodes"], two["nodes"], two["ahead"]) == (2, 4, 2)
    assert two["lost_h_per_day"] == pytest.approx(24 * (5 + 0.5) / 9.5)


def test_a_qos_under_which_links_wait_less_is_recommended() -> None:
    """Under `short` links of 4 h wait an hour, and no longer ones are allowed; else all wait two days."""
    long_wait, soon = waits(h4=(50, 50), h10=(50, 50)), waits(h4=(1, 1))
    own = wish(terms(4, 10), long_wait)
    other = replace(own, terms=terms(4), waits_of=lambda _: soon, qos="short")
    found = plans(own, other)
    assert [row["qos"] for row in found["plans"]] == ["", "short", "short"]
    assert [row["limit_s"] // HOUR_S for row in found["plans"]] == [10, 4, 4]
    assert found["plans"][-1] == plans(replace(other, own_s=()))["plans"][-1]
    assert found["recommendation"].startswith("ask for 4 h links under QOS short, keep one queued: ")
    assert plans(own, replace(other, terms=own.terms, waits_of=own.waits_of)) == plans(own), "the script's own wins"
    alone = plans(replace(own, most_ahead=1), other)["plans"][-1]
    assert (alone["qos"], alone["ahead"]) == ("short", 1)


def played(ahead: int, left_s: int, wait_s: int, held_s: int) -> tuple[float, float, float]:
    """Hours of interruption, of service, and elapsed, of fifty links of a chain in a future, one after the other."""
    after_s = max(held_s - left_s, 0)
    starts_s = [number * (after_s + wait_s) / ahead for number in range(ahead)]
    while len(starts_s) < 51:
        starts_s.append(starts_s[-ahead] + after_s + wait_s)
    pairs = list(pairwise(starts_s))
    gap_s = sum(max(start_s - before_s - held_s, 0) for before_s, start_s in pairs)
    served_s = sum(min(start_s - before_s, held_s) for before_s, start_s in pairs)
    return gap_s / HOUR_S, served_s / HOUR_S, (starts_s[-1] - starts_s[0]) / HOUR_S


@pytest.mark.parametrize(("wait_h", "more_h"), [(2, 20), (8, 20), (8, 80), (40, 20), (40, 80)])
@pytest.mark.parametrize("most_ahead", [1, 2])
def test_a_chain_played_link_by_link_loses_what_is_expected(wait_h: int, more_h: int, most_ahead: int) -> None:
    """In each of sixteen random futures; no other moment, least limit or number of nodes loses less of an hour."""
    rng = np.random.default_rng(wait_h + more_h)
    hours = {(nodes, 4): rng.integers(0, wait_h if nodes == 2 else 4, 16) for nodes in (2, 1)}
    hours |= {(nodes, 16): hours[nodes, 4] + more_h * rng.integers(0, 2, 16) for nodes in (2, 1)}
    of_nodes = {nodes: waits(16, h4=tuple(hours[nodes, 4]), h16=tuple(hours[nodes, 16])) for nodes in (2, 1)}
    asked = PlanTerms((4 * HOUR_S, 16 * HOUR_S), RESTART_S, 0.0, HOUR_S, shortens=True)
    chain = replace(wish(asked, of_nodes[2], None, 2, (2, 1)), waits_of=of_nodes.__getitem__, scaling=0.5)
    found = best_outlook(chain, most_ahead)

    def sums(nodes: int, least_h: int, ahead: int, left_s: int) -> tuple[float, float]:
        """Hours lost of each that passes, and in a day of work."""
        fits = hours[nodes, 16] == hours[nodes, least_h]
        held_s = np.where(fits, 16, least_h) * HOUR_S
        each = [played(ahead, left_s, *one) for one in zip(hours[nodes, least_h] * HOUR_S, held_s, strict=True)]
        gap_h, served_h, elapsed_h = np.sum(each, axis=0)
        speed, restarts_h = (nodes / 2) ** 0.5, 16 * 50 * RESTART_S / HOUR_S
        work_h = speed * (served_h - restarts_h)
        rate = (gap_h + restarts_h + (1 - speed) * served_h) / max(elapsed_h, 1)
        return rate, 24 * (gap_h + served_h - work_h) / work_h

    link = found.link
    rate, lost_h = sums(link.nodes or 0, link.least_s // HOUR_S, max(found.ahead, 1), link.limit_s - link.delay_s)
    row = outlook_row(RECOMMENDED, found, chain)
    assert row["lost_h_per_day"] == pytest.approx(lost_h) and link.rate == pytest.approx(rate)
    aheads = [1, 2][:most_ahead]
    ways = [(*one, left_h * HOUR_S) for one in product((2, 1), (4, 16), aheads) for left_h in range(0, 17, one[2])]
    assert rate == pytest.approx(min(sums(*way)[0] for way in ways))
