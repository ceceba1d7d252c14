"""Sample statistics of each attempt on a node, compiled: one pass over the cells that the attempt held.

Arrays in, arrays out. `features.resources.samples` prepares the arrays; the tests compare with a loop in plain Python.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel, kernel_inline
from traces.arrays import Float64s, Int64s


@kernel
def tally(
    values: Float64s,
    times_read: NDArray[np.uint8],
    is_shared: NDArray[np.bool_],
    low: Int64s,
    high: Int64s,
    rows: Int64s,
    bounds: Int64s,
    places: Int64s,
    counts: Int64s,
    totals: Float64s,
    readings: Int64s,
    seen: Float64s,
) -> None:
    """Count the cells of n placements.

    values (r, k): percent, NaN where offline or not sampled; times_read (r, k): samples of the cell; is_shared (k,).
    Placement i holds the ticks [low[i], high[i]) of rows[bounds[i]:bounds[i + 1]].
    Output: counts (n, 8), as `samples.COUNTS`; totals (n,), the sum of the online readings; `seen`, these readings from
    places[i] on, first those of dedicated minutes; readings (n, 2), the numbers of dedicated and of shared readings.

    Over 50 lines: every part of the pass shares its twelve counters.
    """
    for i in range(len(low)):
        samples = offline = repeated = minutes = shared = online_minutes = idle_minutes = idle_samples = 0
        total = 0.0
        front = places[i]
        back = front + (high[i] - low[i]) * (bounds[i + 1] - bounds[i])
        end = back
        for tick in range(low[i], high[i]):
            sampled = online = busy = 0
            for place in range(bounds[i], bounds[i + 1]):
                row = rows[place]
                read = times_read[row, tick]
                if read == 0:
                    continue
                sampled += 1
                repeated += read - 1
                value = values[row, tick]
                if value != value:  # NaN
                    offline += 1
                    continue
                online += 1
                busy += value != 0
                total += value
                if is_shared[tick]:
                    back -= 1
                    seen[back] = value
                else:
                    seen[front] = value
                    front += 1
            if sampled:
                samples += sampled
                minutes += 1
                shared += is_shared[tick]
                online_minutes += online > 0
                if online > 0 and busy == 0:
                    idle_minutes += 1
                    idle_samples += online
        readings[i, 0] = front - places[i]
        readings[i, 1] = end - back
        for place in range(end - back):  # close the gap between dedicated and shared readings
            seen[front + place] = seen[back + place]
        totals[i] = total
        counts[i, 0], counts[i, 1], counts[i, 2], counts[i, 3] = samples, offline, repeated, minutes
        counts[i, 4], counts[i, 5], counts[i, 6], counts[i, 7] = shared, online_minutes, idle_minutes, idle_samples


@kernel
def sample_quantiles(
    values: Float64s, first: Int64s, n: Int64s, shares: Float64s, scratch: Float64s, out: Float64s
) -> None:
    """Write the quantiles at `shares` (s,), rising, of m slices of values into `out` (m, s).

    Slice i is values[first[i]:first[i] + n[i]] and holds at least one value. Quantiles interpolate linearly, as numpy's
    default. scratch: working memory, at least as long as the longest slice.
    """
    for i in range(len(first)):
        for place in range(n[i]):
            scratch[place] = values[first[i] + place]
        last = n[i] - 1
        begin = 0
        for s in range(len(shares)):
            rank = last * shares[s]
            low = int(rank)
            _select(scratch, begin, last, low)
            below = scratch[low]
            above = below
            if low < last:
                above = scratch[low + 1]
                for place in range(low + 2, last + 1):
                    above = min(above, scratch[place])
            out[i, s] = below + (above - below) * (rank - low)
            begin = low


@kernel_inline
def _select(values: Float64s, low: int, high: int, k: int) -> None:
    """Partially sort values[low:high + 1] so that the k-th smallest value is at index k (Hoare's FIND, CACM 1961)."""
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if j < k:
            low = i
        if k < i:
            high = j
