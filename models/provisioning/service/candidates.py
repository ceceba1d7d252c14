"""The candidates of a plan as a learner sees them, and the player that takes the one with the least predicted loss.

A candidate is a limit L, submitted at once. Its *differential loss* is the hours that its handover loses less the
rate J* x the hours for which it covers the work beyond the links before it (renewal reward):

    loss = max(g, 0) + restart + weight x half a decision interval x [g < 0] - J* x (L + g),

with the gap g of `agent.chains.plan` without a delay, and the lowest J that `plan` finds at that decision as J*.
Futures give the expected loss of each candidate. The *advantage of waiting* is the loss of waiting less that of
submitting; `plan` expects -1 times the least expected loss, which is negative unless it submits now. Trees that are
fitted on what truly happened correct both. Without trees this is `plan`.

Only decisions without a queued link are learned; the others are those of `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from agent.artifact import Artifact, check_manifest
from agent.chains.plan import PlannedLink, PlanTerms, best_of, pause_until
from agent.kinds import signed_log
from agent.trees import TREES, TreeEnsemble, check_trees
from features.observe import AT
from models.provisioning.futures.table import played_every_s
from models.provisioning.service.chain import Move, ServiceView, hand_over
from models.provisioning.service.plan import Plan
from traces.arrays import Float64s, Int64s
from traces.errors import InputError
from traces.units import HOUR_S

KIND = "plan-trees"
MOST_RATE = 1.0  # a higher J counts as this
SAME_H = 1e-9  # differences below it are rounding
SEEN = (
    "start_estimate_h",
    "start_estimate_expected_h",
    "start_estimate_idle_h",
    "headroom_wait_h",
    "predecessor_wait_h",
)  # of the observation, relative to the time left
LEVELS = (0.25, 0.5, 0.75, 1.0)  # quantiles of the W_k, relative to the time left
INPUTS = (*SEEN, *(f"wait_p{100 * level:.0f}_h" for level in LEVELS), "late_share", "delay_share", "left_h", "limit_h")
# What a handover is expected to lose and to add at once, and J at the best delay; then the inputs.
EXPECTED = ("lost_h", "added_h", "rate")
COLUMNS = (*EXPECTED, *INPUTS)


def next_look(view: ServiceView, again_s: int = 0) -> Move:
    """Wait until `again_s`, epoch s, or for as long as a pair keeps its futures if longer; not after the links end."""
    every_s = int(played_every_s(np.array(view.left_s)))
    return Move(again_s=min(max(view.now_s + every_s, again_s), view.chain.covered_until_s))


def handover_h(terms: PlanTerms, gap_s: Int64s, limit_s: Int64s | int) -> tuple[Float64s, Float64s]:
    """Hours lost and hours added by a link of that limit with those gaps, s; arrays of their shape."""
    lost_s = np.maximum(gap_s, 0) + terms.restart_s + terms.weight * terms.decision_s / 2 * (gap_s < 0)
    return lost_s / HOUR_S, (limit_s + gap_s) / HOUR_S


def candidate_rows(view: ServiceView, terms: PlanTerms, found: list[PlannedLink]) -> Float64s:
    """(candidates, COLUMNS) what is known of each candidate at a decision without a queued link."""
    left_h = max(view.left_s, 0) / HOUR_S
    rows = []
    for link in found:
        gap_s = link.soon_s
        lost_h, added_h = handover_h(terms, gap_s, link.limit_s)
        seen = view.observe(link.limit_s)
        waits_h = np.quantile(gap_s / HOUR_S, LEVELS) + left_h
        of_time = signed_log(np.array([*(seen[getattr(AT, name)] for name in SEEN), *waits_h], np.float32))
        shares = float((gap_s > 0).mean()), link.delay_s / HOUR_S / max(left_h, 1.0)
        scale = float(np.log1p(left_h))
        expected = lost_h.mean(), added_h.mean(), min(link.rate, MOST_RATE)
        rows.append([*expected, *(of_time - scale), *shares, scale, np.log(link.limit_s)])
    return np.array(rows, np.float64)


class PlanArtifact(Artifact):
    """A fit that corrects a plan: trees of group 0 the candidates' losses, of group 1 the advantage of waiting, h.

    It decides for chains alone, so that no agent loads it and nothing can release it. Raises ValueError, one line, if
    the parts are inconsistent.
    """

    def __post_init__(self) -> None:
        check_manifest(self.manifest)
        if self.manifest["kind"] != KIND or set(self.arrays) != {*TREES, "group"}:
            raise ValueError(f"not a fit of kind {KIND} with the arrays {', '.join((*TREES, 'group'))}")
        if self.parameters.get("inputs") != list(INPUTS):
            raise ValueError(f"a fit with the inputs {self.parameters.get('inputs')}; this program reads {INPUTS}")
        check_trees({name: self.arrays[name] for name in TREES}, len(INPUTS))
        group = self.arrays["group"]
        if group.shape != self.arrays["root"].shape or not np.isin(group, (0, 1)).all():
            raise ValueError("group must hold 0 or 1 for each tree")

    @cached_property
    def _ensemble(self) -> TreeEnsemble:
        return TreeEnsemble({name: self.arrays[name] for name in TREES})

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone, without the tables of the trees."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def corrections(self, rows: Float64s) -> Float64s:
        """(n, 2) for candidates (n, COLUMNS): what to add to the loss, and to the advantage of waiting, h."""
        inputs = np.ascontiguousarray(rows[:, len(EXPECTED) :], np.float32)
        return self._ensemble.sums(inputs, self.arrays["group"], np.zeros((len(rows), 2)))

    def scores(self, observations: ArrayLike, settings: Any = None) -> NoReturn:
        """Raise InputError: an observation does not hold the candidates."""
        raise InputError(f"policy {self.manifest['policy']!r} plans chains: `baton evaluate --chains 10d` plays it")


def chosen_candidate(artifact: PlanArtifact, rows: Float64s) -> tuple[int, bool]:
    """The position of the candidate with the least predicted loss, and whether waiting promises less, by an artifact.

    rows: (candidates, COLUMNS) of one decision.
    """
    loss_h = rows[:, 0] - rows[:, 2].min() * rows[:, 1]
    corrections = artifact.corrections(rows)
    best = int(np.argmin(loss_h + corrections[:, 0]))
    return best, float(corrections[best, 1] - loss_h.min()) < -SAME_H


@dataclass(frozen=True)
class LearnedPlan:
    """Plans as `plan` does, but takes the candidate, or waits, by an artifact where no link is queued.

    It decides as often as `plan`, but no more often than the rows that it learned from.
    """

    artifact: PlanArtifact = field(repr=False)
    plan: Plan

    def act(self, view: ServiceView) -> Move:
        """Hand over, else submit or wait."""
        if view.chain.queued or hand_over(view) is not None or not self.plan.needs_link(view):
            return self.plan.act(view)
        found = self.plan.candidates(view)
        rows = candidate_rows(view, self.plan.terms(view), found)
        best, waits = chosen_candidate(self.artifact, rows)
        if not waits or view.left_s <= 0:
            return Move(submit=(found[best].limit_s,))
        return next_look(view, pause_until(view.now_s, best_of(found).delay_s, self.plan.decision_s))
