"""Binary search among rising instants, for all compiled code of the recorded world."""

from __future__ import annotations

from simulator.compiled import kernel
from traces.arrays import Int64s


@kernel
def first_not_before(time_s: Int64s, low: int, high: int, at_s: int) -> int:
    """Return the first of low .. high - 1 at which `time_s` (rising there, s) is not before `at_s`, else `high`."""
    while low < high:
        middle = (low + high) // 2
        if time_s[middle] < at_s:
            low = middle + 1
        else:
            high = middle
    return int(low)
