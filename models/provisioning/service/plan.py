"""The player that plans a chain on simulated futures: what limit to ask for, when, and how far ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agent.chains.plan import (
    AHEAD,
    PlannedLink,
    PlanTerms,
    best_of,
    cautious_s,
    covered_until,
    pause_until,
    plan_candidates,
)
from features.observe import AT
from models.provisioning.service.chain import Move, ServiceView, hand_over
from simulator.recorded.record import NEVER
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S


@dataclass(frozen=True)
class Plan:
    """Plans the next link at each decision (`agent.chains.plan`), and hands over to a link once it is seen to run.

    At most AHEAD links are queued. Weight: hours lost that an hour of overlap is worth. In a world without futures it
    plans as an agent does that has none: links of the user's own limit, one at a time, by the start estimate alone.
    """

    weight: float
    decision_s: int

    def act(self, view: ServiceView) -> Move:
        """Hand over, else submit the best candidate now, else wait for the better moment."""
        if (move := hand_over(view)) is not None:
            return move
        if not self.needs_link(view):
            return Move(again_s=NEVER)
        best = best_of(self.candidates(view))
        if best.delay_s == 0:
            return Move(submit=(best.limit_s,))
        return Move(again_s=pause_until(view.now_s, best.delay_s, self.decision_s))

    def needs_link(self, view: ServiceView) -> bool:
        """Whether the work takes another link, and one more may be queued."""
        queued_s = sum(link.limit_s for link in view.chain.queued)
        most = AHEAD if view.futures else 1
        return len(view.chain.queued) < most and view.wanted_left_s > max(view.left_s, 0) + queued_s

    def terms(self, view: ServiceView) -> PlanTerms:
        """What it plans for."""
        limits_s = view.limits_s if view.futures else (view.chain.limit_s,)
        return PlanTerms(limits_s, view.restart_s, self.weight, self.decision_s)

    def candidates(self, view: ServiceView) -> list[PlannedLink]:
        """Each limit at its best delay (`agent.chains.plan`)."""
        chain, now, futures = view.chain, view.now_s, view.futures
        covered_s = covered_until(max(chain.covered_until_s, now))
        if chain.queued:
            first_s = view.queued_futures(max(view.left_s, 0) + DAY_S)
            covered_s = covered_until(int(covered_s[0]), first_s, chain.queued[0].limit_s)

        def waits(limit_s: int, horizon_s: int) -> Int64s:
            starts_s = futures([limit_s], horizon_s)[0] if futures else np.zeros(0, np.int64)
            return cautious_s(starts_s - now, HOUR_S * float(view.observe(limit_s)[AT.start_estimate_h]))

        return plan_candidates(self.terms(view), now, covered_s, waits)
