"""Measure the cost of hiding features from a policy: the same pairs, decided with fill values for the hidden ones.

`models.provisioning.learning.masking` makes the observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from features.bootstrap import (
    DRAWS,
    block_count,
    interval,
    resampled_means,
    seed_weights,
    start_weights,
)
from features.conventions import INDICATIVE_BELOW_BLOCKS
from features.observe import HIDDEN_TOGETHER
from models.provisioning.comparison.groups import EVERYTHING, Group, judged
from models.provisioning.comparison.outcomes import PolicyOutcome, play
from models.provisioning.comparison.settings import headline
from models.provisioning.learning.masking import masked
from models.provisioning.protocol import PairTable, TrainedPolicy
from simulator.one_thread import one_thread
from traces.errors import InputError


def check_hidden(names: Sequence[str]) -> None:
    """Raise InputError unless there is a name and each is a key of `features.observe.HIDDEN_TOGETHER`."""
    unknown = [name for name in names if name not in HIDDEN_TOGETHER]
    if unknown or not names:
        shown = ", ".join(map(repr, unknown)) or "has no value"
        raise InputError(f"--hidden {shown}; give one or several of {', '.join(HIDDEN_TOGETHER)}")


@one_thread
def cost_of_hiding(
    report: PairTable,
    trained: Sequence[TrainedPolicy],
    hidden: Sequence[str],
    *,
    kind: str,
    select: PairTable | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    every_size: bool = False,
) -> list[dict[str, Any]]:
    """A row for each policy and group of pairs: its cost (weight 1, hours a pair) seeing all features, and seeing less.

    Both use one setting: the one that a comparison picks on the select window with all features seen. `difference_h` is
    positive if hiding costs. `ci95` is its interval by 7-day blocks, None if the pairs are of one block. kind:
    `Scenario.pairs`; with `every_size` all pairs are one group, whatever the kind.
    """
    check_hidden(hidden)
    rows = []
    for group in [EVERYTHING] if every_size else judged(report, kind):
        pairs = report.take(group.of(report))
        known = None if select is None else select.take(group.of(select))
        for name in dict.fromkeys(one.name for one in trained):
            artifacts = [one.artifact for one in trained if one.name == name]
            seen = play(pairs, artifacts, name)
            on_select = play(known, artifacts, name) if known is not None and len(known) else None
            at = headline(seen, on_select)
            less = play(masked(pairs, hidden), artifacts, name)
            rows.append(_row(group, pairs, seen, less, at, hidden, draws, seed))
    return rows


def _row(
    group: Group,
    pairs: PairTable,
    seen: PolicyOutcome,
    less: PolicyOutcome,
    at: int,
    hidden: Sequence[str],
    draws: int,
    seed: int,
) -> dict[str, Any]:
    costs = [outcome.cost_h(1.0)[:, at : at + 1] for outcome in (seen, less)]  # (seeds, 1, pairs)
    difference = costs[1] - costs[0]
    starts = start_weights(pairs.submit_s, draws, seed)
    ci95 = None
    if starts is not None:
        ci95 = interval(resampled_means(difference, starts, seed_weights(len(difference), draws, seed))[:, 0])
    blocks = block_count(pairs.submit_s, int(pairs.submit_s.min()))
    return {
        "policy": seen.policy,
        **group.identity(pairs),
        "hidden": list(hidden),
        "setting": float(seen.settings[at]),
        "n": len(pairs),
        "blocks": blocks,
        "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
        "seeds": len(difference),
        "cost_w1": float(costs[0].mean()),
        "cost_w1_hidden": float(costs[1].mean()),
        "difference_h": float(difference.mean()),
        "ci95": ci95,
    }
