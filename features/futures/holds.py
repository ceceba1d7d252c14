"""The remaining time that a held job stays held, given the time it has been held so far.

A log does not record why a job is held, so we assume a distribution. A job that has been held for a seconds is released
after another x seconds or later with probability (a / (a + x))**POWER. This is a Lomax distribution (Lomax, "Business
failures", JASA 49, 1954) with median 0.41 a and mean a. docs/decisions/0040-how-long-jobs-stay-held.md explains the
choice of POWER and the alternatives that were tried.

The function is plain Python, which numba can compile.
"""

from __future__ import annotations

POWER = 2.0
MOST_S = 1e9


def held_longer_s(held_s: int, quantile: float) -> int:
    """Return a quantile, in [0, 1), of the further time, s, that a job stays held after being held for `held_s`."""
    return int(min(held_s * ((1.0 - quantile) ** (-1.0 / POWER) - 1.0), MOST_S))
