"""The clock of the simulated cluster: advance a state, submit into it, run a trace. Compiled.

Use from compiled or plain code:

    state = new_state(knobs, arrivals, queue_rows, running_rows)
    advance(jobs, knobs, state, starts, t - 1, NONE)       # everything that happens before t
    copy_state(branch, state)                              # cost: the live jobs, not the trace
    submit(branch, row, t)                                 # "what if it is submitted at t"
    start = advance(jobs, knobs, branch, starts, NEVER, row)

Within a second, withdrawn jobs leave first, then jobs end (in order of end, submit, row), then jobs are submitted (in
row order, the injected ones last). A scheduling pass follows each event or, with `FlatKnobs.instant`, all events up to
the second of the pass. A job with a run time of 0 s ends in the second it starts, after the pass.

Each scheduler is a file of `simulator.flat.schedulers` with its own pass, queue order and pass times.
`simulator.flat.replay.checked_knobs` makes the `FlatKnobs`.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.flat.dispatch import next_pass, rank, schedule, scratch_rows
from simulator.flat.state import (
    ARRIVALS,
    FREE,
    INJECTED_JOB,
    INJECTED_LAST,
    INJECTED_SUBMIT,
    NEVER,
    NEXT_ARRIVAL,
    NONE,
    NOW,
    QUEUE_COLUMNS,
    QUEUE_ESTIMATE,
    QUEUE_HEAD,
    QUEUE_JOB,
    QUEUE_RANK,
    QUEUE_SUBMIT,
    QUEUE_TAIL,
    RELEASE_COLUMNS,
    RUNNING,
    RUNNING_COLUMNS,
    RUNNING_END,
    SCALARS,
    WAKE,
    WATCHED,
    WATCHED_START,
    FlatJobs,
    FlatKnobs,
    FlatState,
    copy_state,
    end_next,
    enqueue,
    estimate_of,
    has_room,
    position_of,
)
from simulator.marks import NO_ROOM as NO_ROOM
from simulator.recent import new_recent
from traces.arrays import Int64s


def new_state(knobs: FlatKnobs, arrivals: int, queue_rows: int, running_rows: int, remembered: int = 0) -> FlatState:
    """Return an empty cluster before the first of `arrivals` jobs.

    At most `queue_rows` jobs may pend at once: with more, `advance` returns NO_ROOM (see `grown`). `running_rows` must
    be at least the most jobs that can run at once, min(jobs, capacity). The state keeps the last `remembered` starts
    and ends (`simulator.recent`).
    """
    scalars = np.zeros(SCALARS, np.int64)
    scalars[NOW], scalars[FREE], scalars[ARRIVALS] = -1, knobs.capacity, arrivals
    scalars[INJECTED_JOB] = scalars[WATCHED] = scalars[WATCHED_START] = NONE
    scalars[WAKE] = NEVER
    return FlatState(
        scalars,
        np.empty((queue_rows, QUEUE_COLUMNS), np.int64),
        np.empty((running_rows, RUNNING_COLUMNS), np.int64),
        np.empty((running_rows, RELEASE_COLUMNS), np.int64),
        np.empty((scratch_rows(knobs, queue_rows, running_rows), 2), np.int64),
        new_recent(remembered),
    )


def grown(knobs: FlatKnobs, state: FlatState) -> FlatState:
    """Return a copy of the state with twice the room for pending jobs."""
    bigger = new_state(knobs, 0, 2 * len(state.queue), len(state.running), len(state.recent.started))
    copy_state(bigger, state)
    return bigger


@kernel
def advance(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s, until_s: int, stop_job: int) -> int:
    """Simulate up to and including `until_s`; stop as soon as `stop_job` has started.

    `stop_job` is a row, NONE, or ANY_EXTRA.

    Each start is written to `starts` (int64, one per row of `jobs`), which branches may share as scratch. Returns one
    of

    - the start of `stop_job`: NOW of the state is that instant, after the pass that started the job;
    - NONE when `until_s` is reached: NOW is `until_s`, or the time of the last event if `until_s` is NEVER;
    - NO_ROOM when the queue is full: give the state more room (`grown`) and call again. Nothing is lost.
    """
    scalars = state.scalars
    scalars[WATCHED], scalars[WATCHED_START] = stop_job, NONE
    while True:
        instant = _next_instant(jobs, knobs, state)
        if instant > until_s or instant == NEVER:
            if until_s != NEVER:
                scalars[NOW] = max(scalars[NOW], until_s)
            return NONE
        if knobs.instant == 0:
            took = _take_event(jobs, knobs, state, instant)
        else:
            took = _take_events(jobs, knobs, state, instant)
        if not took:
            return NO_ROOM
        scalars[NOW] = instant
        _pass(jobs, knobs, state, starts)
        if scalars[WATCHED_START] != NONE:
            return int(scalars[WATCHED_START])


@kernel
def submit(state: FlatState, job: int, submit_s: int) -> None:
    """Submit row `job` (one that does not arrive by itself) at `submit_s` >= the state's NOW.

    The submission follows every other event of that second. If `submit_s` equals NOW, an event-driven scheduler may
    start the job at once, `mirage` at its next tick. To have tick t consider the job like a job of the trace, submit it
    at t into a state that has advanced to t - 1. A state takes future submissions of one second at a time, whose rows
    follow one another.
    """
    if state.scalars[INJECTED_JOB] == NONE:
        state.scalars[INJECTED_JOB] = job
    state.scalars[INJECTED_LAST], state.scalars[INJECTED_SUBMIT] = job, submit_s


@kernel
def relimit(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, job: int, limit_s: int) -> None:
    """Let row `job` have that limit and run time; if it pends, with the rank of that limit, by its submission."""
    jobs.limit_s[job] = jobs.run_s[job] = limit_s
    i = position_of(state, job)
    if i == NONE:
        return
    queue, submit_s = state.queue, state.queue[i, QUEUE_SUBMIT]
    queue[i, QUEUE_ESTIMATE] = limit_s
    queue[i, QUEUE_RANK] = rank(knobs.scheduler, jobs, knobs, job, submit_s, limit_s)
    while i > state.scalars[QUEUE_HEAD] and _is_before(queue, i, i - 1):
        _swap(queue, i, i - 1)
        i -= 1
    while i + 1 < state.scalars[QUEUE_TAIL] and _is_before(queue, i + 1, i):
        _swap(queue, i, i + 1)
        i += 1


@kernel_inline
def _is_before(queue: Int64s, i: int, other: int) -> bool:
    """Whether the job of row i of the queue comes before that of row `other` by rank, submission and row."""
    return bool(
        (queue[i, QUEUE_RANK], queue[i, QUEUE_SUBMIT], queue[i, QUEUE_JOB])
        < (queue[other, QUEUE_RANK], queue[other, QUEUE_SUBMIT], queue[other, QUEUE_JOB])
    )


@kernel_inline
def _swap(queue: Int64s, i: int, other: int) -> None:
    for column in range(QUEUE_COLUMNS):
        queue[i, column], queue[other, column] = queue[other, column], queue[i, column]


@kernel_inline
def _next_arrival(jobs: FlatJobs, state: FlatState) -> int:
    arrival: int = NEVER
    if state.scalars[NEXT_ARRIVAL] < state.scalars[ARRIVALS]:
        arrival = int(jobs.submit_s[state.scalars[NEXT_ARRIVAL]])
    if state.scalars[INJECTED_JOB] != NONE:
        arrival = min(arrival, int(state.scalars[INJECTED_SUBMIT]))
    return arrival


@kernel_inline
def _next_end(state: FlatState) -> int:
    running = state.scalars[RUNNING]
    return int(state.running[running - 1, RUNNING_END]) if running > 0 else int(NEVER)


@kernel_part
def _next_instant(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState) -> int:
    """Return the next second in which anything can happen, or NEVER."""
    event_s = min(int(state.scalars[WAKE]), _next_end(state), _next_arrival(jobs, state))
    return int(next_pass(knobs.scheduler, knobs, state, event_s))


@kernel_inline
def _take_arrival(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState) -> bool:
    """Queue the next arrival. Returns False, with nothing changed, if the queue is full."""
    if not has_room(state):
        return False
    scalars = state.scalars
    job, submit_s = scalars[INJECTED_JOB], scalars[INJECTED_SUBMIT]
    row = scalars[NEXT_ARRIVAL]
    if row < scalars[ARRIVALS] and (job == NONE or jobs.submit_s[row] <= submit_s):
        scalars[NEXT_ARRIVAL] = row + 1
        job, submit_s = row, jobs.submit_s[row]
    else:
        scalars[INJECTED_JOB] = NONE if job == scalars[INJECTED_LAST] else job + 1
    estimate_s = estimate_of(jobs, knobs, job)
    enqueue(jobs, state, job, submit_s, estimate_s, rank(knobs.scheduler, jobs, knobs, job, submit_s, estimate_s))
    return True


@kernel_part
def _take_event(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, instant: int) -> bool:
    if state.scalars[WAKE] <= instant:
        state.scalars[WAKE] = NEVER
        return True
    if _next_end(state) <= instant:
        end_next(jobs, state)
        return True
    return _take_arrival(jobs, knobs, state)


@kernel_part
def _take_events(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, instant: int) -> bool:
    if state.scalars[WAKE] <= instant:
        state.scalars[WAKE] = NEVER
    while _next_end(state) <= instant:
        end_next(jobs, state)
    while _next_arrival(jobs, state) <= instant:
        if not _take_arrival(jobs, knobs, state):
            return False
    return True


@kernel_part
def _pass(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s) -> None:
    if state.scalars[QUEUE_HEAD] == state.scalars[QUEUE_TAIL] or state.scalars[FREE] == 0:
        return
    schedule(knobs.scheduler, jobs, knobs, state, starts)
