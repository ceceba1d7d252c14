"""Which setting of a policy is judged: chosen on the select window, never on the one that is reported."""

from __future__ import annotations

import numpy as np

from features.conventions import ORACLE
from models.comparison.outcomes import Outcome


def headline(outcome: Outcome, select: Outcome | None) -> int:
    """Position of the setting at which a policy is judged.

    It is the one of least mean cost (weight 1) on the select window, the first of equals; without a select window, and
    of the oracle, whose setting is the weight, it is the default.
    """
    if select is not None and outcome.policy != ORACLE:
        return int(np.argmin(select.cost_h(1.0).mean(axis=(0, 2))))
    return int(np.argmin(np.abs(np.asarray(outcome.settings) - outcome.default_setting)))


def pick_within(select: Outcome, budget_h: float) -> int | None:
    """Position of the setting with the least interruption of those whose mean overlap is at most `budget_h`.

    Of settings with equal interruption it is the one with the least overlap; None where none is within the budget.
    """
    interruption = select.interruption_h.mean(axis=(0, 2))
    overlap = select.overlap_h.mean(axis=(0, 2))
    within = np.flatnonzero(overlap <= budget_h)
    if not len(within):
        return None
    return int(within[np.lexsort((overlap[within], interruption[within]))[0]])


def chosen(outcome: Outcome, select: Outcome, budget_h: float) -> dict[str, float] | None:
    """The setting that the select window picks within the budget, and what it really did on the report window."""
    at = pick_within(select, budget_h)
    if at is None:
        return None
    return {
        "setting": outcome.settings[at],
        "interruption_h": float(outcome.interruption_h[:, at].mean()),
        "overlap_h": float(outcome.overlap_h[:, at].mean()),
    }
