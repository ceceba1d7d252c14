"""The random numbers of futures: the same for the same job in the same future, at every decision.

Common random numbers (Law, Simulation Modeling and Analysis, section 11.2): two decisions differ by what they do and
not by their luck. So a number is made from the job's and the future's number alone, and nothing is drawn in order. The
K numbers of a job are a Latin hypercube (McKay, Beckman and Conover, Technometrics 21(2), 1979): one in each of K equal
parts of [0, 1), in an order of the job's own.

Plain functions over numpy arrays, which numba compiles as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

RUN, RELEASE = 0, 1  # uses of a job's random numbers
_PRIME = 2147483647  # 2**31 - 1: products of two numbers below it are whole in an int64
_STREAMS = 8  # uses of one job in one future that differ


def uniform(job: int, future: int, use: int) -> float:
    """A number in [0, 1) that hangs on these three alone; `use` below 8 keeps several draws of one job apart."""
    x = (job * 48271 + (future * _STREAMS + use) * 69621 + 40692) % _PRIME
    for turn in range(3):  # squares modulo a prime: no lattice of jobs and futures is left
        x = (x * x + 16807 * (turn + 1) + job % 65536) % _PRIME
    return x / _PRIME


def spread(job: int, use: int, out: Float64s) -> None:
    """Write the job's numbers in `out` (K,): one in each K-th part of [0, 1), in an order of the job's own."""
    count = len(out)
    for k in range(count):
        mine, rank = uniform(job, k, use), 0
        for other in range(count):
            theirs = uniform(job, other, use)
            if theirs < mine or (theirs == mine and other < k):
                rank += 1
        out[k] = (rank + mine) / count
