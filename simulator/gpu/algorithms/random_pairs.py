"""Gandiva's packing in the form of Gavel's comparison: random pairs of jobs, kept while they are worth it.

Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads" (OSDI 2020), section 7,
and the program that they released (commit c4fa400).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

LEAST_TOGETHER = 1.0  # sum of what both jobs keep of their speeds, over all GPU types, below which a pair is dropped


class RandomPairs:
    """The pairs in force. Each new job without partner is tried with a random other one."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pairs: list[tuple[int, ...]] = []

    def pair(
        self, gpus: Mapping[int, int], room: int, together: Callable[[tuple[int, ...]], float]
    ) -> list[tuple[int, ...]]:
        """Return the jobs that run alone, (job,), and the pairs that share GPUs, (job, job).

        `gpus` holds the GPUs of each present job. If all of them fit into `room` GPUs, every job runs alone. Else as
        many draws of two single jobs are made as there are single jobs; two of equal GPUs become a pair. A pair ends
        with one of its jobs, or when `together` is below LEAST_TOGETHER at the next call: the draw itself is blind.
        """
        there = [pair for pair in self._pairs if all(job in gpus for job in pair)]
        self._pairs = [pair for pair in there if together(pair) >= LEAST_TOGETHER]
        if sum(gpus.values()) <= room:
            return [(job,) for job in gpus]
        paired = {job for pair in self._pairs for job in pair}
        single = [job for job in gpus if job not in paired]
        for _ in range(len(single)):
            if len(single) < 2:
                break
            a, b = (single[at] for at in self._random.choice(len(single), 2, replace=False))
            if gpus[a] == gpus[b]:
                self._pairs.append((a, b))
                single = [job for job in single if job not in (a, b)]
        return [*((job,) for job in single), *self._pairs]
