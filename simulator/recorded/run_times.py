"""The run time of a job that a simulation starts earlier than recorded, estimated from similar jobs. Compiled.

The log reveals the run time of such a job only at its recorded end. The job began `early_s` before its recorded start.
If it held its nodes until its recorded end, it would hold them `early_s` too long, and every early start would add work
to the cluster. So its run is cut at a length c that preserves the mean. If its run time is one of those of similar
jobs, x_1 .. x_n, then

    mean of min(x_k + early_s, c)  =  mean of x_k.

Three cases show the effect. If similar jobs always run for their whole limit L, then c = L, and the job ends at its
limit. If a job starts a second early, c is as long as the longest similar run, and the job ends at its recorded end. If
a job starts earlier by more than the mean of similar runs, c is that mean, and the record adds nothing.

Similar jobs are the last LAST jobs of the same user that had ended when the branch left the log, or those of all users
if the user has fewer than LEAST. Run times are counted as shares of time limits. If all users together have fewer than
LEAST, the job is assumed to run for its limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from simulator.recorded.search import first_not_before
from traces.arrays import Int64s

LAST = 256  # latest ended jobs used: enough for a stable mean, few enough to follow changes of a user
LEAST = 3
STEPS = 16  # evenly spaced run times that represent them
WHOLE = 1_000_000  # the integer for a share of 1, so that sums are exact


class RunTimes(NamedTuple):
    """Run times of ended jobs as shares of their limits, as known after each end, int64.

    Group u holds the ends of user u's jobs by time; the last group holds those of all users.
    """

    first: Int64s  # (groups + 1,) group g is first[g] .. first[g + 1] - 1 of the rest
    end_s: Int64s  # (ends,) epoch s
    share: Int64s  # (ends, STEPS) rising; of the LAST jobs of the group up to this one, in parts of WHOLE


def run_times(record: RecordedTrace) -> RunTimes:
    """Return the shares of a record after each of its ends."""
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
    """Fill `share` after each end with STEPS evenly spaced values of its group's last LAST shares, kept in `window`."""
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
    """Return the length c, s, at which to cut a job that starts `early_s` > 0 before its recorded start.

    Only ends before `known_s` are used. For a job that never started, `early_s` may be any large number.
    """
    at = _last_end(times, user, known_s)
    if at == NONE:
        at = _last_end(times, len(times.first) - 2, known_s)
    if at == NONE:
        return limit_s
    early = max(min(early_s, limit_s) * WHOLE // limit_s, 1)
    left = 0  # the part of the sum of all shares that is left for the jobs that are cut
    for k in range(STEPS):
        left += times.share[at, k]
    # The k shortest jobs are not cut: each uses its share and `early` of that sum, each other job uses c.
    k = 0
    while left // (STEPS - k) >= times.share[at, k] + early:
        left -= times.share[at, k] + early
        k += 1
    return int(left // (STEPS - k) * limit_s // WHOLE)


@kernel
def _last_end(times: RunTimes, group: int, known_s: int) -> int:
    """Return the last end of a group before `known_s`, NONE if there are fewer than LEAST ends."""
    first = times.first[group]
    after = first_not_before(times.end_s, first, times.first[group + 1], known_s)
    return int(after - 1) if after >= first + LEAST else NONE
