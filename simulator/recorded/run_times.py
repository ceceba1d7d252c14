"""How long a job runs that a simulation starts earlier than the record does: no longer than like jobs did, in the mean.

Of such a job the log shows the end only when its recorded end is past. It began `early_s` before it did in truth, so
to hold its nodes until that end would be to hold them for `early_s` too long, and every job that starts early would
add work to the cluster. So its run is cut at a length c, chosen so that the mean is right: if its run time is one of
those of like jobs, x_1 .. x_n, then

    mean of min(x_k + early_s, c)  =  mean of x_k.

Three cases show what that means. A job that is known to run for its whole limit L gets c = L: it ends at its limit.
One that starts a second early has a c as long as its longest like runs, and ends with its record. One that starts
earlier than such jobs run in the mean gets c = that mean, and the record adds nothing.

Like jobs are the last LAST of the same user that had ended when the log was left; of everybody where the user has
fewer than LEAST. Their run times are counted as shares of their limits. With fewer than LEAST of anybody a job is
taken to run for its limit. Compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.record import NEVER, NONE, Int64s, Record
from simulator.recorded.search import first_not_before

LAST = 256  # jobs that ended last: enough for their mean, few enough to follow a user who changes
LEAST = 3
STEPS = 16  # evenly spaced ones of them, by run time, stand for all
WHOLE = 1_000_000  # a share of 1, so that shares are whole numbers and sums exact


class RunTimes(NamedTuple):
    """Shares of their limits that ended jobs ran, as known after each end, int64.

    Group u holds the ends of user u's jobs, by time; the last group those of everybody.
    """

    first: Int64s  # (groups + 1,) group g is first[g] .. first[g + 1] - 1 of the rest
    end_s: Int64s  # (ends,) epoch s
    share: Int64s  # (ends, STEPS) rising; of the LAST jobs of the group up to this one, in parts of WHOLE


def run_times(record: Record) -> RunTimes:
    """The shares of a record, after each of its ends."""
    ended = np.flatnonzero(record.ran & (record.end_s < NEVER))
    ended = ended[np.argsort(record.end_s[ended], kind="stable")]
    row = np.concatenate([ended[np.argsort(record.user[ended], kind="stable")], ended])
    group = np.append(record.user[row[: len(ended)]], np.full(len(ended), record.users))
    run_s = record.end_s[row] - record.start_s[row]
    first = np.searchsorted(group, np.arange(record.users + 2)).astype(np.int64)
    spaced = np.zeros((len(row), STEPS), np.int64)
    _fill(first, np.minimum(run_s * WHOLE // record.limit_s[row], WHOLE), np.zeros(LAST, np.int64), spaced)
    return RunTimes(first, np.ascontiguousarray(record.end_s[row]), spaced)


@kernel
def _fill(first: Int64s, share: Int64s, window: Int64s, spaced: Int64s) -> None:
    """After each end, STEPS evenly spaced ones of the last LAST shares of its group; `window` (LAST,) keeps them."""
    for g in range(len(first) - 1):
        count = 0
        for i in range(first[g], first[g + 1]):
            if count == LAST:
                at = 0
                while window[at] != share[i - LAST]:
                    at += 1
                for k in range(at, LAST - 1):
                    window[k] = window[k + 1]
                count -= 1
            at = count
            while at > 0 and window[at - 1] > share[i]:
                window[at] = window[at - 1]
                at -= 1
            window[at] = share[i]
            count += 1
            for k in range(STEPS):
                spaced[i, k] = window[(2 * k + 1) * count // (2 * STEPS)]


@kernel
def longest_run_s(times: RunTimes, user: int, limit_s: int, early_s: int, known_s: int) -> int:
    """The length c at which a job is cut that started `early_s` > 0 before it did in truth, by the ends before known_s.

    `early_s` may be any large number where it never started.
    """
    at = _last_end(times, user, known_s)
    if at == NONE:
        at = _last_end(times, len(times.first) - 2, known_s)
    if at == NONE:
        return limit_s
    early = max(min(early_s, limit_s) * WHOLE // limit_s, 1)
    left = 0  # of the sum of all shares, for those that are cut
    for k in range(STEPS):
        left += times.share[at, k]
    # The k shortest are not cut: each takes its share and `early` of that sum, the others c each.
    k = 0
    while left // (STEPS - k) >= times.share[at, k] + early:
        left -= times.share[at, k] + early
        k += 1
    return int(left // (STEPS - k) * limit_s // WHOLE)


@kernel
def _last_end(times: RunTimes, group: int, known_s: int) -> int:
    """The last end of a group before `known_s`, NONE where there are fewer than LEAST."""
    first = times.first[group]
    after = first_not_before(times.end_s, first, times.first[group + 1], known_s)
    return int(after - 1) if after >= first + LEAST else NONE
