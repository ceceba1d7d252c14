"""Paired differences of a policy to the best rule that learned nothing, in one window and over several together.

The best rule is the one of least cost on the select window, so the reported window picks neither policy nor rule. Both
are measured on the same pairs, and their intervals come from the same draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from features.bootstrap import interval
from features.conventions import POOLED_WINDOWS
from models.provisioning.comparison.cells import at_budget
from models.provisioning.comparison.outcomes import PolicyOutcome
from models.provisioning.comparison.rules import is_rule
from models.provisioning.comparison.settings import headline
from traces import instants
from traces.arrays import Float64s
from traces.errors import InputError

COMPARED = ("cost_w1", at_budget("0.25"))  # figures with a difference


@dataclass(frozen=True)
class Difference:
    """A policy less the best rule, on one group of one window; hours a pair, negative if the policy costs less."""

    size: str
    policy: str
    rule: str
    n: int  # pairs
    blocks: int
    from_s: int  # first and last submission, epoch s
    until_s: int
    figures: Mapping[str, Float64s]  # (1 + draws,) by COMPARED: over the pairs as they are, then in every draw


def best_rule(select: Mapping[str, PolicyOutcome]) -> str | None:
    """The rule of least cost (weight 1) at its headline setting on the select window; of equals the first.

    None without a select window, because the report window must not pick it.
    """
    costs = {
        name: float(outcome.cost_h(1.0)[:, headline(outcome, outcome)].mean())
        for name, outcome in select.items()
        if is_rule(name)
    }
    return min(costs, key=lambda name: round(costs[name], 9)) if costs else None


def less_rule(figures: Mapping[str, Float64s], of_rule: Mapping[str, Float64s]) -> dict[str, Float64s]:
    """The figures of COMPARED less those of the rule, draw by draw."""
    return {name: figures[name] - of_rule[name] for name in COMPARED}


def difference_row(rule: str, figures: Mapping[str, Float64s], *, is_spread: bool) -> dict[str, Any]:
    """A difference as `baton evaluate --json` prints it; without intervals if the pairs are of one block."""
    return {
        "rule": rule,
        **{name: _number(values) for name, values in figures.items()},
        "ci95": {name: interval(values[1:]) if is_spread else None for name, values in figures.items()},
    }


def pool(windows: Sequence[Iterable[Difference]]) -> list[dict[str, Any]]:
    """Combine the differences of several windows: a row for each size and policy that is in all of them.

    Each window is weighted by its number of pairs. The draws of different windows are independent, and each window has
    the rule that its own select window picked. `beats` is True if the interval of the cost lies below 0, `loses` if it
    lies above; both are None for fewer than POOLED_WINDOWS windows. Raises InputError for windows that overlap.
    """
    by_window = [{(one.size, one.policy): one for one in window} for window in windows]
    _check_apart([list(window.values()) for window in by_window])
    rows = []
    for key in by_window[0] if by_window else ():
        parts = [window[key] for window in by_window if key in window]
        if len(parts) == len(by_window):
            rows.append(_pooled(parts))
    return rows


def _pooled(parts: Sequence[Difference]) -> dict[str, Any]:
    share = np.array([part.n for part in parts]) / sum(part.n for part in parts)
    together = {name: _mixed([part.figures[name] for part in parts], share) for name in COMPARED}
    ci95 = {name: interval(values[1:]) for name, values in together.items()}
    cost = ci95["cost_w1"]
    is_enough = len(parts) >= POOLED_WINDOWS and cost is not None
    return {
        "size": parts[0].size,
        "policy": parts[0].policy,
        "rules": [part.rule for part in parts],
        "windows": len(parts),
        "n": sum(part.n for part in parts),
        "blocks": sum(part.blocks for part in parts),
        **{name: _number(values) for name, values in together.items()},
        "ci95": ci95,
        "beats": cost[1] < 0.0 if is_enough and cost is not None else None,
        "loses": cost[0] > 0.0 if is_enough and cost is not None else None,
    }


def _mixed(windows: Sequence[Float64s], share: Float64s) -> Float64s:
    """(1 + draws,) mean of the windows' figures; the draws of each window are shuffled first, by themselves.

    All windows are drawn with the same random numbers, so draws of the same number are not independent. A window of one
    block has no draws; then the mean has none either.
    """
    draws = min(len(values) for values in windows) - 1
    mixed = np.zeros(1 + draws)
    for place, (values, weight) in enumerate(zip(windows, share, strict=True)):
        shuffled = np.random.default_rng(place).permutation(values[1:])[:draws]
        mixed += weight * np.concatenate([values[:1], shuffled])
    return mixed


def _check_apart(windows: Sequence[Sequence[Difference]]) -> None:
    """Raise InputError if two windows may share pairs."""
    bounds = sorted(
        (min(one.from_s for one in window), max(one.until_s for one in window)) for window in windows if window
    )
    for (_, until_s), (from_s, _) in itertools.pairwise(bounds):
        if from_s <= until_s:
            raise InputError(
                f"the window from {instants.text(from_s)} begins before the previous one ends "
                f"({instants.text(until_s)}): pool windows that do not overlap"
            )


def _number(values: Float64s) -> float | None:
    return float(values[0]) if np.isfinite(values[0]) else None
