"""Statistics kept for a group of jobs, and the features that a job gets from them at submission. Imports numpy alone.

The code is plain Python for a single job; `features.submission.tally` compiles it for all jobs of a log.
"""

from __future__ import annotations

import math

from traces.arrays import Float32s, Float64s

HALF_LIFE_S = 86400.0  # of the weight of a submission in submitted_day_jobs
SINCE_MOST_H = 24.0 * 14
RUNNING, RUNNING_SIZE, PENDING, PENDING_SIZE, LAST_SUBMIT = 0, 1, 2, 3, 4
LAST_START, DECAYED, LAST_WAIT, MEAN_WAIT, MEAN_USE = 5, 6, 7, 8, 9
STARTS, ENDS = 10, 11
KEPT = 12  # statistics kept for each group


def write(state: Float64s, group: int, everybody: int, now: int, age_s: int, out: Float32s, offset: int) -> None:
    """Write the features of group `group` into out[offset:], in the order of `index.TALLIED`.

    state: (groups, KEPT). age_s: age of the group's longest pending job, s. Where no job of the group has started or
    ended yet, the waits or run times are those of the group `everybody`.
    """
    waits = group if state[group, STARTS] > 0 else everybody
    uses = group if state[group, ENDS] > 0 else everybody
    since_s = now - state[group, LAST_SUBMIT]
    out[offset] = state[group, RUNNING]
    out[offset + 1] = state[group, RUNNING_SIZE]
    out[offset + 2] = state[group, PENDING]
    out[offset + 3] = state[group, PENDING_SIZE]
    out[offset + 4] = age_s / 3600.0
    out[offset + 5] = min(since_s / 3600.0, SINCE_MOST_H)
    out[offset + 6] = min((now - state[group, LAST_START]) / 3600.0, SINCE_MOST_H)
    out[offset + 7] = state[group, DECAYED] * 0.5 ** (since_s / HALF_LIFE_S)
    out[offset + 8] = state[waits, LAST_WAIT]
    out[offset + 9] = state[waits, MEAN_WAIT]
    out[offset + 10] = state[uses, MEAN_USE] if state[uses, ENDS] > 0 else 1.0
    out[offset + 11] = math.log(1.0 + state[group, STARTS])
