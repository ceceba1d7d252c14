"""What it costs a released policy not to be shown a group of features, from `release.results.hidden`.

The figures are the simulator's: the same pairs decided once with all features and once with the fills of that group
(`baton evaluate --hidden`), measured where the release was judged.
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
    """Hours a handover (interruption and overlap, weight 1) that it costs more, over `pairs` pairs of the simulator.

    low_h, high_h: the 95 % interval by blocks of 7 days; None where the pairs were of one block.
    """

    more_h: float
    pairs: int
    low_h: float | None = None
    high_h: float | None = None

    @property
    def text(self) -> str:
        """The figure with its interval and n, for people."""
        ends = "no interval" if self.low_h is None else f"95 % {self.low_h:+.2f} to {self.high_h:+.2f}"
        return f"{self.more_h:+.2f} h a handover in the simulator ({ends}, n {self.pairs})"


def hidden_costs(artifact: Artifact) -> dict[str, HiddenCost]:
    """By group of `HIDDEN_TOGETHER`; empty of an artifact that is no release, or of one older than these figures.

    Raises ValueError, one line, where the manifest tells something else in their place.
    """
    told: Any = artifact.manifest
    for key in ("release", "results", "hidden"):
        told = told.get(key, {}) if isinstance(told, dict) else None
    if not isinstance(told, dict):
        raise ValueError("manifest.json: release.results.hidden must be an object, a group of features each")
    return {group: _cost(group, told[group]) for group in HIDDEN_TOGETHER if group in told}


def words_of(groups: Collection[str], costs: dict[str, HiddenCost]) -> str:
    """What hiding these groups costs, each alone."""
    return "; ".join(
        f"{group} hidden: {costs[group].text}" if group in costs else f"{group} hidden: the artifact tells no cost"
        for group in groups
    )


def _cost(group: str, row: Any) -> HiddenCost:
    """One entry of the manifest."""
    row = row if isinstance(row, dict) else {}
    ends = row.get("ci95")
    numbers = [row.get("difference_h"), *(ends if isinstance(ends, list) else [])]
    are_finite = all(type(one) in (int, float) and math.isfinite(one) for one in numbers)
    if not are_finite or len(numbers) not in (1, 3) or type(row.get("n")) is not int:
        raise ValueError(
            f"manifest.json: release.results.hidden.{group} must have difference_h, n, and as ci95 two numbers or null"
        )
    return HiddenCost(numbers[0], row["n"], *numbers[1:])
