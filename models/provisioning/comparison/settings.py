"""Choose the setting at which a policy is judged: on the select window, never on the reported one."""

from __future__ import annotations

import numpy as np

from features.conventions import ORACLE
from models.provisioning.comparison.outcomes import PolicyOutcome


def headline(outcome: PolicyOutcome, select: PolicyOutcome | None) -> int:
    """Position of the setting at which a policy is judged.

    It is the setting of least mean cost (weight 1) on the select window, the first of equals. Without a select window
    it is the default; so it is for the oracle, whose setting is the weight.
    """
    if select is not None and outcome.policy != ORACLE:
        return int(np.argmin(select.cost_h(1.0).mean(axis=(0, 2))))
    return int(np.argmin(np.abs(np.asarray(outcome.settings) - outcome.default_setting)))


def pick_within(select: PolicyOutcome, budget_h: float) -> int | None:
    """Position of the setting with the least interruption among those whose mean overlap is at most `budget_h`.

    Of settings with equal interruption it is the one with the least overlap. None if no setting is within the budget.
    """
    interruption = select.interruption_h.mean(axis=(0, 2))
    overlap = select.overlap_h.mean(axis=(0, 2))
    within = np.flatnonzero(overlap <= budget_h)
    if not len(within):
        return None
    return int(within[np.lexsort((overlap[within], interruption[within]))[0]])


def chosen(outcome: PolicyOutcome, select: PolicyOutcome, budget_h: float) -> dict[str, float] | None:
    """The setting that the select window picks within the budget, with its figures on the report window."""
    at = pick_within(select, budget_h)
    if at is None:
        return None
    return {
        "setting": outcome.settings[at],
        "interruption_h": float(outcome.interruption_h[:, at].mean()),
        "overlap_h": float(outcome.overlap_h[:, at].mean()),
    }
