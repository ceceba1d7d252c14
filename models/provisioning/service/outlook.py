"""What to expect of a chain under three ways to run it, from the waits of links at one instant.

In future k every link waits W_k and gets the limit H_k. With m links queued ahead, link n + m is submitted when link n
has y left, or at its start if it got less than y. That is x_k = max(H_k - y, 0) after link n starts, and link n + m
starts W_k later, so links start (x_k + W_k) / m apart. The gap of a handover is

    g_k = (x_k + W_k) / m - H_k,  0 <= y <= L.

Without a link ahead, y = 0 and m = 1 in this formula. `agent.chains.plan` says which limits and numbers of nodes are
compared, what H_k is where a link may get less than L, and how the objective J follows from g_k and H_k; the y of
lowest J is taken. All links of a chain have the same QOS and number of nodes, so both speeds of J are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agent.chains.plan import PlannedLink, PlanTerms, best_of, elastic_candidates, granted_s, plan_losses
from models.provisioning.service.moment import LinkWaits
from traces.counted import counted
from traces.units import DAY_S, HOUR_S

SCRIPT, ONE_AHEAD, RECOMMENDED = "script's limit, reactive", "best limit, one ahead", "recommended"
SHOWN = 5  # links of the timeline
AT_ONCE = np.zeros(1, np.int64)


@dataclass(frozen=True)
class ChainWish:
    """What a chain of links of one QOS is planned for. waits_of(nodes): the waits of such links."""

    terms: PlanTerms
    waits_of: Callable[[int], LinkWaits] = field(repr=False)
    work_s: int
    own_s: tuple[int, ...]  # limits that a link of the script may get, rising to the one it asks for; () if it has none
    most_ahead: int  # links that may be queued
    nodes: tuple[int, ...]  # that links may have, falling from the script's
    scaling: float = 1.0  # on n of N nodes a link works (n / N) ** scaling as fast
    qos: str = ""  # "": the script's


@dataclass(frozen=True)
class ChainOutlook:
    """A way to run a chain of equal links, `ahead` of them queued. link: a handover of it; delay_s is L - y."""

    ahead: int
    link: PlannedLink

    @property
    def submit_after_s(self) -> int:
        """x: from the start of link n to the submission of link n + m (or n + 1), in the median future."""
        left_s = self.link.limit_s - self.link.delay_s
        return round(float(np.median(np.maximum(self.link.held_s - left_s, 0))))

    @property
    def spacing_s(self) -> float:
        """Time from the start of a link to that of the next in the median future, s."""
        return float(np.median(self.link.held_s + self.link.gap_s))


def outlook_of(
    terms: PlanTerms, waits: LinkWaits, limits_s: Iterable[int], ahead: int, delays_s: Iterable[int]
) -> PlannedLink:
    """The link of lowest J of those delays L - y. limits_s: that it may get. ahead: 1 also for a reactive chain."""
    known = {limit_s: waits.by_limit_s[limit_s] for limit_s in limits_s}
    asked_s, least_s, held_s = max(known), min(known), granted_s(known)
    wait_s, found = known[least_s], list[PlannedLink]()
    for delay_s in delays_s:
        after_s = np.maximum(held_s - (asked_s - delay_s), 0)
        gap_s = (after_s + wait_s) // ahead - held_s
        rate = float(plan_losses(terms, gap_s, AT_ONCE, held_s)[0])
        start_s = waits.now_s + wait_s
        found.append(
            PlannedLink(asked_s, least_s, delay_s, rate, terms.restart_s, held_s, gap_s, start_s, gap_s, terms.speed)
        )
    return min(found, key=lambda one: one.rate)


def reactive_outlook(terms: PlanTerms, waits: LinkWaits, may_get_s: tuple[int, ...]) -> ChainOutlook:
    """Each link is submitted when the one before ends."""
    return ChainOutlook(0, outlook_of(terms, waits, may_get_s, 1, may_get_s[-1:]))


def best_outlook(wish: ChainWish, most_ahead: int) -> ChainOutlook:
    """The one of lowest J with 1 to `most_ahead` links ahead; of equal ones, that with fewer, then as `best_of`.

    It is reactive if each link is best submitted when the one before ends.
    """

    def best(ahead: int) -> ChainOutlook:
        def of_nodes(terms: PlanTerms, nodes: int) -> list[PlannedLink]:
            terms, waits = replace(terms, covered_speed=terms.speed), wish.waits_of(nodes)
            return [_best_moment(terms, waits, least_s, ahead) for least_s in terms.useful_s]

        link = replace(best_of(elastic_candidates(wish.terms, wish.nodes, wish.scaling, of_nodes)), qos=wish.qos)
        is_reactive = ahead == 1 and link.delay_s == link.limit_s
        return ChainOutlook(0 if is_reactive else ahead, link)

    return min(map(best, range(1, min(most_ahead, wish.most_ahead) + 1)), key=lambda one: one.link.rate)


def _best_moment(terms: PlanTerms, waits: LinkWaits, least_s: int, ahead: int) -> PlannedLink:
    """The chain of links that get that limit, or may get any useful one from it on."""
    may_get = [limit_s for limit_s in terms.useful_s if limit_s == least_s or (terms.shortens and limit_s > least_s)]
    return outlook_of(terms, waits, may_get, ahead, range(0, may_get[-1] + 1, ahead * terms.decision_s))


def outlook_row(name: str, outlook: ChainOutlook, wish: ChainWish) -> dict[str, Any]:
    """One plan of the table. Its losses are None if a link would do no work; ci95 is None without futures.

    node_hours, links: for the wanted work. first_start_s: median, epoch s; first_start_range_s: tenths.
    """
    link, terms, nodes = outlook.link, wish.terms, outlook.link.nodes or wish.nodes[0]
    expected = link.expectation
    both_s = float((terms.decision_s / 2 * (link.gap_s < 0)).mean())
    held_s = float((link.held_s + np.minimum(link.gap_s, 0)).mean())
    done_s = link.speed * (held_s - terms.restart_s)
    does_work = expected["lost_h_per_day"] is not None
    return {
        "plan": name,
        "limit_s": link.limit_s,
        "least_s": link.least_s,
        "nodes": nodes,
        "qos": link.qos,
        "ahead": outlook.ahead,
        "submit_after_s": outlook.submit_after_s,
        **{name: expected[name] for name in ("lost_h_per_day", "interruption_h", "restarts_per_day")},
        "ci95": expected["ci95"] if wish.waits_of(nodes).futures else None,
        "overlap_h_per_day": both_s / done_s * DAY_S / HOUR_S if does_work else None,
        "links": int(np.ceil(wish.work_s / done_s)) if does_work else None,
        "node_hours": nodes * wish.work_s / HOUR_S * (held_s + both_s) / done_s if does_work else None,
        "first_start_s": round(float(np.median(link.start_s))),
        "first_start_range_s": [round(float(at_s)) for at_s in np.quantile(link.start_s, (0.1, 0.9))],
    }


def expected_links(outlook: ChainOutlook, terms: PlanTerms, now_s: int, links: int) -> list[dict[str, int]]:
    """Submission, start and end of the first links in the median future, epoch s; at most SHOWN of them.

    Each waits as long as the first, so submissions are as far apart as starts.
    """
    spacing_s, wait_s = outlook.spacing_s, float(np.median(outlook.link.start_s)) - now_s
    limit_s = float(np.median(outlook.link.held_s))
    rows = []
    for number in range(min(links, SHOWN)):
        submit_s = now_s + number * spacing_s
        is_last = number == links - 1
        held_s = limit_s if is_last else min(limit_s, spacing_s + terms.decision_s / 2)
        times = (submit_s, submit_s + wait_s, submit_s + wait_s + held_s)
        rows.append({"link": number + 1, **dict(zip(("submit_s", "start_s", "end_s"), map(round, times), strict=True))})
    return rows


def outlooks(wishes: Sequence[ChainWish]) -> dict[str, Any]:
    """The three plans, the links of the recommended one, and it in words. wishes: one for each QOS, first the script's.

    Of QOS that lose the same, the first one wins.
    """
    own, by_qos = wishes[0], {wish.qos: wish for wish in wishes}

    def best(most_ahead: int) -> ChainOutlook:
        return min((best_outlook(wish, most_ahead) for wish in wishes), key=lambda one: one.link.rate)

    recommended = best(max(wish.most_ahead for wish in wishes))
    named = [(ONE_AHEAD, best(1)), (RECOMMENDED, recommended)]
    if own.own_s:
        named.insert(0, (SCRIPT, reactive_outlook(own.terms, own.waits_of(own.nodes[0]), own.own_s)))
    rows = [outlook_row(name, one, by_qos[one.link.qos]) for name, one in named]
    links, now_s = rows[-1]["links"] or SHOWN, own.waits_of(own.nodes[0]).now_s
    return {
        "plans": rows,
        "recommendation": advice(rows[-1], rows[0] if own.own_s else None, own.nodes[0]),
        "timeline": expected_links(recommended, own.terms, now_s, links),
    }


def advice(best: dict[str, Any], own: dict[str, Any] | None, nodes: int) -> str:
    """The recommended plan in words. nodes: the script's."""
    least = "" if best["least_s"] == best["limit_s"] else f" that can live with {best['least_s'] / HOUR_S:g} h"
    fewer = "" if best["nodes"] == nodes else f" on {best['nodes']:,} of {counted(nodes, 'node')}"
    other = f" under QOS {best['qos']}" if best["qos"] else ""
    queued = ("submit each when the one before ends", "keep one queued", "keep two queued")[best["ahead"]]
    lost_h, own_h = best["lost_h_per_day"], None if own is None else own["lost_h_per_day"]
    lost = "it would do no work" if lost_h is None else f"{lost_h:.2f} h lost a day"
    if lost_h is not None and best["ci95"] is not None:
        lost += f" [{best['ci95'][0]:.2f}, {best['ci95'][1]:.2f}]"
    instead = ""
    if own is not None:
        instead = f" in place of {'all' if own_h is None else f'{own_h:.2f}'} with {own['limit_s'] / HOUR_S:g} h"
    return f"ask for {best['limit_s'] / HOUR_S:g} h links{least}{fewer}{other}, {queued}: {lost}{instead}"
