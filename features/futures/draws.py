"""The random numbers of futures: a job has the same number in the same future at every decision.

These are common random numbers (Law, Simulation Modeling and Analysis, section 11.2): two decisions differ by their
action and not by chance. A number therefore depends only on the numbers of the job and the future, and not on the order
of the draws. The K numbers of a job form a Latin hypercube (McKay, Beckman and Conover, Technometrics 21(2), 1979): one
in each of K equal parts of [0, 1), in an order specific to the job.

The functions are plain Python over numpy arrays, which numba can compile.
"""

from __future__ import annotations

from traces.arrays import Float64s

RUN, RELEASE = 0, 1  # uses of a job's random numbers
_PRIME = 2147483647  # 2**31 - 1: the product of two numbers below it fits an int64
_STREAMS = 8  # number of independent draws per job and future


def uniform(job: int, future: int, use: int) -> float:
    """Return a number in [0, 1) that depends only on the arguments; `use`, below 8, separates the draws of one job."""
    x = (job * 48271 + (future * _STREAMS + use) * 69621 + 40692) % _PRIME
    for turn in range(3):  # squaring modulo a prime removes the lattice over jobs and futures
        x = (x * x + 16807 * (turn + 1) + job % 65536) % _PRIME
    return x / _PRIME


def spread(job: int, use: int, out: Float64s) -> None:
    """Write the job's numbers into `out` (K,): one in each K-th part of [0, 1), in an order specific to the job."""
    count = len(out)
    for k in range(count):
        mine, rank = uniform(job, k, use), 0
        for other in range(count):
            theirs = uniform(job, other, use)
            if theirs < mine or (theirs == mine and other < k):
                rank += 1
        out[k] = (rank + mine) / count
