"""Timers and the queue: jobs enter the queue, keep its order, and leave it. Compiled.

A timer is a second and the number `kind << TIMER_KIND | job`, so timers of one second are taken by kind and then by
job. They form a binary heap: rows 2 i + 1 and 2 i + 2 of `SlurmState.timers` come after row i. The queue is an array
sorted by falling key, `rank << 32 | priority`. The rank combines the preemption level and the partition's tier, so a
job of a higher tier precedes all jobs of lower tiers, whatever their priorities.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.compiled.priority import priority
from simulator.slurm.compiled.state import (
    ENTER,
    HAPPENED,
    HELD,
    HELD_JOBS,
    LAST_REQUESTED,
    NEXT_SECOND,
    NOW,
    QUEUE_ACCRUE,
    QUEUE_COLUMNS,
    QUEUE_JOB,
    QUEUE_KEY,
    QUEUE_ROWS,
    QUEUE_SUBMIT,
    QUEUED,
    REQUEST,
    TIMER_KIND,
    TIMERS,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.world import NEVER, NONE
from traces.arrays import Int64s


@kernel
def push_timer(state: SlurmState, second: int, kind: int, job: int) -> None:
    """Set a timer. Timers are taken by (second, kind, row)."""
    timers = state.timers
    what = (kind << TIMER_KIND) | job
    i = state.scalars[TIMERS]
    state.scalars[TIMERS] += 1
    while i > 0:
        above = (i - 1) >> 1
        if timers[above, 0] < second or (timers[above, 0] == second and timers[above, 1] <= what):
            break
        timers[i, 0], timers[i, 1] = timers[above, 0], timers[above, 1]
        i = above
    timers[i, 0], timers[i, 1] = second, what


@kernel
def pop_timer(state: SlurmState) -> int:
    """Take the first timer off the heap and return kind << 40 | job."""
    timers = state.timers
    what = timers[0, 1]
    rows = state.scalars[TIMERS] - 1
    state.scalars[TIMERS] = rows
    second, moved = timers[rows, 0], timers[rows, 1]
    i = 0
    while True:
        below = 2 * i + 1
        if below >= rows:
            break
        if below + 1 < rows and (
            timers[below + 1, 0] < timers[below, 0]
            or (timers[below + 1, 0] == timers[below, 0] and timers[below + 1, 1] < timers[below, 1])
        ):
            below += 1
        if second < timers[below, 0] or (second == timers[below, 0] and moved <= timers[below, 1]):
            break
        timers[i, 0], timers[i, 1] = timers[below, 0], timers[below, 1]
        i = below
    timers[i, 0], timers[i, 1] = second, moved
    return int(what)


@kernel
def request_pass(run: SlurmRun, state: SlurmState) -> None:
    """Ask for a main pass, at most one every `batch_sched_delay_s`."""
    scalars = state.scalars
    if scalars[REQUEST] == NEVER:
        scalars[REQUEST] = max(scalars[NOW], scalars[LAST_REQUESTED] + run.knobs.batch_sched_delay_s)


@kernel
def enqueue(run: SlurmRun, state: SlurmState, job: int, submit_s: int) -> None:
    """Put row `job` into the queue now and request a pass; its age counts from now."""
    scalars, queue = state.scalars, state.queue
    key = (int(run.jobs.rank[job]) << 32) | priority(run, state, job, 0)
    state.phase[job] = QUEUED
    scalars[HELD_JOBS] -= 1
    i = scalars[QUEUE_ROWS]
    while i > 0 and _before(key, submit_s, job, queue, i - 1):
        for column in range(QUEUE_COLUMNS):
            queue[i, column] = queue[i - 1, column]
        i -= 1
    queue[i, QUEUE_JOB], queue[i, QUEUE_KEY], queue[i, QUEUE_SUBMIT] = job, key, submit_s
    queue[i, QUEUE_ACCRUE] = scalars[NOW]
    scalars[QUEUE_ROWS] += 1
    scalars[HAPPENED] = 1
    request_pass(run, state)


@kernel_inline
def _before(key: int, submit_s: int, job: int, queue: Int64s, i: int) -> bool:
    if queue[i, QUEUE_KEY] != key:
        return bool(key > queue[i, QUEUE_KEY])
    if queue[i, QUEUE_SUBMIT] != submit_s:
        return bool(submit_s < queue[i, QUEUE_SUBMIT])
    return bool(job < queue[i, QUEUE_JOB])


@kernel
def reprioritise(run: SlurmRun, state: SlurmState) -> None:
    """Recalculate the priorities of the whole queue and sort it by insertion, since it is nearly sorted already."""
    scalars, queue = state.scalars, state.queue
    now = scalars[NOW]
    for row in range(scalars[QUEUE_ROWS]):
        job, submit_s, accrue = queue[row, QUEUE_JOB], queue[row, QUEUE_SUBMIT], queue[row, QUEUE_ACCRUE]
        key = (int(run.jobs.rank[job]) << 32) | priority(run, state, job, now - accrue)
        i = row
        while i > 0 and _before(key, submit_s, job, queue, i - 1):
            for column in range(QUEUE_COLUMNS):
                queue[i, column] = queue[i - 1, column]
            i -= 1
        queue[i, QUEUE_JOB], queue[i, QUEUE_KEY] = job, key
        queue[i, QUEUE_SUBMIT], queue[i, QUEUE_ACCRUE] = submit_s, accrue


@kernel
def leave_queue(state: SlurmState, job: int) -> None:
    """Remove row `job` from the queue."""
    scalars, queue = state.scalars, state.queue
    i = 0
    while queue[i, QUEUE_JOB] != job:
        i += 1
    for row in range(i, scalars[QUEUE_ROWS] - 1):
        for column in range(QUEUE_COLUMNS):
            queue[row, column] = queue[row + 1, column]
    scalars[QUEUE_ROWS] -= 1


@kernel
def compact_queue(state: SlurmState) -> None:
    """Drop the rows of started jobs, which are set to NONE, from the queue."""
    scalars, queue = state.scalars, state.queue
    kept = 0
    for row in range(scalars[QUEUE_ROWS]):
        if queue[row, QUEUE_JOB] != NONE:
            if kept != row:
                for column in range(QUEUE_COLUMNS):
                    queue[kept, column] = queue[row, column]
            kept += 1
    scalars[QUEUE_ROWS] = kept


@kernel
def enter_if_ready(run: SlurmRun, state: SlurmState, job: int) -> None:
    """Put a submitted job into the queue if all its conditions are met."""
    if state.phase[job] != HELD or (len(state.waits) > 0 and state.waits[job] != 0):
        return
    if run.jobs.eligible_s[job] <= state.scalars[NOW]:
        enqueue(run, state, job, run.jobs.submit_s[job])


@kernel
def enter_later(state: SlurmState, job: int) -> None:
    """Set a timer for row `job` after all other events of this second; during or after a pass, in the next second."""
    push_timer(state, state.scalars[NOW] + state.scalars[NEXT_SECOND], ENTER, job)
