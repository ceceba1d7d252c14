"""The survivors of NSGA-II for two objectives, both minimised: the first non-dominated fronts, spread out.

Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II" (IEEE Transactions on Evolutionary
Computation, 2002). A point dominates another one if it is no worse in both objectives and better in one.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import njit
from traces.arrays import Float64s, Int64s


@njit
def fronts(values: Float64s) -> tuple[Int64s, Int64s]:
    """Return the indices of `values` (n, 2) in rising order, and the front of each index, 0 for the first one.

    A front consists of the points that no point outside the earlier fronts dominates. Equal points share a front.
    """
    count = len(values)
    order, front = np.arange(count), np.zeros(count, dtype=np.int64)
    for at in range(1, count):
        index, before = order[at], at - 1
        while before >= 0 and (
            values[order[before], 0] > values[index, 0]
            or (values[order[before], 0] == values[index, 0] and values[order[before], 1] > values[index, 1])
        ):
            order[before + 1] = order[before]
            before -= 1
        order[before + 1] = index
    last, found = np.zeros(count, dtype=np.int64), 0  # last point of each front, which has its least second objective
    for index in order:
        rank = 0
        while rank < found:
            other = last[rank]
            if values[other, 1] > values[index, 1] or (
                values[other, 1] == values[index, 1] and values[other, 0] == values[index, 0]
            ):
                break
            rank += 1
        front[index], last[rank] = rank, index
        found = max(found, rank + 1)
    return order, front


@njit
def crowding(values: Float64s, members: Int64s) -> Float64s:
    """Return the crowding distance of the `members` of one front, in rising order, of `values` (n, 2).

    It is the mean distance between a point's two neighbours, as a share of the front's extent in each objective. The
    two ends have an infinite distance; a point equal to the one before it has 0.
    """
    count = len(members)
    distance = np.full(count, np.inf)
    first, last = members[0], members[-1]
    for at in range(1, count):
        point, before = members[at], members[at - 1]
        if values[point, 0] == values[before, 0] and values[point, 1] == values[before, 1]:
            distance[at] = 0.0
        elif at < count - 1:
            distance[at] = 0.0
            for objective in range(2):
                extent = abs(values[last, objective] - values[first, objective])
                if extent > 0.0:
                    gap = abs(values[members[at + 1], objective] - values[before, objective])
                    distance[at] += 0.5 * gap / extent
    return distance


@njit
def survivors(values: Float64s, most: int) -> tuple[Int64s, Float64s, int]:
    """Return the indices of the `most` best points of (n, 2), best front first, and the crowding distance of each.

    Of the front that does not fit whole, the least crowded points survive. The third number counts the survivors of the
    first front.
    """
    order, front = fronts(values)
    most = min(most, len(values))
    kept, distances = np.zeros(most, dtype=np.int64), np.zeros(most)
    count, first, rank = 0, 0, 0
    while count < most:
        members = order[front[order] == rank]
        distance = crowding(values, members)
        chosen = np.argsort(-distance, kind="mergesort") if count + len(members) > most else np.arange(len(members))
        for at in chosen[: most - count]:
            kept[count], distances[count] = members[at], distance[at]
            count += 1
        if rank == 0:
            first = count
        rank += 1
    return kept, distances, first
