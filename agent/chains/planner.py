"""Decide about the next link of a live chain: by the released policy, or by a plan (`agent.chains.plan`).

Without futures, as where other users' jobs are hidden, a plan has the script's limit and the start estimate alone, and
queues one link.

Within a plan the QOS of a link is "" for the script's own, else one of the chain's `qos_choice`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from agent.chains.chain import FIXED, USUAL_S, Chain, nodes_of, option
from agent.chains.decide import PLAN, Observation, ReleasedPolicy, SubmitDecision, by_plan, by_rule, timed_plan
from agent.chains.plan import (
    AHEAD,
    LEAST_RESTARTS,
    PlannedLink,
    PlanTerms,
    best_of,
    cautious_s,
    covered_until,
    elastic_candidates,
    node_counts,
    plan_candidates,
    plan_moment,
)
from agent.chains.state import Busy, ChainState
from agent.futures import BUDGET_S, Site
from agent.sight import ClusterObservation, LinkStarts, SlurmRequest
from agent.slurm.commands import SlurmError
from agent.slurm.limits import QosTable, UserLimits, UserQos
from agent.slurm.numbers import UNLIMITED_S
from agent.slurm.queue import Queue, SqueueJob
from features.futures.summary import FUTURES
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S, MINUTE_S

QueuedLink = tuple[SqueueJob, int | None]  # with the least limit that it may get, s; None: no less than asked
PLAN_BUDGET_S = 24.0  # for all futures of one plan
OPEN_SITE = Site(None, None, None, siblings=False)  # nothing inferred: limits and priorities as Slurm shows them


class Seeing(Protocol):
    """The interface of `agent.eyes.Eyes`, so that tests can replace it."""

    request: SlurmRequest
    site: Site | None

    def look(self, now_s: int) -> Queue:
        """Read the queue at `now_s` (epoch s)."""

    def sight(
        self, predecessor: SqueueJob, decides_alike: Callable[[Sequence[Observation]], bool]
    ) -> ClusterObservation:
        """Return what a policy may know at the last look."""

    def starts(
        self,
        predecessor: SqueueJob | None,
        like: SqueueJob | None,
        limit_s: int,
        horizon_s: int,
        budget_s: float,
        queued: SqueueJob | None,
        nodes: int | None = None,
        qos: str = "",
        delay_s: int = 0,
    ) -> LinkStarts:
        """Return when a link would start, or when the queued one will."""

    @property
    def ages_held(self) -> bool:
        """Whether a link gains priority while a dependency holds it."""

    @property
    def qos(self) -> QosTable:
        """The QOS that the user may use."""

    def allowed(self, qos: str = "") -> tuple[int, UserLimits]:
        """Return the longest time limit that a link of that QOS may ask for, s, and the user's limits."""


def request_of(options: Sequence[str], user: str, limit_s: int) -> SlurmRequest:
    """Build the request of a link from its sbatch options; of one node where they name no valid number."""
    names = [
        option(options, long, short) or ""
        for long, short in (("--partition", "-p"), ("--account", "-A"), ("--qos", "-q"))
    ]
    return SlurmRequest(nodes_of(options) or 1, limit_s, user, *names)


def limits_to_ask(chain: Chain, own_s: int, longest_s: int, restart_s: int | None = None) -> tuple[int, ...]:
    """The limits that links of a planned chain may ask for, s, rising. own_s: the script's. Raises ValueError if none.

    longest_s: the longest that Slurm allows; if that is not known, no link asks for more than the script. restart_s:
    the restart cost; None: the declared one.
    """
    cost_s = chain.restart_s if restart_s is None else restart_s
    given, least_s = (own_s,) if chain.asks_fixed else chain.limits, chain.least_limit_s if chain.shortens else None
    return useful_limits(given, own_s, cost_s, longest_s, least_s or 0)


def useful_limits(
    given: Sequence[int], own_s: int, restart_cost_s: float, longest_s: int, least_s: int = 0
) -> tuple[int, ...]:
    """As `limits_to_ask`, of the given limits, s; (): of the usual ones. least_s: with which the job can live."""
    limits_s = given
    if not given:
        ends_s = (own_s, longest_s) if longest_s < UNLIMITED_S else (own_s,)
        limits_s = [*(limit_s for limit_s in USUAL_S if limit_s < max(ends_s)), *filter(None, (least_s,)), *ends_s]
    terms = PlanTerms(tuple(sorted(set(limits_s))), int(restart_cost_s), 0.0, 0)
    found = tuple(limit_s for limit_s in terms.useful_s if least_s <= limit_s <= longest_s)
    if not found:
        low_s = LEAST_RESTARTS * restart_cost_s
        reason, low_s = ("three restart costs", low_s) if low_s >= least_s else ("the script's --time-min", least_s)
        most = f" and at most {_hours(longest_s)} (the longest allowed)" if longest_s < UNLIMITED_S else ""
        shown = ", ".join(map(_hours, terms.limits_s))
        raise ValueError(f"no limit of {shown} can be planned with: give at least {_hours(low_s)} ({reason}){most}")
    return found


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.4g} h" if seconds >= HOUR_S else f"{seconds / MINUTE_S:.3g} min"


def plan_text(chain: Chain) -> str:
    """Describe in one line what is planned for a chain; "" if nothing is to be."""
    if chain.plan == FIXED:
        return ""
    if not chain.hands_over:
        return "the job never saves (--saves never): plans only the moment of submission; no link is ended early"
    what = f"the script's limit ({chain.asks_fixed})" if chain.asks_fixed else "a planned limit"
    sent = "SIGTERM" if chain.signal is None else f"SIG{chain.signal.name.removeprefix('SIG')}"
    return (
        f"plans the moment and up to {AHEAD} queued links, each asks for {what}; when a newer link runs, the older one "
        f"gets {sent} and must save"
    )


class Decider:
    """Decides for one chain. site: the rules for simulating futures; None if nothing looks ahead."""

    def __init__(
        self,
        chain: Chain,
        policy: ReleasedPolicy,
        make_eyes: Callable[[SlurmRequest, Site | None], Seeing],
        request: SlurmRequest,
    ) -> None:
        self.chain, self.policy = chain, policy
        self._make_eyes = make_eyes
        self.eyes = make_eyes(request, self.site)
        self.like: SqueueJob | None = None  # the last link that was seen running
        self.measured_s: int | None = None  # restart cost, s, by the output of the last links; None: the declared one
        self.is_elastic = chain.least_nodes is not None
        self._full: set[str] = set()  # QOS that take no further link now

    @property
    def site(self) -> Site | None:
        """The rules for simulating futures; None if neither plan nor policy looks ahead."""
        return self.policy.site or (OPEN_SITE if self.chain.is_planned else None)

    def _eyes_of(self, request: SlurmRequest, now_s: int) -> Seeing:
        """The observer of a request; a new one looks at once."""
        if (request, self.site) != (self.eyes.request, self.eyes.site):
            self.eyes = self._make_eyes(request, self.site)
            self.eyes.look(now_s)
        return self.eyes

    def _qos(self) -> list[str]:
        """The QOS that links may have, the script's own first."""
        table = self.eyes.qos
        return ["", *(name for name in self.chain.qos_choice if name in table.by_name and name != table.own)]

    def room(self, jobs: Sequence[SqueueJob], state: ChainState) -> int:
        """Count the links that may be queued by the limits on submitted jobs (MaxSubmitJobs), at least one.

        jobs: the user's, pending or running. Remembers which QOS are full, or refused the last link.
        """
        left, table = dict[str, int](), self.eyes.qos
        own = {attempt.job_id for attempt in state.attempts if attempt.is_queued}
        for qos in self._qos():
            name, most = qos or table.own, self.eyes.allowed(qos)[1].submitted
            known = table.by_name.get(name, UserQos())
            left[qos] = most - sum(known.counts(name, job.qos) for job in jobs)
        refused = {attempt.qos for attempt in state.attempts[-1:] if attempt.how == "REFUSED" and attempt.qos}
        self._full = refused | {qos for qos, jobs_left in left.items() if jobs_left <= 0}
        return max(max(left.values()) + sum(job.id in own for job in jobs), 1)

    def decide(
        self, request: SlurmRequest, now_s: int, serving: SqueueJob | None, queued: Sequence[QueuedLink]
    ) -> tuple[SubmitDecision, dict[str, Any]]:
        """Return the decision and its fields in the journal. serving: None if no link runs; queued: by submission."""
        self.like = serving or self.like
        observed: Observation = {}
        hidden: Mapping[str, str] = {}
        found: list[PlannedLink] = []
        ahead = ""
        try:
            eyes = self._eyes_of(request, now_s)
            if self.chain.is_planned:
                seen, found, ahead = self._planned(eyes, request, now_s, serving, queued)
                decision = by_plan(found, bool(queued), request.nodes, eyes.qos)
                if serving is not None and not self.chain.hands_over:
                    decision = timed_plan(decision, is_held=eyes.ages_held)
            else:
                assert serving is not None
                seen = eyes.sight(serving, self.policy.decides_alike)
                ahead = seen.ahead
                decision = self.policy.decide(seen.observation)
            observed, hidden = seen.observation, seen.hidden
        except Exception as error:
            decision = by_rule(observed, f"the cluster cannot be observed: {described(error)}")
        fields = {
            "submit": decision.submit, "by": decision.by, "reason": decision.reason, "score": decision.score,
            **self._decided_by(), "observation": dict(observed), "hidden": sorted(hidden),
            **({"ahead": ahead} if ahead else {}),
            **({} if decision.ask is None else vars(decision.ask)),
            **({"candidates": [one.expectation for one in found]} if found else {}),
        }  # fmt: skip
        return decision, fields

    def _decided_by(self) -> dict[str, Any]:
        if self.chain.is_planned:
            restart = {"declared_s": self.chain.restart_s, "measured_s": self.measured_s}
            return {"policy": PLAN, "setting": self.chain.overlap_weight, "restart": restart}
        manifest = self.policy.artifact.manifest
        return {"policy": manifest["policy"], "version": self.policy.version, "setting": self.policy.setting}

    def _terms(self, eyes: Seeing, request: SlurmRequest) -> dict[str, PlanTerms]:
        """What the next link is planned for, by QOS; the longest limit is a candidate whatever a restart costs.

        A QOS that takes no further job, or no such link, is left out, unless all are. Raises ValueError if none allows
        a limit.
        """
        chain, asked, problem = self.chain, dict[str, tuple[int, ...]](), ValueError("no QOS")
        known = self._qos()
        for qos in [one for one in known if one not in self._full] or known:
            longest_s, limits = eyes.allowed(qos)
            try:
                limits_s = limits_to_ask(chain, request.limit_s, longest_s, restart_s=0)
            except ValueError as error:
                problem = error
            else:
                if not qos or request.nodes <= min(limits.nodes, limits.job_nodes):
                    asked[qos] = limits_s
        if not asked:
            raise problem
        restart_s = chain.restart_s if self.measured_s is None else self.measured_s
        restart_s = min(restart_s, max(limits_s[-1] for limits_s in asked.values()) // LEAST_RESTARTS)
        every_s, shortens = self.policy.artifact.decide_every_s, chain.shortens
        terms = {
            qos: PlanTerms(limits_s, restart_s, chain.overlap_weight, every_s, shortens=shortens)
            for qos, limits_s in asked.items()
        }
        return {qos: replace(one, limits_s=one.useful_s) for qos, one in terms.items() if one.useful_s}

    def _planned(
        self, eyes: Seeing, request: SlurmRequest, now_s: int, serving: SqueueJob | None, queued: Sequence[QueuedLink]
    ) -> tuple[ClusterObservation, list[PlannedLink], str]:
        """Return the observation, the candidates, and a text about the futures. Raises ValueError without an estimate.

        Without futures the script's limit is the only candidate, or none if a link is queued: an estimate for now alone
        says nothing about the wait when a short link ends.
        """
        chain, own_n, own_s = self.chain, request.nodes, request.limit_s
        by_qos = self._terms(eyes, request)
        first = next(iter(by_qos))
        played = _Played(eyes, now_s, serving, self.like, list(by_qos))
        end_s = now_s if serving is None or serving.start_s is None else serving.start_s + serving.limit_s
        covered_s = covered_until(max(end_s, now_s))
        if queued:
            horizon_s = max(end_s - now_s, 0) + DAY_S
            one, by_limit = _queued_starts(
                queued[0], by_qos[first].limits_s, lambda limit_s: played.starts(limit_s, horizon_s, waits=queued[0][0])
            )
            if not by_limit:
                return one.seen, [], f"no second link without futures: {one.why}"
            covered_s = covered_until(int(covered_s[0]), by_limit)
        counts = node_counts(own_n, own_n)
        one_s = own_s if own_s in by_qos[first].limits_s else by_qos[first].limits_s[-1]
        own = played.of((one_s, own_n, first), int(covered_s.max()) - now_s + DAY_S)
        if not own.starts_s:
            by_qos = {first: by_qos[first]}
            if one_s == own_s:
                by_qos = {first: replace(by_qos[first], limits_s=(own_s,))}
        elif self.is_elastic:
            counts = node_counts(own_n, chain.least_nodes or own_n)
        last = queued[0][0] if queued else serving
        speed = 1.0 if last is None else min(last.nodes / own_n, 1.0) ** chain.scaling

        def of_nodes(qos: str, terms: PlanTerms, nodes: int) -> list[PlannedLink]:
            """The candidates of a QOS on that number of nodes."""
            waits = partial(played.waits_s, nodes, qos, len(covered_s) - 1 if queued else None, chain.shortens)
            if not chain.hands_over:
                return [plan_moment(terms, now_s, int(covered_s[0]), waits, is_held=eyes.ages_held)]
            return plan_candidates(terms, now_s, covered_s, waits, waits)

        found: list[PlannedLink] = []
        for qos, terms in by_qos.items():
            terms = replace(terms, covered_speed=speed)
            some = elastic_candidates(terms, counts, chain.scaling, partial(of_nodes, qos))
            found += [replace(one, qos=qos) for one in some if qos == first or played.has_futures(one, own_n, qos)]
        chosen = played.seen[(best := best_of(found)).least_s, best.nodes or own_n, best.qos]
        text = f"{len(chosen.starts_s)} futures" if chosen.starts_s else f"no futures: {chosen.why}"
        return chosen.seen, found, text


class _Played:
    """The starts that one plan simulates. order: the QOS that it compares; each has an equal share of the time."""

    def __init__(
        self, eyes: Seeing, now_s: int, serving: SqueueJob | None, like: SqueueJob | None, order: Sequence[str]
    ) -> None:
        self.seen: dict[tuple[int, int, str], LinkStarts] = {}  # by limit (s), nodes and QOS
        self._eyes, self._now_s, self._serving, self._like, self._order = eyes, now_s, serving, like, order
        self._began_s = time.monotonic()

    def starts(
        self,
        limit_s: int,
        horizon_s: int,
        *,
        waits: SqueueJob | None = None,
        nodes: int | None = None,
        qos: str = "",
        delay_s: int = 0,
    ) -> LinkStarts:
        """Simulate when a new link starts, or the queued one, `waits`. Delays have half of the time of a QOS."""
        place, share_s = self._order.index(qos) if qos in self._order else 0, PLAN_BUDGET_S / len(self._order)
        until_s = self._began_s + share_s * (place + (1 if delay_s == 0 else 0.5))
        budget_s = min(BUDGET_S, max(until_s - time.monotonic(), 0.0))
        return self._eyes.starts(self._serving, self._like, limit_s, horizon_s, budget_s, waits, nodes, qos, delay_s)

    def of(self, key: tuple[int, int, str], horizon_s: int) -> LinkStarts:
        """Simulate a new link of that limit (s), nodes and QOS, once."""
        limit_s, nodes, qos = key
        if key not in self.seen:
            self.seen[key] = self.starts(limit_s, horizon_s, nodes=nodes, qos=qos)
        return self.seen[key]

    def waits_s(
        self, nodes: int, qos: str, futures: int | None, is_compared: bool, limit_s: int, horizon_s: int,
        delay_s: int = 0,
    ) -> Int64s:  # fmt: skip
        """The waits W_k of a link, s. After a delay that cannot be simulated they are those of now.

        futures: how many futures the times C_k are of, and the waits too; None: as many as were simulated, or FUTURES
        where limits are compared future by future (is_compared). Raises ValueError without a start estimate.
        """
        found = self.of((limit_s, nodes, qos), horizon_s)
        if found.estimate_s is None:
            raise ValueError("no start estimate")
        alike = FUTURES if is_compared and found.starts_s else len(found.starts_s)
        starts_s, from_s = found.starts_s or [self._now_s + round(found.estimate_s)], self._now_s
        if delay_s and found.starts_s:
            later = self.starts(limit_s, horizon_s, nodes=nodes, qos=qos, delay_s=delay_s)
            if later.starts_s:
                starts_s, from_s = later.starts_s, self._now_s + delay_s
        wait_s = np.resize(np.array(starts_s, np.int64), alike if futures is None else futures) - from_s
        return cautious_s(wait_s, found.estimate_s)

    def has_futures(self, link: PlannedLink, nodes: int, qos: str) -> bool:
        """Whether futures of a candidate were simulated. nodes: the script's."""
        return bool(self.seen[link.least_s, link.nodes or nodes, qos].starts_s)


def _queued_starts(
    queued: QueuedLink, limits_s: Sequence[int], starts: Callable[[int], LinkStarts]
) -> tuple[LinkStarts, dict[int, Int64s]]:
    """When a queued link starts by its least limit, and by each that it may get: (futures,), epoch s; {} if unknown."""
    job, least_s = queued[0], queued[1] or queued[0].limit_s
    may_get = (limit_s for limit_s in limits_s if least_s < limit_s <= job.limit_s)
    found = {limit_s: starts(limit_s) for limit_s in (least_s, *may_get)}
    first = found[least_s]
    if not first.starts_s:
        return first, {}
    known = {limit_s: np.array(one.starts_s, np.int64) for limit_s, one in found.items() if one.starts_s}
    futures = min(map(len, known.values()))
    return first, {limit_s: starts_s[:futures] for limit_s, starts_s in known.items()}


def described(error: Exception) -> str:
    """Describe an error in one line: its text, with its type in front where the text alone may be unclear."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, (SlurmError, Busy, ValueError)) else f"{type(error).__name__}: {text}"
