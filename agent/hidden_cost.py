"""The cost of hiding a group of features from a released policy, read from `release.results.hidden`.

The figures come from the simulator: the same pairs are decided once with all features and once with the fills of that
group (`baton evaluate --hidden`), on the window on which the release was judged.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agent.artifact import Artifact
from features.observe import HIDDEN_TOGETHER


@dataclass(frozen=True)
class HiddenCost:
    """Extra cost per handover in hours (interruption and overlap, weight 1), over `pairs` simulated pairs.

    low_h, high_h: the 95 % interval by blocks of 7 days; None if all pairs are in one block.
    """

    more_h: float
    pairs: int
    low_h: float | None = None
    high_h: float | None = None

    @property
    def text(self) -> str:
        """The figure with its interval and n, as text."""
        interval = "no interval" if self.low_h is None else f"95 % {self.low_h:+.2f} to {self.high_h:+.2f}"
        return f"{self.more_h:+.2f} h per handover in the simulator ({interval}, n = {self.pairs})"


def hidden_costs(artifact: Artifact) -> dict[str, HiddenCost]:
    """Read the cost of each group of `HIDDEN_TOGETHER`; empty if the artifact is no release or has no such figures.

    Raises ValueError, one line, if the manifest's entry is malformed.
    """
    stated: Any = artifact.manifest
    for key in ("release", "results", "hidden"):
        stated = stated.get(key, {}) if isinstance(stated, dict) else None
    if not isinstance(stated, dict):
        raise ValueError("manifest.json: release.results.hidden must be an object with one entry per feature group")
    return {group: _cost(group, stated[group]) for group in HIDDEN_TOGETHER if group in stated}


def words_of(groups: Collection[str], costs: dict[str, HiddenCost]) -> str:
    """Format the cost of hiding each of these groups alone."""
    return "; ".join(
        f"{group} hidden: {costs[group].text}" if group in costs else f"{group} hidden: cost not in the artifact"
        for group in groups
    )


def _cost(group: str, row: Any) -> HiddenCost:
    """Parse one entry of the manifest."""
    row = row if isinstance(row, dict) else {}
    interval = row.get("ci95")
    numbers = [row.get("difference_h"), *(interval if isinstance(interval, list) else [])]
    are_finite = all(type(one) in (int, float) and math.isfinite(one) for one in numbers)
    if not are_finite or len(numbers) not in (1, 3) or type(row.get("n")) is not int:
        raise ValueError(
            f"manifest.json: release.results.hidden.{group} must have difference_h, n, and ci95 (two numbers or null)"
        )
    return HiddenCost(numbers[0], row["n"], *numbers[1:])
