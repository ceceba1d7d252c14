"""Which earlier time the arrivals of a future are taken from: whole blocks, so that users' bursts stay together.

The jobs submitted in the `cycle` before the decision come again, each a cycle later, and so on round and round. A cycle
of whole weeks keeps the hour of the week, one of whole days the hour of the day. Weeks come first, then days between
them, the latest first (a block bootstrap: Kunsch, Annals of Statistics 17(3), 1989).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DAY_S = 86400
WEEKS_S = tuple(7 * DAY_S * week for week in (1, 2, 3, 4))
DAYS_S = tuple(DAY_S * days for days in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 22, 23))
MOST_S = max(*WEEKS_S, *DAYS_S)  # of the past that futures look back on


def cycles_s(futures: int) -> NDArray[np.int64]:
    """The cycle of each future, s, (futures,): the four weeks in turn with the days between them."""
    in_turn = [cycle for pair in zip(WEEKS_S, DAYS_S, strict=False) for cycle in pair]
    in_turn += DAYS_S[len(WEEKS_S) :]
    return np.array([in_turn[k % len(in_turn)] for k in range(futures)], np.int64)
