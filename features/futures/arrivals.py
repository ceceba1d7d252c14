"""The past period that a future repeats as its arrivals: whole blocks, so that the bursts of a user stay together.

The jobs submitted within one `cycle` before the decision arrive again one cycle later, and again after every further
cycle. A cycle of whole weeks keeps the hour of the week; a cycle of whole days keeps the hour of the day. Weeks
alternate with days, each in rising order; the remaining days follow (a block bootstrap: Kunsch, Annals of Statistics
17(3), 1989).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.units import DAY_S

WEEKS_S = tuple(7 * DAY_S * week for week in (1, 2, 3, 4))
DAYS_S = tuple(DAY_S * days for days in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 22, 23))
MOST_S = max(*WEEKS_S, *DAYS_S)  # longest period of the past that a future repeats


def cycles_s(futures: int) -> NDArray[np.int64]:
    """Choose the cycle of each future, s, (futures,): the four week cycles alternate with the day cycles."""
    in_turn = [cycle for pair in zip(WEEKS_S, DAYS_S, strict=False) for cycle in pair]
    in_turn += DAYS_S[len(WEEKS_S) :]
    return np.array([in_turn[k % len(in_turn)] for k in range(futures)], np.int64)
