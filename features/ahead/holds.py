"""How much longer a held job stays held, given how long it has been: a law, as a log says nothing of the cause.

A job that has been held for a seconds is released after another x or later with probability (a / (a + x))**POWER: a
Lomax distribution (Lomax, "Business failures", JASA 49, 1954), half of it within .41 a, its mean a. How the power was
chosen, and what was tried in place of the law: docs/decisions/0040-how-long-jobs-stay-held.md.

A plain function, which numba compiles as it is.
"""

from __future__ import annotations

POWER = 2.0
MOST_S = 1e9


def held_longer_s(held_s: int, quantile: float) -> int:
    """The quantile in [0, 1) of how much longer, s, a job stays held that has been for `held_s`."""
    return int(min(held_s * ((1.0 - quantile) ** (-1.0 / POWER) - 1.0), MOST_S))
