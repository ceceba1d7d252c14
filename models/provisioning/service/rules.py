"""Players that learn nothing and simulate nothing: what users do by hand, and always the same."""

from __future__ import annotations

from dataclasses import dataclass

from models.provisioning.service.chain import Move, ServiceView
from simulator.recorded.record import NEVER


@dataclass(frozen=True)
class SubmitAtEnd:
    """Submit a link of the user's own limit when the last one ends.

    The row `singleton` is the same player. It is a chain of jobs of one name with `--dependency=singleton`, each
    submitted when the one before starts. Slurm's age factor does not grow while a dependency holds (unless
    PriorityFlags has ACCRUE_ALWAYS), and the dependent job is eligible only when the other has ended. So it starts when
    a job submitted at that end starts.
    """

    def act(self, view: ServiceView) -> Move:
        """Wait for the end, unless a link is queued."""
        if view.chain.queued:
            return Move(again_s=NEVER)
        return Move(again_s=view.chain.covered_until_s) if view.left_s > 0 else Move(submit=(view.chain.limit_s,))


@dataclass(frozen=True)
class KeepAhead:
    """Keep links of the user's own limit ahead of the serving one, queued or running; end none of them."""

    ahead: int | None  # links beyond the serving one; None: as many as the wanted service takes, all at once

    def act(self, view: ServiceView) -> Move:
        """Submit as many links as are missing."""
        limit_s = view.chain.limit_s
        there = len(view.chain.queued) + sum(link.end_s > view.now_s for link in view.running)
        if self.ahead is not None:
            missing = self.ahead + (view.left_s > 0) - there
        else:
            to_come_s = max(view.left_s, 0) + sum(link.limit_s for link in view.chain.queued)
            missing = -((to_come_s - view.wanted_left_s) // limit_s)
        again_s = None if missing > 0 else (NEVER if view.chain.queued else view.chain.covered_until_s)
        return Move(submit=(limit_s,) * max(missing, 0), again_s=again_s)
