"""Players that choose only the moment of submission: one link at a time, of one limit.

An artifact decides for a link as it does for the successor of a pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from agent.artifact import Artifact
from agent.chains.decide import uses_futures
from features.futures.summary import BEYOND_S, summary
from models.provisioning.futures.table import is_due
from models.provisioning.service.chain import WAIT, Move, ServiceView, hand_over
from simulator.recorded.record import NEVER
from traces.arrays import Float32s


@dataclass(frozen=True)
class TimedPlayer:
    """Submits when its artifact does, at the latest when the last link ends."""

    artifact: Artifact = field(repr=False)
    setting: float
    limit: str = "own"  # the user's own, or the "shortest" or "longest" that a link may ask for
    hands_over: bool = False  # to a link that starts early, instead of letting both run

    def act(self, view: ServiceView) -> Move:
        """Ask the artifact."""
        if self.hands_over and (move := hand_over(view)) is not None:
            return move
        if view.chain.queued:
            return Move(again_s=NEVER)
        limit_s = {"own": view.chain.limit_s, "shortest": view.limits_s[0], "longest": view.limits_s[-1]}[self.limit]
        if view.left_s <= 0 or self.artifact.decide(self._seen(view, limit_s)[None], self.setting)[0]:
            return Move(submit=(limit_s,))
        return WAIT

    def _seen(self, view: ServiceView, limit_s: int) -> Float32s:
        """The artifact's features; futures are played as often as for a table of pairs."""
        seen, chain = view.observe(limit_s), view.chain
        if not uses_futures(self.artifact):
            return seen
        assert view.futures is not None
        if chain.memory is None or is_due(np.array([view.left_s]))[0]:
            (chain.memory,) = view.futures([limit_s], view.left_s + BEYOND_S)
        chain.memory = np.maximum(chain.memory, view.now_s)
        end_s = np.array([chain.covered_until_s])
        return np.append(seen, summary(chain.memory[None], np.array([view.now_s]), end_s)[0])


@dataclass(frozen=True)
class TimingOracle:
    """Knows when a link submitted at each instant will start; takes the one of least interruption + overlap.

    Of equal ones it takes the earliest. It chooses the next link when the last one ends, and no other until then.
    """

    def act(self, view: ServiceView) -> Move:
        """Remember the best moment so far; choose it when the last link ends."""
        chain, now = view.chain, view.now_s
        if chain.queued:
            return Move(again_s=NEVER)
        assert view.would_start is not None
        start_s = view.would_start(chain.limit_s)
        found = abs(start_s - chain.covered_until_s), start_s, now
        chain.memory = min(chain.memory or (np.iinfo(np.int64).max, 0, 0), found)
        if view.left_s > 0:
            return WAIT
        _, start_s, submit_s = chain.memory
        return Move(chosen=(submit_s, start_s))
