"""The state of a simulated cluster as plain arrays: its layout, its copy, and the operations all schedulers share.

A state holds only pending and running jobs, so the cost of a branch does not depend on the length of the trace.
Everything here is compiled and may be called from compiled code. `kernel.new_state` makes a state.

Times are whole seconds of the trace's clock and never negative. "Units" are what `Workload.size` counts: whole nodes,
or processors.

Layout (columns of `queue`, `running` and `releases`; entries of `scalars`)

    scalars[NOW]              time up to which everything has happened; -1 before the first event
    scalars[FREE]             idle units
    scalars[RUNNING]          running jobs: rows 0 .. RUNNING - 1 of `running` and of `releases`
    scalars[QUEUE_HEAD]       pending jobs: rows QUEUE_HEAD .. QUEUE_TAIL - 1 of `queue`, in queue order
    scalars[QUEUE_TAIL]
    scalars[NEXT_ARRIVAL]     row of `FlatJobs` that arrives next
    scalars[ARRIVALS]         rows 0 .. ARRIVALS - 1 of `FlatJobs` arrive by themselves, later rows only by `submit`
    scalars[INJECTED_JOB]     the first of the rows given to `submit` whose time is still ahead, else NONE
    scalars[INJECTED_LAST]    the last of these rows, which follow one another
    scalars[INJECTED_SUBMIT]  their submit time
    scalars[WAKE]             a second with a scheduling pass because a pending job is withdrawn, else NEVER
    scalars[WATCHED]          the job that `advance` stops at, or ANY_EXTRA
    scalars[WATCHED_START]    its start, else NONE

    queue[i, QUEUE_JOB | QUEUE_SUBMIT | QUEUE_SIZE | QUEUE_ESTIMATE | QUEUE_RANK]
                              row of `FlatJobs`, submit time, units, planned run time (s), rank (smaller first; equal
                              ranks in order of arrival)
    running[i, RUNNING_JOB | RUNNING_SUBMIT | RUNNING_START | RUNNING_END | RUNNING_SIZE | RUNNING_EXPECTED_END]
                              by falling (end, submit, row): the next job to end is the last row. RUNNING_END is the
                              true end, which no policy may see; RUNNING_EXPECTED_END is start + estimate
    releases[i, RELEASE_TIME | RELEASE_SIZE | RELEASE_START]
                              (expected end, units, start) of the running jobs by falling expected end; unlike the
                              order of `running`, this order is public
    recent                    the latest starts and ends, `simulator.recent`
    scratch                   working memory of one scheduling pass; has no meaning between calls, never copied
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.marks import ANY_EXTRA as ANY_EXTRA
from simulator.marks import NEVER as NEVER
from simulator.marks import NONE as NONE
from simulator.recent import RecentJobs, copy_recent, remember_end, remember_start
from traces.arrays import Int64s

NOW, FREE, RUNNING, QUEUE_HEAD, QUEUE_TAIL, NEXT_ARRIVAL, ARRIVALS = 0, 1, 2, 3, 4, 5, 6
INJECTED_JOB, INJECTED_SUBMIT, WATCHED, WATCHED_START = 7, 8, 9, 10
INJECTED_LAST, WAKE = 11, 12
SCALARS = 13

QUEUE_JOB, QUEUE_SUBMIT, QUEUE_SIZE, QUEUE_ESTIMATE, QUEUE_RANK = 0, 1, 2, 3, 4
QUEUE_COLUMNS = 5

RUNNING_JOB, RUNNING_SUBMIT, RUNNING_START, RUNNING_END, RUNNING_SIZE, RUNNING_EXPECTED_END = 0, 1, 2, 3, 4, 5
RUNNING_COLUMNS = 6

RELEASE_TIME, RELEASE_SIZE, RELEASE_START = 0, 1, 2
RELEASE_COLUMNS = 3


class FlatJobs(NamedTuple):
    """Jobs as arrays of one length, int64. The first ARRIVALS rows are sorted by (submit, job id)."""

    submit_s: Int64s  # s; read for rows that arrive by themselves only
    size: Int64s  # units, 1 .. capacity
    run_s: Int64s  # s, >= 0: run time if nothing ends the job earlier
    limit_s: Int64s  # s, >= 1


class FlatKnobs(NamedTuple):
    """The settings of a scheduler, all integers; flags are 0 or 1. `simulator.flat.replay.checked_knobs` makes them."""

    scheduler: int  # its position in `simulator.names.SCHEDULERS`
    capacity: int  # units
    exact: int  # plan with the true run time instead of the limit
    instant: int  # make one scheduling pass after all events of an instant instead of one after each event
    kill: int  # end a job at its limit


class FlatState(NamedTuple):
    """The state; the module's docstring explains rows and columns. All int64."""

    scalars: Int64s  # (SCALARS,)
    queue: Int64s  # (queue rows, QUEUE_COLUMNS)
    running: Int64s  # (running rows, RUNNING_COLUMNS)
    releases: Int64s  # (running rows, RELEASE_COLUMNS)
    scratch: Int64s  # (scratch rows, 2)
    recent: RecentJobs  # the last starts and ends


@kernel
def copy_state(target: FlatState, source: FlatState) -> None:
    """Make `target`, with at least the room that `source` uses, equal to `source`. Cost: the live jobs of `source`."""
    scalars = source.scalars
    head, pending = scalars[QUEUE_HEAD], scalars[QUEUE_TAIL] - scalars[QUEUE_HEAD]
    for i in range(SCALARS):
        target.scalars[i] = scalars[i]
    target.scalars[QUEUE_HEAD], target.scalars[QUEUE_TAIL] = 0, pending
    for i in range(pending):
        for column in range(QUEUE_COLUMNS):
            target.queue[i, column] = source.queue[head + i, column]
    for i in range(scalars[RUNNING]):
        for column in range(RUNNING_COLUMNS):
            target.running[i, column] = source.running[i, column]
        for column in range(RELEASE_COLUMNS):
            target.releases[i, column] = source.releases[i, column]
    copy_recent(target.recent, source.recent)


@kernel_inline
def has_room(state: FlatState) -> bool:
    """Whether one more job can be queued."""
    return bool(state.scalars[QUEUE_TAIL] - state.scalars[QUEUE_HEAD] < len(state.queue))


@kernel_inline
def estimate_of(jobs: FlatJobs, knobs: FlatKnobs, job: int) -> int:
    """Return the run time, s, that the scheduler plans with for row `job`."""
    if knobs.exact == 0:
        return int(jobs.limit_s[job])
    return int(min(jobs.run_s[job], jobs.limit_s[job]) if knobs.kill == 1 else jobs.run_s[job])


@kernel_inline
def enqueue(jobs: FlatJobs, state: FlatState, job: int, submit_s: int, estimate_s: int, rank: int) -> None:
    """Put row `job` into the queue behind all jobs of its rank. The caller ensures that there is room."""
    scalars, queue = state.scalars, state.queue
    if scalars[QUEUE_TAIL] == len(queue):
        head = scalars[QUEUE_HEAD]
        for i in range(head, len(queue)):
            for column in range(QUEUE_COLUMNS):
                queue[i - head, column] = queue[i, column]
        scalars[QUEUE_HEAD], scalars[QUEUE_TAIL] = 0, len(queue) - head
    i = scalars[QUEUE_TAIL]
    while i > scalars[QUEUE_HEAD] and queue[i - 1, QUEUE_RANK] > rank:
        for column in range(QUEUE_COLUMNS):
            queue[i, column] = queue[i - 1, column]
        i -= 1
    queue[i, QUEUE_JOB], queue[i, QUEUE_SUBMIT] = job, submit_s
    queue[i, QUEUE_SIZE], queue[i, QUEUE_ESTIMATE], queue[i, QUEUE_RANK] = jobs.size[job], estimate_s, rank
    scalars[QUEUE_TAIL] += 1


@kernel_inline
def start_pending(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s, position: int) -> None:
    """Start the job at row `position` of the queue now. The rows before it move by one."""
    scalars, queue = state.scalars, state.queue
    now = scalars[NOW]
    job, submit, size = queue[position, QUEUE_JOB], queue[position, QUEUE_SUBMIT], queue[position, QUEUE_SIZE]
    expected_end = now + queue[position, QUEUE_ESTIMATE]
    run = jobs.run_s[job]
    if knobs.kill == 1:
        run = min(run, jobs.limit_s[job])
    head = scalars[QUEUE_HEAD]
    for i in range(position, head, -1):
        for column in range(QUEUE_COLUMNS):
            queue[i, column] = queue[i - 1, column]
    scalars[QUEUE_HEAD] = head + 1
    scalars[FREE] -= size
    starts[job] = now
    if job == scalars[WATCHED] or (scalars[WATCHED] == ANY_EXTRA and job >= scalars[ARRIVALS]):
        scalars[WATCHED_START] = now
    remember_start(state.recent, job, submit, now, size)
    _add_running(state, job, submit, size, now + run, expected_end)


@kernel_part
def _add_running(state: FlatState, job: int, submit: int, size: int, end: int, expected_end: int) -> None:
    scalars, running, releases = state.scalars, state.running, state.releases
    i = scalars[RUNNING]
    while i > 0 and (
        running[i - 1, RUNNING_END] < end
        or (
            running[i - 1, RUNNING_END] == end
            and (running[i - 1, RUNNING_SUBMIT], running[i - 1, RUNNING_JOB]) < (submit, job)
        )
    ):
        for column in range(RUNNING_COLUMNS):
            running[i, column] = running[i - 1, column]
        i -= 1
    running[i, RUNNING_JOB], running[i, RUNNING_SUBMIT], running[i, RUNNING_START] = job, submit, scalars[NOW]
    running[i, RUNNING_END], running[i, RUNNING_SIZE], running[i, RUNNING_EXPECTED_END] = end, size, expected_end
    i = scalars[RUNNING]
    while i > 0 and releases[i - 1, RELEASE_TIME] < expected_end:
        for column in range(RELEASE_COLUMNS):
            releases[i, column] = releases[i - 1, column]
        i -= 1
    releases[i, RELEASE_TIME], releases[i, RELEASE_SIZE], releases[i, RELEASE_START] = expected_end, size, scalars[NOW]
    scalars[RUNNING] += 1


@kernel_inline
def end_next(jobs: FlatJobs, state: FlatState) -> None:
    """End the running job with the earliest end and free its units."""
    scalars, running, releases = state.scalars, state.running, state.releases
    last = scalars[RUNNING] - 1
    job, start, end = running[last, RUNNING_JOB], running[last, RUNNING_START], running[last, RUNNING_END]
    size, expected_end = running[last, RUNNING_SIZE], running[last, RUNNING_EXPECTED_END]
    i = last  # jobs that are equal in all three are interchangeable
    while (
        releases[i, RELEASE_TIME] != expected_end
        or releases[i, RELEASE_SIZE] != size
        or releases[i, RELEASE_START] != start
    ):
        i -= 1
    for k in range(i, last):
        for column in range(RELEASE_COLUMNS):
            releases[k, column] = releases[k + 1, column]
    scalars[RUNNING] = last
    scalars[FREE] += size
    remember_end(state.recent, job, end, end - start, jobs.limit_s[job])


@kernel_inline
def position_of(state: FlatState, job: int) -> int:
    """Return the row of `queue` in which row `job` pends, or NONE."""
    for position in range(state.scalars[QUEUE_HEAD], state.scalars[QUEUE_TAIL]):
        if state.queue[position, QUEUE_JOB] == job:
            return int(position)
    return NONE


@kernel
def withdraw(state: FlatState, job: int, now_s: int) -> None:
    """Remove row `job` from the queue, or let it end at `now_s` if it runs; a pass follows in that second.

    The state has advanced to the second before `now_s`. A row that neither pends nor runs stays as it is.
    """
    scalars, queue, running = state.scalars, state.queue, state.running
    position = position_of(state, job)
    if position != NONE:
        scalars[QUEUE_TAIL] -= 1
        for i in range(position, scalars[QUEUE_TAIL]):
            for column in range(QUEUE_COLUMNS):
                queue[i, column] = queue[i + 1, column]
        scalars[WAKE] = now_s
        return
    for i in range(scalars[RUNNING]):
        if running[i, RUNNING_JOB] == job:
            running[i, RUNNING_END] = min(running[i, RUNNING_END], now_s)
            while i + 1 < scalars[RUNNING] and ends_before(state, i, i + 1):
                for column in range(RUNNING_COLUMNS):
                    running[i, column], running[i + 1, column] = running[i + 1, column], running[i, column]
                i += 1
            return


@kernel_inline
def ends_before(state: FlatState, i: int, other: int) -> bool:
    """Whether the job of row i of `running` ends before that of row `other`."""
    running = state.running
    return bool(
        (running[i, RUNNING_END], running[i, RUNNING_SUBMIT], running[i, RUNNING_JOB])
        < (running[other, RUNNING_END], running[other, RUNNING_SUBMIT], running[other, RUNNING_JOB])
    )


@kernel_inline
def smallest_pending(state: FlatState) -> int:
    """Return the units of the smallest pending job; a number above any capacity if no job pends."""
    smallest = 1 << 62
    for position in range(state.scalars[QUEUE_HEAD], state.scalars[QUEUE_TAIL]):
        smallest = min(smallest, state.queue[position, QUEUE_SIZE])
    return smallest
