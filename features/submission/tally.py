"""History of the jobs of the same user, account, partition, QOS and shape, at each submission. Compiled.

This is one pass over the events of a record in order. The features of a job are written before its own submission
counts, so they depend only on earlier events: a wait is known from its start on, a run time from its end on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from features.submission.index import TALLIED
from features.submission.numbers import (
    DECAYED,
    ENDS,
    HALF_LIFE_S,
    KEPT,
    LAST_START,
    LAST_SUBMIT,
    LAST_WAIT,
    MEAN_USE,
    MEAN_WAIT,
    PENDING,
    PENDING_SIZE,
    RUNNING,
    RUNNING_SIZE,
    STARTS,
    write,
)
from simulator.compiled import kernel
from simulator.recorded.record import CANCELLED, ENDED, STARTED, SUBMITTED, Events, RecordedTrace
from traces.arrays import Float32s, Float64s, Int64s

REMEMBERED = 0.9  # weight that the moving average keeps at each further job
_write = kernel(write)


class Tally(NamedTuple):
    """The statistics of every group after the last event of a record."""

    first: Int64s  # (columns + 1,) the groups of column k of the codes are rows first[k] .. first[k + 1] - 1
    state: Float64s  # (groups, KEPT), columns as in `features.submission.numbers`
    oldest_submit_s: Int64s  # (groups,) submission of the longest pending job, 0 where none pends


def tallies(record: RecordedTrace, happened: Events, code: Int64s, wanted: NDArray[np.bool_]) -> Float32s:
    """Compute the features TALLIED of each wanted job at its submission: float32, (wanted jobs, groups x len(TALLIED)).

    code: int64, (jobs, groups), the number of the job's user, account ..., from 0 in each column. The last column is
    everybody; its waits replace those of a group in which no job has started.
    """
    return _tallied(record, happened, code, wanted)[0]


def last_tally(record: RecordedTrace, happened: Events, code: Int64s) -> Tally:
    """Compute the statistics of every group after the last event."""
    return _tallied(record, happened, code, np.zeros(len(record), bool))[1]


def _tallied(
    record: RecordedTrace, happened: Events, code: Int64s, wanted: NDArray[np.bool_]
) -> tuple[Float32s, Tally]:
    groups = code.shape[1]
    counts = code.max(axis=0) + 1 if len(code) else np.ones(groups, np.int64)
    base = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    flat = np.ascontiguousarray(code + base[:-1], np.int64)
    codes = int(base[-1])
    member = np.concatenate([np.argsort(flat[:, k], kind="stable") for k in range(groups)]).astype(np.int64)
    group_of_member = np.concatenate([np.sort(flat[:, k], kind="stable") for k in range(groups)])
    first = np.searchsorted(group_of_member, np.arange(codes + 1)).astype(np.int64)
    state = np.zeros((codes, KEPT))
    state[:, LAST_SUBMIT] = state[:, LAST_START] = -np.inf
    out = np.zeros((int(wanted.sum()), groups * len(TALLIED)), np.float32)
    row = np.where(wanted, np.cumsum(wanted) - 1, -1).astype(np.int64)
    pends = np.zeros(len(record), np.int64)
    _sweep(
        happened.time_s, happened.job, happened.kind,
        record.submit_s, record.start_s, record.size, record.limit_s,
        flat, member, first, first[:-1].copy(), pends, state, row, out,
    )  # fmt: skip
    waiting = np.where(pends[member] == 1, record.submit_s[member], np.iinfo(np.int64).max)
    oldest = np.minimum.reduceat(waiting, first[:-1]) if len(member) else np.zeros(codes, np.int64)
    return out, Tally(base, state, np.where(oldest == np.iinfo(np.int64).max, 0, oldest))


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
    """Process all events in order and write the features of the wanted jobs.

    code: (jobs, groups), numbers over all groups. member[first[c]:first[c + 1]]: the jobs of group c by submission;
    those before oldest[c] no longer pend. pends: (jobs,), 1 while the job pends. row: (jobs,), row in `out`, or -1 for
    a job that is not wanted.
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
                    _write(state, c, code[j, groups - 1], now, age_s, out[row[j]], k * len(TALLIED))
            pends[j] = 1
        elif kind[e] != ENDED:
            pends[j] = 0
        for k in range(groups):
            _count(state, code[j, k], kind[e], now, submit_s[j], start_s[j], size[j], limit_s[j])


@kernel
def _count(state: Float64s, c: int, kind: int, now: int, submit_s: int, start_s: int, size: int, limit_s: int) -> None:
    """Update the statistics of group c with one event of one of its jobs."""
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
        kept = REMEMBERED if state[c, STARTS] > 0 else 0.0
        state[c, MEAN_WAIT] = kept * state[c, MEAN_WAIT] + (1.0 - kept) * wait
        state[c, STARTS] += 1
    else:
        state[c, RUNNING] -= 1
        state[c, RUNNING_SIZE] -= size
        kept = REMEMBERED if state[c, ENDS] > 0 else 0.0
        state[c, MEAN_USE] = kept * state[c, MEAN_USE] + (1.0 - kept) * min((now - start_s) / limit_s, 1.0)
        state[c, ENDS] += 1
