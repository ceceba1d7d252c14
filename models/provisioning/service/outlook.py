"""What to expect of a chain under three ways to run it, from the waits of links at one instant.

With m links queued ahead, link n + m is submitted x after link n starts, and starts x + W_k after that start. In
future k every link waits W_k, so links start (x + W_k) / m apart and the gap of a handover is

    g_k = (x + W_k) / m - L,  0 <= x <= L.

This is the gap of `agent.chains.plan` for a delay of x / m and a wait of W_k / m - L (m - 1) / m, with L / m of work
left. That module chooses x and gives the expectation. Without a link ahead (m = 0) the gap is W_k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agent.chains.plan import PlannedLink, PlanTerms, covered_until, plan_candidates, plan_losses
from models.provisioning.service.moment import LinkWaits
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S

SCRIPT, ONE_AHEAD, RECOMMENDED = "script's limit, reactive", "best limit, one ahead", "recommended"
SHOWN = 5  # links of the timeline


@dataclass(frozen=True)
class ChainOutlook:
    """A way to run a chain: links of one limit, `ahead` of them queued. link: a handover of it; delay_s is x / m."""

    ahead: int
    link: PlannedLink

    @property
    def submit_after_s(self) -> int:
        """x: from the start of link n to the submission of link n + m. A reactive chain submits at the end."""
        return self.link.limit_s if self.ahead == 0 else self.ahead * self.link.delay_s

    @property
    def spacing_s(self) -> float:
        """Time from the start of a link to that of the next in the median future, s."""
        return self.link.limit_s + float(np.median(self.link.gap_s))


def reactive_outlook(terms: PlanTerms, waits: LinkWaits, limit_s: int) -> ChainOutlook:
    """Each link is submitted when the one before ends."""
    wait_s = waits.by_limit_s[limit_s]
    held_s = np.full(len(wait_s), limit_s)
    rate = float(plan_losses(terms, wait_s, np.zeros(1, np.int64), held_s)[0])
    link = PlannedLink(limit_s, limit_s, 0, rate, terms.restart_s, held_s, wait_s, waits.now_s + wait_s)
    return ChainOutlook(0, link)


def best_outlook(terms: PlanTerms, waits: LinkWaits, most_ahead: int) -> ChainOutlook:
    """The one of lowest J with 1 to `most_ahead` links ahead; of equal ones, that with fewer, then the shortest."""
    found = [_steady(terms, waits, limit_s, ahead) for ahead in range(1, most_ahead + 1) for limit_s in terms.useful_s]
    return min(found, key=lambda one: (one.link.rate, one.ahead, one.link.limit_s))


def _steady(terms: PlanTerms, waits: LinkWaits, limit_s: int, ahead: int) -> ChainOutlook:
    """The chain of links of that limit at its best x; reactive if each is best submitted when the one before ends."""
    covered_s = covered_until(waits.now_s + limit_s // ahead)

    def shared(limit_s: int, _: int) -> Int64s:
        found: Int64s = (waits.by_limit_s[limit_s] - limit_s * (ahead - 1)) // ahead
        return found

    (link,) = plan_candidates(replace(terms, limits_s=(limit_s,)), waits.now_s, covered_s, shared)
    return ChainOutlook(ahead if link.delay_s < limit_s else 0, link)


def outlook_row(
    name: str, outlook: ChainOutlook, terms: PlanTerms, waits: LinkWaits, work_s: int, nodes: int
) -> dict[str, Any]:
    """One plan of the table. Its losses are None if a link would do no work; ci95 is None without futures.

    node_hours, links: for the wanted work. first_start_s: median, epoch s; first_start_range_s: tenths.
    """
    link, wait_s = outlook.link, waits.by_limit_s[outlook.link.limit_s]
    expected = link.expectation
    both_s = float((terms.decision_s / 2 * (link.gap_s < 0)).mean())
    held_s = link.limit_s + float(np.minimum(link.gap_s, 0).mean())
    done_s = held_s - terms.restart_s
    does_work = expected["lost_h_per_day"] is not None
    return {
        "plan": name,
        "limit_s": link.limit_s,
        "ahead": outlook.ahead,
        "submit_after_s": outlook.submit_after_s,
        **{name: expected[name] for name in ("lost_h_per_day", "interruption_h", "restarts_per_day")},
        "ci95": expected["ci95"] if waits.futures else None,
        "overlap_h_per_day": both_s / done_s * DAY_S / HOUR_S if does_work else None,
        "links": int(np.ceil(work_s / done_s)) if does_work else None,
        "node_hours": nodes * work_s / HOUR_S * (held_s + both_s) / done_s if does_work else None,
        "first_start_s": waits.now_s + round(float(np.median(wait_s))),
        "first_start_range_s": [waits.now_s + round(float(at_s)) for at_s in np.quantile(wait_s, (0.1, 0.9))],
    }


def expected_links(outlook: ChainOutlook, terms: PlanTerms, waits: LinkWaits, links: int) -> list[dict[str, int]]:
    """Submission, start and end of the first links in the median future, epoch s; at most SHOWN of them.

    Each waits as long as the first, so submissions are as far apart as starts.
    """
    limit_s, spacing_s = outlook.link.limit_s, outlook.spacing_s
    wait_s = float(np.median(waits.by_limit_s[limit_s]))
    rows = []
    for number in range(min(links, SHOWN)):
        submit_s = waits.now_s + number * spacing_s
        is_last = number == links - 1
        held_s = limit_s if is_last else min(limit_s, spacing_s + terms.decision_s / 2)
        times = (submit_s, submit_s + wait_s, submit_s + wait_s + held_s)
        rows.append({"link": number + 1, **dict(zip(("submit_s", "start_s", "end_s"), map(round, times), strict=True))})
    return rows


def outlooks(
    terms: PlanTerms, waits: LinkWaits, own_s: int | None, most_ahead: int, work_s: int, nodes: int
) -> dict[str, Any]:
    """The three plans, the links of the recommended one, and it in words.

    own_s: the script's limit; None if it has none. most_ahead: links that may be queued.
    """
    best = best_outlook(terms, waits, most_ahead)
    named = [(ONE_AHEAD, best_outlook(terms, waits, 1)), (RECOMMENDED, best)]
    if own_s is not None:
        named.insert(0, (SCRIPT, reactive_outlook(terms, waits, own_s)))
    rows = [outlook_row(name, one, terms, waits, work_s, nodes) for name, one in named]
    links = rows[-1]["links"] or SHOWN
    return {
        "plans": rows,
        "recommendation": advice(rows[-1], rows[0] if own_s is not None else None),
        "timeline": expected_links(best, terms, waits, links),
    }


def advice(best: dict[str, Any], own: dict[str, Any] | None) -> str:
    """The recommended plan in words."""
    queued = ("submit each when the one before ends", "keep one queued", "keep two queued")[best["ahead"]]
    lost_h, own_h = best["lost_h_per_day"], None if own is None else own["lost_h_per_day"]
    lost = "it would do no work" if lost_h is None else f"{_figure(lost_h)} h lost a day"
    if lost_h is not None and best["ci95"] is not None:
        lost += f" [{', '.join(_figure(end) for end in best['ci95'])}]"
    instead = ""
    if own is not None:
        instead = f" in place of {'all' if own_h is None else _figure(own_h)} with {own['limit_s'] / HOUR_S:g} h"
    return f"ask for {best['limit_s'] / HOUR_S:g} h links, {queued}: {lost}{instead}"


def _figure(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 0.1 else f"{hours:.2f}"
