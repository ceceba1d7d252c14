"""Gandiva's packing of jobs on shared GPUs, in the form of Gavel's comparison with it.

Xiao et al., "Gandiva: Introspective cluster scheduling for deep learning" (OSDI 2018). Two jobs are packed if together
they progress more than one does alone; Gandiva finds out by a trial. Gavel (Narayanan et al., OSDI 2020) pairs jobs of
equal GPUs and drops a pair whose normalised throughputs add to less than 1. Here the pair with the highest sum is taken
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations


def pairs(
    jobs: Sequence[tuple[int, int]], together: Callable[[int, int], float], least: float = 1.0
) -> list[tuple[int, int]]:
    """Return disjoint pairs of `jobs` (number, GPUs) with equal GPUs whose throughput `together` is above `least`.

    `together(a, b)` is the sum of both jobs' speeds relative to running alone, at most 2. Best pair first; ties by
    number.
    """
    candidates = [
        (together(a, b), a, b)
        for (a, gpus), (b, others_gpus) in combinations(jobs, 2)
        if gpus == others_gpus and together(a, b) > least
    ]
    taken: set[int] = set()
    found = []
    for _, a, b in sorted(candidates, key=lambda candidate: (-candidate[0], candidate[1], candidate[2])):
        if a not in taken and b not in taken:
            taken |= {a, b}
            found.append((a, b))
    return found
