"""Plan a chain by model-predictive control on simulated futures: what limit to ask for, when, and how far ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.observe import AT
from models.provisioning.service.chain import Move, ServiceView, hand_over
from simulator.recorded.record import NEVER
from traces.arrays import Float64s, Int64s
from traces.units import DAY_S, HOUR_S

AHEAD = 2  # most links queued at once
LOOKS_EVERY_S = 2 * HOUR_S  # longest time between two plans
# Factors on the waits in futures and on the start estimate, chosen on January 2023 of the A100 trace.
CAUTION, ESTIMATES = 1.5, 2.0
LEAST_RESTARTS = 3  # a limit is worth asking for from this many restart costs on


@dataclass(frozen=True)
class Plan:
    """Plans the next link at each decision, and hands over to a link as soon as it is seen to run.

    A candidate is a limit L and a delay x: a link of limit L, submitted x from now (x = 0: at once), at most AHEAD
    links queued. In future k let W_k(L) be CAUTION x the wait of a link of limit L submitted now. In one more future it
    is ESTIMATES x the start estimate by limits, because waits in futures are too short in the tail. The wait is taken
    to be the same after a delay. Let C_k be the time until which the links submitted so far cover the work: the end of
    the last running link, or, with a link queued, that link's start in future k plus its limit (its latest start for
    the additional future). The gap of the candidate is

        g_k = now + x + W_k(L) - C_k,

    an interruption if positive. If negative, the new link takes over g_k early and the serving one is ended, so that
    nothing is lost but part of the serving link's limit. In both cases the work is covered for L + g_k longer than
    without the candidate. The candidate's objective is the expected loss for each hour that it adds:

        J(L, x) = mean_k(max(g_k, 0) + restart + weight x half a decision interval x [g_k < 0]) / mean_k(L + g_k).

    `restart` is the cost of taking over; half a decision interval is how long both links run before the player sees
    it. This is the renewal-reward rate if each later handover were like this one. The player submits if no candidate
    with x > 0 has a lower J than the best with x = 0. All candidates meet the same futures (common random numbers).

    Candidates are pruned: limits under LEAST_RESTARTS restart costs, and limits L with restart / L above the lowest J
    found for a longer limit, because J(L, x) is no lower wherever a gap is expected.
    """

    weight: float
    decision_s: int

    def act(self, view: ServiceView) -> Move:
        """Hand over, else submit the best candidate now, else wait for the better moment."""
        chain, now = view.chain, view.now_s
        if (move := hand_over(view)) is not None:
            return move
        queued_s = sum(link.limit_s for link in chain.queued)
        if len(chain.queued) >= AHEAD or view.wanted_left_s <= max(view.left_s, 0) + queued_s:
            return Move(again_s=NEVER)
        covered_s = np.array([max(chain.covered_until_s, now)])
        if chain.queued:
            first = view.queued_futures(max(view.left_s, 0) + DAY_S)
            covered_s = np.maximum(np.append(first, first.max()) + chain.queued[0].limit_s, covered_s)
        limit_s, delay_s = self._best(view, covered_s)
        if delay_s == 0:
            return Move(submit=(limit_s,))
        return Move(again_s=now + int(min(max(delay_s // 2, self.decision_s), LOOKS_EVERY_S)))

    def _best(self, view: ServiceView, covered_s: Int64s) -> tuple[int, int]:
        """The limit and the delay of the best candidate, s; of equal delays, the shortest."""
        now = view.now_s
        left_s = int(covered_s.max()) - now
        delays_s = np.arange(0, left_s + 1, self.decision_s)
        best = (np.inf, 0, 0)
        useful = [limit_s for limit_s in view.limits_s if limit_s >= LEAST_RESTARTS * view.restart_s]
        for limit_s in reversed(useful):
            if view.restart_s / limit_s >= best[0]:
                break
            (start_s,) = view.futures([limit_s], left_s + DAY_S)
            estimate_s = HOUR_S * float(view.observe(limit_s)[AT.start_estimate_h])
            wait_s = np.rint(np.append(CAUTION * (start_s - now), ESTIMATES * estimate_s)).astype(np.int64)
            losses = self.losses(now + wait_s - covered_s, delays_s, limit_s, view.restart_s)
            at = int(np.argmin(losses))
            best = min(best, (float(losses[at]), limit_s, int(delays_s[at])))
        return best[1], best[2]

    def losses(self, gap_s: Int64s, delays_s: Int64s, limit_s: int, restart_s: int) -> Float64s:
        """J of a limit at each delay, (delays,). gap_s: (futures,) gaps without a delay, s."""
        gaps_s = gap_s[None] + delays_s[:, None]
        both_s = self.weight * self.decision_s / 2 * (gaps_s < 0)
        lost_s = (np.maximum(gaps_s, 0) + restart_s + both_s).mean(axis=1)
        added_s = (limit_s + gaps_s).mean(axis=1)
        rate: Float64s = np.where(added_s > 0, lost_s / np.maximum(added_s, 1), np.inf)
        return rate
