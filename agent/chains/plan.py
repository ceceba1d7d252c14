"""Plan the next link of a chain: which time limit to ask for, and when to submit. Arithmetic on simulated futures.

The simulated chains (`models.provisioning.service.plan`) and the agent (`agent.chains.planner`) plan with it.

A candidate is a limit L and a delay x: a link of limit L, submitted x from now (x = 0: at once). In future k let W_k(L)
be CAUTION x the wait of a link of limit L submitted now, and W_k(L, x) that of one submitted after a delay x. In one
more future both are ESTIMATES x the start estimate by limits, because waits in futures are too short in the tail. A
delay changes the wait: meanwhile other jobs arrive, and a hole that a link would fill now may close. Let C_k be the
time until which the links submitted so far cover the work: the end of the last running link, or, with a link queued,
that link's start in future k plus its limit (its latest start for the additional future). The gap of the candidate is

    g_k = now + x + W_k(L, x) - C_k,

an interruption if positive. If negative, the new link takes over g_k early and the serving one is ended, so that
nothing is lost but part of the serving link's limit. In both cases the work is covered for L + g_k longer than without
the candidate. The candidate's objective is the expected loss for each hour that it adds:

    J(L, x) = mean_k(max(g_k, 0) + restart + weight x half a decision interval x [g_k < 0]) / mean_k(L + g_k).

`restart` is the cost of taking over; half a decision interval is how long both links run before anybody sees it. This
is the renewal-reward rate if each later handover were like this one. The next link is submitted if no candidate with
x > 0 has a lower J than the best with x = 0. All candidates meet the same futures (common random numbers).

Delays are tried first as if the wait after them were that of now. If a limit then has a lower J than the best found,
the waits after two delays are simulated: after the x of that J, and after the time to the next decision in that case
(`pause_until`). Without futures the wait after a delay is that of now.

A job that can live with less than its limit (`PlanTerms.shortens`) may name a least limit (sbatch --time-min). Slurm
starts it as early as a link of the least limit T and gives it the longest limit up to L that fits then. In future k
that is the longest listed limit whose wait is no longer than W_k(T). A longer L never delays it, so L is the longest
listed limit, a candidate is T, and the limit that it gets in future k takes the place of L above.

An elastic job may run on fewer nodes than its own N. On n nodes it works at a speed s = (n / N) ** scaling, so 1 - s of
its hours are lost, and a link that takes over early from one of speed s' gives up only s' of each of those hours. J's
numerator is then larger by mean_k((1 - s) L + (1 - s') min(g_k, 0)). No such J is below 1 - s unless s > s'.

Candidates are pruned: limits under LEAST_RESTARTS restart costs, and limits L with restart / L above the lowest J found
for a longer limit, because J(L, x) is no lower wherever a gap is expected. (Not if a link may get more than T.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traces.arrays import Float64s, Int64s
from traces.units import DAY_S, HOUR_S

AHEAD = 2  # most links queued at once
LOOKS_EVERY_S = 2 * HOUR_S  # longest time between two plans
# Factors on the waits in futures and on the start estimate, chosen on January 2023 of the A100 trace.
CAUTION, ESTIMATES = 1.5, 2.0
LEAST_RESTARTS = 3  # a limit is worth asking for from this many restart costs on
DRAWS = 400  # of futures, for an interval


@dataclass(frozen=True)
class PlanTerms:
    """What a plan is made for. Times in seconds."""

    limits_s: tuple[int, ...]  # that a link may ask for, rising
    restart_s: int  # lost in each link after the first
    weight: float  # hours lost that an hour of overlap is worth
    decision_s: int  # between two decisions
    shortens: bool = False  # whether a link may get less than it asks for (--time-min)
    speed: float = 1.0  # of the link, work done in an hour
    covered_speed: float = 1.0  # of the link that covers the work until then

    @property
    def useful_s(self) -> tuple[int, ...]:
        """The limits that restarts do not use up, rising."""
        return tuple(limit_s for limit_s in self.limits_s if limit_s >= LEAST_RESTARTS * self.restart_s)


@dataclass(frozen=True)
class PlannedLink:
    """A limit at its best delay, s. rate: its J. least_s: the least limit that it may get.

    held_s, gap_s, start_s: (futures,) the limit that it gets and the gap, s, and the start, epoch s. soon_s: (futures,)
    the gap without the delay, s.
    """

    limit_s: int
    least_s: int
    delay_s: int
    rate: float
    restart_s: int
    held_s: Int64s = field(repr=False)
    gap_s: Int64s = field(repr=False)
    start_s: Int64s = field(repr=False)
    soon_s: Int64s = field(repr=False)
    speed: float = 1.0
    nodes: int | None = None  # None: the script's
    qos: str = ""  # "": the script's

    @property
    def expectation(self) -> dict[str, Any]:
        """What to expect if each handover were like this one, for the journal and for people.

        interruption_h: mean before this link. lost_h_per_day: hours of interruption and restarts for a day of work.
        ci95: the interval of that mean, from draws of futures. restarts_per_day. start_s: median start, epoch s;
        start_range_s: in the shortest and longest tenth of futures. None where the link would do no work.
        """
        served_s = self.held_s + np.minimum(self.gap_s, 0) - self.restart_s
        work_s = self.speed * served_s
        lost_s = np.maximum(self.gap_s, 0) + self.restart_s + served_s - work_s
        drawn = np.random.default_rng(0).integers(0, len(lost_s), (DRAWS, len(lost_s)))
        drawn_lost_s, drawn_work_s = lost_s[drawn].mean(axis=1), work_s[drawn].mean(axis=1)
        day_h, does_work = DAY_S / HOUR_S, bool((drawn_work_s > 0).all())
        low, high = np.quantile(drawn_lost_s / np.maximum(drawn_work_s, 1), (0.025, 0.975)) * day_h
        first_s, median_s, last_s = (int(at_s) for at_s in np.quantile(self.start_s, (0.1, 0.5, 0.9)))
        return {
            "limit_s": self.limit_s,
            "least_s": self.least_s,
            "nodes": self.nodes,
            "qos": self.qos,
            "delay_s": self.delay_s,
            "interruption_h": float(np.maximum(self.gap_s, 0).mean()) / HOUR_S,
            "lost_h_per_day": float(day_h * lost_s.mean() / work_s.mean()) if does_work else None,
            "ci95": [float(low), float(high)] if does_work else None,
            "restarts_per_day": float(DAY_S / work_s.mean()) if does_work else None,
            "start_s": median_s,
            "start_range_s": [first_s, last_s],
        }


def cautious_s(wait_s: Int64s, estimate_s: float) -> Int64s:
    """The waits W_k of a limit, s: those in futures with caution, then that of the start estimate."""
    found: Int64s = np.rint(np.append(CAUTION * wait_s, ESTIMATES * estimate_s)).astype(np.int64)
    return found


def granted_s(waits: Mapping[int, Int64s]) -> Int64s:
    """The longest limit whose wait is no longer than that of the shortest one, s, (futures,). waits: s, by limit."""
    soonest_s = waits[min(waits)]
    found: Int64s = np.max([np.where(wait_s <= soonest_s, limit_s, 0) for limit_s, wait_s in waits.items()], axis=0)
    return found


def covered_until(covered_s: int, queued_s: Mapping[int, Int64s] | None = None) -> Int64s:
    """The times C_k, epoch s, (1,) or (futures + 1,). covered_s: end of the last running link, or now if that is later.

    queued_s: (futures,), epoch s, starts of the queued link by the limits that it may get; None if none is queued.
    """
    covered = np.array([covered_s])
    if queued_s is None:
        return covered
    start_s = queued_s[min(queued_s)]
    end_s = start_s + granted_s(queued_s)
    until: Int64s = np.maximum(np.append(end_s, end_s[np.argmax(start_s)]), covered)
    return until


def plan_candidates(
    terms: PlanTerms,
    now_s: int,
    covered_s: Int64s,
    waits: Callable[[int, int], Int64s],
    later: Callable[[int, int, int], Int64s] | None = None,
) -> list[PlannedLink]:
    """Each useful limit, from the longest, at its best delay; of equal delays, the shortest. covered_s: the C_k.

    waits(limit_s, horizon_s): the W_k of a limit (`cautious_s`); the simulation may end after the horizon.
    later(limit_s, horizon_s, delay_s): those after a delay, of the same shape; None: as without one. Where a link may
    get less than it asks for, it is taken to get after a delay what it would get now.
    """
    left_s = int(covered_s.max()) - now_s
    delays_s, horizon_s = np.arange(0, left_s + 1, terms.decision_s), left_s + DAY_S
    found: list[PlannedLink] = []
    known: dict[int, Int64s] = {}
    for limit_s in reversed(terms.useful_s):
        best = min((one.rate for one in found), default=np.inf)
        if not terms.shortens and terms.restart_s / limit_s >= best:
            break
        known[limit_s] = wait_s = waits(limit_s, horizon_s)
        asked_s = max(known) if terms.shortens else limit_s
        held_s = granted_s(known) if terms.shortens else np.full(len(wait_s), limit_s)
        gap_s, start_s = now_s + wait_s - covered_s, now_s + wait_s
        losses = plan_losses(terms, gap_s, delays_s, held_s)
        at = int(delays_s[np.argmin(losses)])
        soon = PlannedLink(
            asked_s, limit_s, 0, float(losses[0]), terms.restart_s, held_s, gap_s, start_s, gap_s, terms.speed
        )
        delayed = {at: wait_s} if later is None else {}
        if later is not None and losses.min() < min(best, soon.rate):
            tried_s = {at, pause_until(0, at, terms.decision_s)}
            delayed = {delay_s: later(limit_s, horizon_s, delay_s) for delay_s in tried_s}
        moments = [_after(soon, terms, delay_s, delay_s + after_s - wait_s) for delay_s, after_s in delayed.items()]
        found.append(best_of([soon, *moments]))
    return found


def _after(soon: PlannedLink, terms: PlanTerms, delay_s: int, shift_s: Int64s) -> PlannedLink:
    """The candidate after a delay, which lets it start `shift_s` later, (futures,)."""
    gap_s = soon.gap_s + shift_s
    rate = float(plan_losses(terms, gap_s, np.zeros(1, np.int64), soon.held_s)[0])
    return replace(soon, delay_s=delay_s, rate=rate, gap_s=gap_s, start_s=soon.start_s + shift_s)


def node_counts(nodes: int, least: int) -> tuple[int, ...]:
    """The numbers of nodes to compare for a job of `nodes` that can run on `least`: halves, from the most."""
    halves = [nodes >> power for power in range(nodes.bit_length()) if nodes >> power > least]
    return (*halves, least)


def elastic_candidates(
    terms: PlanTerms, nodes: tuple[int, ...], scaling: float, of_nodes: Callable[[PlanTerms, int], list[PlannedLink]]
) -> list[PlannedLink]:
    """The candidates of each number of nodes that may be best. nodes: falling from the job's own.

    of_nodes(terms, nodes): those of that number (`plan_candidates`).
    """
    found: list[PlannedLink] = []
    for count in nodes:
        speed = (count / nodes[0]) ** scaling
        is_worse = found and speed <= terms.covered_speed and best_of(found).rate <= 1 - speed
        if not is_worse:
            found += [replace(one, nodes=count) for one in of_nodes(replace(terms, speed=speed), count)]
    return found


def best_of(found: list[PlannedLink]) -> PlannedLink:
    """The candidate of lowest J; of equal ones, the shortest limit, and of these the one that gives up least of it.

    Of those that are equal in all of this, the first.
    """
    return min(found, key=lambda one: (one.rate, one.limit_s, -one.least_s, one.delay_s))


def plan_losses(terms: PlanTerms, gap_s: Int64s, delays_s: Int64s, held_s: Int64s) -> Float64s:
    """J at each delay, (delays,). held_s, gap_s: (futures,) the limit that it gets, and its gap without a delay, s."""
    gaps_s = gap_s[None] + delays_s[:, None]
    both_s = terms.weight * terms.decision_s / 2 * (gaps_s < 0)
    slow_s = (1 - terms.speed) * held_s + (1 - terms.covered_speed) * np.minimum(gaps_s, 0)
    lost_s = (np.maximum(gaps_s, 0) + terms.restart_s + both_s + slow_s).mean(axis=1)
    added_s = (held_s + gaps_s).mean(axis=1)
    rate: Float64s = np.where(added_s > 0, lost_s / np.maximum(added_s, 1), np.inf)
    return rate


def plan_moment(
    terms: PlanTerms, now_s: int, end_s: int, waits: Callable[[int, int, int], Int64s], *, is_held: bool
) -> PlannedLink:
    """The best delay of the shortest limit for a job that never saves: both links run until the older one ends.

    So J counts the overlap, weight x max(-g_k, 0), in place of half a decision interval. end_s: of the running link, or
    now. waits(limit_s, horizon_s, delay_s): the W_k, also after a delay. is_held: the link is submitted now with a
    dependency on that end and gains priority while it is held, so that it starts max(W_k, end - now) from now. No other
    hold loses less: a shorter one adds overlap and prevents no interruption.
    """
    limit_s, left_s = terms.limits_s[0], end_s - now_s

    def after(delay_s: int, wait_s: Int64s) -> PlannedLink:
        gap_s = wait_s + delay_s - left_s
        late_s = np.maximum(gap_s, 0) if is_held else gap_s
        lost_s = (np.maximum(late_s, 0) + terms.restart_s + terms.weight * np.maximum(-late_s, 0)).mean()
        return PlannedLink(
            limit_s=limit_s, least_s=limit_s, delay_s=delay_s, rate=float(lost_s / max((limit_s + late_s).mean(), 1)),
            restart_s=terms.restart_s, held_s=np.full(len(late_s), limit_s), gap_s=late_s, start_s=end_s + late_s,
            soon_s=late_s,
        )  # fmt: skip

    horizon_s = left_s + DAY_S
    wait_s = waits(limit_s, horizon_s, 0)
    soon = after(0, wait_s)
    if is_held:
        return soon
    first = best_of([after(delay_s, wait_s) for delay_s in range(0, left_s + 1, terms.decision_s)])
    if first.delay_s == 0:
        return soon
    tried_s = {first.delay_s, pause_until(0, first.delay_s, terms.decision_s)}
    found = best_of([soon, *(after(delay_s, waits(limit_s, horizon_s, delay_s)) for delay_s in tried_s)])
    return replace(found, soon_s=soon.gap_s)


def pause_until(now_s: int, delay_s: int, decision_s: int) -> int:
    """When to plan again if the best candidate is to be submitted after `delay_s`, epoch s."""
    return now_s + int(min(max(delay_s // 2, decision_s), LOOKS_EVERY_S))
