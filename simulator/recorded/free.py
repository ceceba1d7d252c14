"""Replay the whole trace under the calibrated rules; only requests and run times are read.

The replay is free-running, so a wrong start shifts all later starts. Passes (`simulator.recorded.passes`) follow every
arrival, end and cancellation, at most once per second, and every tenth minute while a job pends. A job that was
cancelled in the queue never starts, because its run time is unknown, and leaves the queue at the recorded time. Usable
nodes are given as a series on the ten-minute clock.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.passes import PassMemory, make_pass, may_start, new_scratch
from simulator.recorded.record import NEVER, NONE, Events, RecordedTrace
from simulator.recorded.state import (
    PENDING,
    RUNNING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    begin,
    enter,
    finish,
    leave,
    new_state,
)
from traces.arrays import Int64s


def free_starts(record: RecordedTrace, jobs: RecordedJobs, rules: RecordedRules, usable: Int64s) -> Int64s:
    """Return the simulated start of each job that ran, s, shape (jobs,); NEVER for a job cancelled in the queue.

    `usable` holds the usable nodes from the first submission on, one value every TICK_S; the last value remains valid.
    A job that has not started HORIZON_S after the last submission gets that instant as its start.
    """
    ran = record.ran
    starts = np.full(len(record), NEVER, np.int64)
    if not len(record):
        return starts
    run_s = np.where(ran, np.where(record.end_s < NEVER, record.end_s - record.start_s, record.limit_s), NEVER)
    cancelled = np.flatnonzero(~ran)
    cancelled = cancelled[np.argsort(record.end_s[cancelled], kind="stable")]
    _free(
        jobs, rules, run_s, record.end_s, cancelled, np.ascontiguousarray(usable, np.int64),
        new_state(jobs, record.users), new_scratch(len(record), record.users), starts,
    )  # fmt: skip
    starts[ran & (starts == NEVER)] = record.submit_s[-1] + HORIZON_S
    return starts


def usable_nodes(record: RecordedTrace, events: Events, window_s: int) -> Int64s:
    """Return the most nodes in use in the `window_s` before each tick, from the first submission on.

    For `free_starts`. Each value depends only on the record before its tick.
    """
    ticks = np.arange(record.submit_s[0], events.time_s[-1] + TICK_S, TICK_S)
    taken = np.searchsorted(events.time_s, ticks)
    first = np.maximum(np.searchsorted(events.time_s, ticks - window_s) - 1, 0)
    level = events.peak[0]
    return np.array([level[a:b].max() if b > a else 0 for a, b in zip(first, taken, strict=True)], np.int64)


@kernel
def _free(
    jobs: RecordedJobs,
    rules: RecordedRules,
    run_s: Int64s,
    end_s: Int64s,
    cancelled: Int64s,
    usable: Int64s,
    state: RecordedState,
    scratch: PassMemory,
    starts: Int64s,
) -> None:
    """Simulate every job from the first submission on and write its start to `starts`, s.

    Over 50 lines: the loop of the clock, with the events of one instant in their order.
    """
    count = len(jobs.submit_s)
    arrived, withdrawn = 0, 0
    first, last = jobs.submit_s[0], jobs.submit_s[count - 1] + HORIZON_S
    now = first
    while now <= last:
        i = 0
        while i < state.scalars[RUNNING]:
            job = state.running[i]
            if state.end_s[job] <= now:
                finish(jobs, state, job, state.end_s[job])
            else:
                i += 1
        while arrived < count and jobs.submit_s[arrived] <= now:
            enter(state, arrived)
            arrived += 1
        while withdrawn < len(cancelled) and end_s[cancelled[withdrawn]] <= now:
            leave(state, cancelled[withdrawn])
            withdrawn += 1
        if state.scalars[PENDING] > 0:
            nodes = usable[min((now - first) // TICK_S, len(usable) - 1)]
            make_pass(jobs, rules, state, scratch, now, nodes, NONE)
            i = 0
            while i < state.scalars[PENDING]:
                job = state.pending[i]
                if may_start(scratch, job) and run_s[job] < NEVER:
                    leave(state, job)
                    begin(jobs, state, job, now, now + run_s[job])
                    starts[job] = now
                else:
                    i += 1
        following = NEVER
        if arrived < count:
            following = jobs.submit_s[arrived]
        if withdrawn < len(cancelled):
            following = min(following, end_s[cancelled[withdrawn]])
        for i in range(state.scalars[RUNNING]):
            following = min(following, state.end_s[state.running[i]])
        if state.scalars[PENDING] > 0:
            following = min(following, first + ((now - first) // TICK_S + 1) * TICK_S)
        now = following
