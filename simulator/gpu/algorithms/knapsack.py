"""The multiple-choice knapsack: choose at most one item per group within the capacity to maximise the value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Group = Sequence[tuple[int, float]]  # items (weight >= 1, value)


def choose(groups: Sequence[Group], capacity: int) -> list[int]:
    """Return the index of the item chosen from each group, -1 for none; exact, by dynamic programming.

    Time grows with items x capacity, memory with groups x capacity (Sinha and Zoltners, "The multiple-choice knapsack
    problem", Operations Research 27(3), 1979). Among equal solutions, the one with the fewest groups from the front is
    chosen. An item without a positive value is never chosen.
    """
    best = np.zeros(capacity + 1)  # best value of the groups so far for each capacity
    picks = np.full((len(groups), capacity + 1), -1, dtype=np.int32)
    for number, group in enumerate(groups):
        grown = best.copy()
        for index, (weight, value) in enumerate(group):
            if weight > capacity or value <= 0.0:
                continue
            with_item = best[: capacity + 1 - weight] + value
            better = with_item > grown[weight:] + 1e-12
            grown[weight:][better] = with_item[better]
            picks[number, weight:][better] = index
        best = grown
    chosen, left = [-1] * len(groups), capacity
    for number in range(len(groups) - 1, -1, -1):
        chosen[number] = int(picks[number, left])
        if chosen[number] >= 0:
            left -= groups[number][chosen[number]][0]
    return chosen
