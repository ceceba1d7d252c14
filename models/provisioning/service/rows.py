"""Rows to learn planning from: what `plan` knows of its candidates at a decision, and what truly happens to each.

Chains are played in the recorded cluster. Nothing is submitted before a link ends, so that every decision in its life
is seen; the next link then asks for one of the longest limits in turn. A link that waits leaves the record as it is, so
the rows of one *life* also tell what any rule loses that submits at one of its decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.service.candidates import COLUMNS, candidate_rows, handover_h, next_look
from models.provisioning.service.chain import Move, ServiceView
from models.provisioning.service.plan import Plan
from models.provisioning.service.play import Service, play_services
from simulator.recorded.record import NEVER, RecordedTrace
from traces.arrays import Float64s
from traces.units import DAY_S, HOUR_S

WEIGHT, RESTART_S, WANTED_S = 0.5, 600, 10 * DAY_S  # of the chains that are learned from
LIMITS_S = tuple(hours * HOUR_S for hours in (2, 4, 8, 12, 24, 48))
EXPLORED = 3  # of the longest limits
LIFE, AT, LOST, ADDED, FIRST = range(5)  # columns: a life, an instant (epoch s), hours, and the first of COLUMNS
WIDTH = FIRST + len(COLUMNS)
MOST_LINKS = 10_000  # of a chain


@dataclass
class _Recorder:
    """Writes a row for each candidate at each decision before `until_s`."""

    plan: Plan
    until_s: int
    rows: list[Float64s] = field(default_factory=list)
    known: dict[int, bool] = field(default_factory=dict)  # by life: whether every outcome is known, up to its end

    def act(self, view: ServiceView) -> Move:
        """Record; submit at the end."""
        chain, now = view.chain, view.now_s
        if chain.queued or now >= self.until_s:
            return Move(again_s=NEVER)
        terms, found = self.plan.terms(view), self.plan.candidates(view)
        assert view.would_start is not None
        start_s = np.array([view.would_start(link.limit_s) for link in found])
        limits_s = np.array([link.limit_s for link in found])
        lost_h, added_h = handover_h(terms, start_s - max(chain.covered_until_s, now), limits_s)
        life = chain.number * MOST_LINKS + len(chain.started)
        of_decision = np.tile([[life, now]], (len(found), 1))
        outcome = np.stack([lost_h, added_h], axis=1)
        self.rows.append(np.concatenate([of_decision, outcome, candidate_rows(view, terms, found)], axis=1))
        self.known[life] = self.known.get(life, True) and bool((start_s < self.until_s).all())
        if view.left_s > 0:
            return next_look(view)
        limits = terms.useful_s[-EXPLORED:]
        return Move(submit=(limits[len(chain.started) % len(limits)],))


def chain_rows(
    record: RecordedTrace, predecessors: Predecessors, decision_s: int, until_s: int, fit_span_s: int | None
) -> Float64s:
    """(n, WIDTH) rows of the chains that begin with those predecessors, by life and time.

    Only lives count that ended before `until_s`, epoch s, with every candidate's start before it.
    """
    longest_s = int(record.limit_s.max(initial=0))
    service = Service(WANTED_S, RESTART_S, decision_s, LIMITS_S).within(longest_s)
    recorder = _Recorder(Plan(WEIGHT, decision_s), until_s)
    play_services(record, predecessors, [recorder], service, fit_span_s)
    rows = np.concatenate([np.zeros((0, WIDTH)), *recorder.rows])
    ends = {int(life) for life, left_h in rows[:, [LIFE, FIRST + COLUMNS.index("left_h")]] if left_h == 0.0}
    known = np.array([int(life) in ends and recorder.known[int(life)] for life in rows[:, LIFE]], bool)
    rows = rows[known]
    found: Float64s = rows[np.lexsort((rows[:, AT], rows[:, LIFE]))]
    return found
