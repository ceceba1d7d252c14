"""The whole trace replayed under the calibrated rules: only requests and run times are read.

Free-running, so that a wrong start moves all that follow. The pass is that of `simulator.recorded.passes`; passes
follow every arrival, end and cancellation, once a second at most, and every tenth minute while a job pends. A job
that was cancelled in the queue leaves it at the recorded time if it has not started; what it would have run is not
known, so it never starts. Usable nodes are given as a series on that ten-minute clock.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.passes import Scratch, make_pass, may_start, new_scratch
from simulator.recorded.record import NEVER, NONE, Events, Int64s, Record
from simulator.recorded.state import PENDING, RUNNING, Jobs, Rules, State, begin, enter, finish, leave, new_state


def free_starts(record: Record, jobs: Jobs, rules: Rules, usable: Int64s) -> Int64s:
    """Simulated start of each job that ran, s, shape (jobs,); NEVER for a job cancelled in the queue.

    `usable` holds the usable nodes from the first submission on, one figure every TICK_S (the last holds on). A job
    that has not started HORIZON_S after the last submission is given that instant.
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


def usable_nodes(record: Record, events: Events, window_s: int) -> Int64s:
    """Most nodes in use over `window_s` before each tick, from the first submission on; for `free_starts`.

    At each tick only what was recorded before it counts.
    """
    ticks = np.arange(record.submit_s[0], events.time_s[-1] + TICK_S, TICK_S)
    taken = np.searchsorted(events.time_s, ticks)
    first = np.maximum(np.searchsorted(events.time_s, ticks - window_s) - 1, 0)
    level = events.peak[0]
    return np.array([level[a:b].max() if b > a else 0 for a, b in zip(first, taken, strict=True)], np.int64)


@kernel
def _free(
    jobs: Jobs,
    rules: Rules,
    run_s: Int64s,
    end_s: Int64s,
    cancelled: Int64s,
    usable: Int64s,
    state: State,
    scratch: Scratch,
    starts: Int64s,
) -> None:
    """Play every job from the first submission on, a pass a tick; `starts` gets the second in which each job starts.

    Over 50 lines: the loop of the clock, with what happens at one instant in the order in which it happens.
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
