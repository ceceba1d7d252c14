"""Which jobs share GPUs: Gandiva's packing, in the form of Gavel's comparison with it.

Xiao et al., "Gandiva: Introspective cluster scheduling for deep learning" (OSDI 2018): jobs are packed where
what both do together is more than what one does alone, which Gandiva finds out by trying. Gavel (Narayanan et al., OSDI
2020) pairs jobs of equal GPUs and drops a pair whose normalised throughputs add to less than 1. Here the pair with
the most is taken first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations


def pairs(
    jobs: Sequence[tuple[int, int]], together: Callable[[int, int], float], least: float = 1.0
) -> list[tuple[int, int]]:
    """Disjoint pairs of `jobs` (number, GPUs) of equal GPUs whose throughput `together` is above `least`.

    `together(a, b)` is the sum of what each keeps of its own speed, at most 2. The best pair first; ties by number.
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
