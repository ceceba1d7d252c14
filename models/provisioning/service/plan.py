"""The player that plans a chain on simulated futures: what to ask for, when, and how far ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from agent.chains.plan import (
    AHEAD,
    PlannedLink,
    PlanTerms,
    best_of,
    cautious_s,
    covered_until,
    elastic_candidates,
    node_counts,
    pause_until,
    plan_candidates,
)
from features.observe import AT
from models.provisioning.service.chain import LinkShape, Move, ServiceView, hand_over
from simulator.recorded.record import NEVER
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S

SCALING = 1.0  # linear


@dataclass(frozen=True)
class Plan:
    """Plans the next link at each decision (`agent.chains.plan`), and hands over to a link once it is seen to run.

    At most AHEAD links are queued. weight: hours lost that an hour of overlap is worth. shortens: links may get less
    than they ask for (--time-min). least_share: of the first link's nodes, on which a link can run; it works as fast as
    its share of them to the power of SCALING. In a world without futures it plans as an agent does that has none: links
    of the user's own limit, one at a time, by the start estimate alone.
    """

    weight: float
    decision_s: int
    shortens: bool = False
    least_share: float = 1.0

    def act(self, view: ServiceView) -> Move:
        """Hand over, else submit the best candidate now, else wait for the better moment.

        Links may do less work than they last: it looks again when they end.
        """
        if (move := hand_over(view)) is not None:
            return move
        if not self.needs_link(view):
            return Move(again_s=NEVER if view.chain.queued else view.chain.covered_until_s)
        best = best_of(self.candidates(view))
        if best.delay_s == 0:
            least_s = best.least_s if best.least_s < best.limit_s else None
            share = (best.nodes or view.nodes) / view.nodes
            shape = LinkShape(least_s, best.nodes if share < 1 else None, share, best.speed)
            return Move(submit=(best.limit_s,), shape=shape)
        return Move(again_s=pause_until(view.now_s, best.delay_s, self.decision_s))

    def needs_link(self, view: ServiceView) -> bool:
        """Whether the work takes another link, and one more may be queued."""
        queued_s = sum(link.fits_s for link in view.chain.queued)
        most = AHEAD if view.futures else 1
        return len(view.chain.queued) < most and view.wanted_left_s > max(view.left_s, 0) + queued_s

    def terms(self, view: ServiceView) -> PlanTerms:
        """What it plans for."""
        limits_s = view.limits_s if view.futures else (view.chain.limit_s,)
        last = view.chain.queued[-1:] or view.running[-1:]
        speed = last[0].shape.speed if last else 1.0
        return PlanTerms(limits_s, view.restart_s, self.weight, self.decision_s, self.shortens, covered_speed=speed)

    def candidates(self, view: ServiceView) -> list[PlannedLink]:
        """Each limit at its best delay (`agent.chains.plan`)."""
        chain, now, futures = view.chain, view.now_s, view.futures
        covered_s = covered_until(max(chain.covered_until_s, now))
        if chain.queued and view.queued_futures:
            last, horizon_s = chain.queued[-1], max(view.left_s, 0) + DAY_S
            starts_s = {last.fits_s: view.queued_futures(horizon_s)}
            for limit_s in view.limits_s:
                if last.fits_s < limit_s <= last.limit_s:
                    starts_s[limit_s] = view.queued_futures(horizon_s, limit_s)
            covered_s = covered_until(int(covered_s[0]), starts_s)

        def of_nodes(terms: PlanTerms, nodes: int) -> list[PlannedLink]:
            other = () if nodes == view.nodes else (nodes,)

            def waits(limit_s: int, horizon_s: int, delay_s: int = 0) -> Int64s:
                estimate_s = HOUR_S * float(view.observe(limit_s, *other)[AT.start_estimate_h])
                if futures is None:
                    return cautious_s(np.zeros(0, np.int64), estimate_s)
                (starts_s,) = futures([limit_s], horizon_s, *other, delay_s=delay_s)
                return cautious_s(starts_s - now - delay_s, estimate_s)

            return plan_candidates(terms, now, covered_s, waits, waits if futures else None)

        counts = node_counts(view.nodes, max(math.ceil(self.least_share * view.nodes), 1))
        return elastic_candidates(self.terms(view), counts, SCALING, of_nodes)
