"""The multiple-choice knapsack: choose at most one item per group within the capacity to maximise the value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traces.arrays import Float64s, Int32s

Group = Sequence[tuple[int, float]]  # items (weight >= 1, value)


def choose(groups: Sequence[Group], capacity: int) -> list[int]:
    """Return the index of the item chosen from each group, -1 for none; exact, by dynamic programming.

    Time grows with items x capacity, memory with groups x capacity (Sinha and Zoltners, "The multiple-choice knapsack
    problem", Operations Research 27(3), 1979). Among equal solutions, the one with the fewest groups from the front is
    chosen. An item without a positive value is never chosen.
    """
    best, picks = np.zeros(capacity + 1), []
    for group in groups:
        values = [value if value > 0.0 else -np.inf for _, value in group]
        best, pick = folded(best, [0.0, *values], [0, *(weight for weight, _ in group)])
        picks.append(pick - 1)
    chosen, left = [-1] * len(groups), capacity
    for number in range(len(groups) - 1, -1, -1):
        chosen[number] = int(picks[number][left])
        if chosen[number] >= 0:
            left -= groups[number][chosen[number]][0]
    return chosen


def folded(best: Float64s, values: Sequence[float] | Float64s, weights: Sequence[int]) -> tuple[Float64s, Int32s]:
    """Extend the best total value for each capacity, (capacity + 1,), by one item of a group; also return its index.

    Both arrays are (capacity + 1,). Among equal values, the first item is chosen.
    """
    grown, picked = np.full_like(best, -np.inf), np.zeros(len(best), dtype=np.int32)
    for index, (value, weight) in enumerate(zip(values, weights, strict=True)):
        if weight < len(best):
            with_item = best[: len(best) - weight] + value
            better = with_item > grown[weight:] + 1e-12
            grown[weight:][better] = with_item[better]
            picked[weight:][better] = index
    return grown, picked
