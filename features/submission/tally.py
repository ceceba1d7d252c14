"""What became of earlier jobs of the same user, account, partition, QOS and shape, at each submission. Compiled.

One pass over the events of a record in order. A number of a job is written before its submission counts, from events
before it alone: starts tell of waits and ends of run times only once they have happened.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from features.submission.index import SINCE_MOST_H, TALLIED
from simulator.compiled import kernel
from simulator.recorded.record import CANCELLED, ENDED, STARTED, SUBMITTED, Events, Record

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Float32s = NDArray[np.float32]

KEPT = 0.9  # of a running mean, at each further job
HALF_LIFE_S = 86400.0  # of a submission in submitted_day_jobs
RUNNING, RUNNING_SIZE, PENDING, PENDING_SIZE, LAST_SUBMIT, LAST_START, DECAYED, LAST_WAIT, MEAN_WAIT, MEAN_USE = range(
    10
)
STARTS, ENDS = 10, 11
STATE = 12  # numbers kept of a group


def tallies(record: Record, happened: Events, code: Int64s, wanted: NDArray[np.bool_]) -> Float32s:
    """float32, (wanted jobs, groups x len(TALLIED)) of each wanted job at its submission.

    code: int64, (jobs, groups), which user, account ... a job belongs to, numbered from 0 in each column; the last
    column is that of everybody, whose waits stand in for those of a group in which no job has started.
    """
    groups = code.shape[1]
    counts = code.max(axis=0) + 1 if len(code) else np.ones(groups, np.int64)
    base = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    flat = np.ascontiguousarray(code + base[:-1], np.int64)
    codes = int(base[-1])
    member = np.concatenate([np.argsort(flat[:, k], kind="stable") for k in range(groups)])
    of = np.concatenate([np.sort(flat[:, k], kind="stable") for k in range(groups)])
    first = np.searchsorted(of, np.arange(codes + 1)).astype(np.int64)
    state = np.zeros((codes, STATE))
    state[:, LAST_SUBMIT] = state[:, LAST_START] = -np.inf
    out = np.zeros((int(wanted.sum()), groups * len(TALLIED)), np.float32)
    row = np.where(wanted, np.cumsum(wanted) - 1, -1).astype(np.int64)
    _sweep(
        happened.time_s, happened.job, happened.kind,
        record.submit_s, record.start_s, record.size, record.limit_s,
        flat, member.astype(np.int64), first, first[:-1].copy(), np.zeros(len(record), np.int64), state, row, out,
    )  # fmt: skip
    return out


@kernel
def _sweep(
    time_s: Int64s,
    job: Int64s,
    kind: Int64s,
    submit_s: Int64s,
    start_s: Int64s,
    size: Int64s,
    limit_s: Int64s,
    code: Int64s,
    member: Int64s,
    first: Int64s,
    oldest: Int64s,
    pends: Int64s,
    state: Float64s,
    row: Int64s,
    out: Float32s,
) -> None:
    """All events in order. code: (jobs, groups) numbers over all groups; member[first[c]:first[c + 1]] are the jobs of
    number c by submission, of which those before oldest[c] do not pend any more; pends: (jobs,) 1 while it pends.

    row: (jobs,) of `out`, or -1 where nobody asks.
    """
    groups = code.shape[1]
    for e in range(len(time_s)):
        j, now = job[e], time_s[e]
        if kind[e] == SUBMITTED:
            if row[j] >= 0:
                for k in range(groups):
                    c = code[j, k]
                    while oldest[c] < first[c + 1] and pends[member[oldest[c]]] == 0 and member[oldest[c]] < j:
                        oldest[c] += 1
                    age_s = 0
                    if oldest[c] < first[c + 1] and pends[member[oldest[c]]] == 1:
                        age_s = now - submit_s[member[oldest[c]]]
                    _write(state, c, code[j, groups - 1], now, age_s, out, row[j], k * len(TALLIED))
            pends[j] = 1
        elif kind[e] != ENDED:
            pends[j] = 0
        for k in range(groups):
            _count(state, code[j, k], kind[e], now, submit_s[j], start_s[j], size[j], limit_s[j])


@kernel
def _count(state: Float64s, c: int, kind: int, now: int, submit_s: int, start_s: int, size: int, limit_s: int) -> None:
    """An event of a job in group c."""
    if kind == SUBMITTED:
        since_s = now - state[c, LAST_SUBMIT]
        state[c, DECAYED] = state[c, DECAYED] * 0.5 ** (since_s / HALF_LIFE_S) + 1.0
        state[c, LAST_SUBMIT] = now
        state[c, PENDING] += 1
        state[c, PENDING_SIZE] += size
    elif kind == CANCELLED:
        state[c, PENDING] -= 1
        state[c, PENDING_SIZE] -= size
    elif kind == STARTED:
        state[c, PENDING] -= 1
        state[c, PENDING_SIZE] -= size
        state[c, RUNNING] += 1
        state[c, RUNNING_SIZE] += size
        state[c, LAST_START] = now
        wait = math.log(1.0 + now - submit_s)
        state[c, LAST_WAIT] = wait
        kept = KEPT if state[c, STARTS] > 0 else 0.0
        state[c, MEAN_WAIT] = kept * state[c, MEAN_WAIT] + (1.0 - kept) * wait
        state[c, STARTS] += 1
    else:
        state[c, RUNNING] -= 1
        state[c, RUNNING_SIZE] -= size
        kept = KEPT if state[c, ENDS] > 0 else 0.0
        state[c, MEAN_USE] = kept * state[c, MEAN_USE] + (1.0 - kept) * min((now - start_s) / limit_s, 1.0)
        state[c, ENDS] += 1


@kernel
def _write(state: Float64s, c: int, everybody: int, now: int, age_s: int, out: Float32s, row: int, at: int) -> None:
    """The numbers of group c, in the order of TALLIED."""
    waits = c if state[c, STARTS] > 0 else everybody
    uses = c if state[c, ENDS] > 0 else everybody
    since_s = now - state[c, LAST_SUBMIT]
    out[row, at] = state[c, RUNNING]
    out[row, at + 1] = state[c, RUNNING_SIZE]
    out[row, at + 2] = state[c, PENDING]
    out[row, at + 3] = state[c, PENDING_SIZE]
    out[row, at + 4] = age_s / 3600.0
    out[row, at + 5] = min(since_s / 3600.0, SINCE_MOST_H)
    out[row, at + 6] = min((now - state[c, LAST_START]) / 3600.0, SINCE_MOST_H)
    out[row, at + 7] = state[c, DECAYED] * 0.5 ** (since_s / HALF_LIFE_S)
    out[row, at + 8] = state[waits, LAST_WAIT]
    out[row, at + 9] = state[waits, MEAN_WAIT]
    out[row, at + 10] = state[uses, MEAN_USE] if state[uses, ENDS] > 0 else 1.0
    out[row, at + 11] = math.log(1.0 + state[c, STARTS])
