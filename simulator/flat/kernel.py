"""The clock of the simulated cluster: advance a state, submit into it, run a trace. Compiled.

Use from compiled or plain code:

    state = new_state(knobs, arrivals, queue_rows, running_rows)
    advance(jobs, knobs, state, starts, t - 1, NONE)       # everything that happens before t
    copy_state(branch, state)                              # costs what is alive, not the trace
    submit(jobs, knobs, branch, row, t)                    # "what if it is submitted at t"
    start = advance(jobs, knobs, branch, starts, NEVER, row)

`fifo`, `easy` and `conservative` schedule at events: the ends of jobs (in order of end, submit, row), then, within
the same second, submissions (in row order, the injected one last), with a pass after each or, if `Knobs.instant`, one
after all events of the second. A job that runs for no time ends in the second it starts, after the pass.

`mirage` is the cluster of the Mirage paper (Ding et al., SC'23, arXiv 2306.14086), where the clock ticks once a
minute. Priority is 100 * size / capacity plus 7000 for every 7 days of waiting, without a cap; since all jobs age
alike the order never changes. At every tick jobs start in that order until the first that does not fit; every tenth
tick a backfill pass follows (`passes.slotted_backfill`). Jobs end at min(run time, limit). Chosen where the paper and
its program leave room, or where the program does what no cluster can:

  - ticks are the whole minutes of the trace's clock, backfill ticks its whole ten minutes;
  - a job counts from the first tick at or after its submission (the program rounds submissions down to the minute,
    so that a job can start up to 59 s before it was submitted: round them down first to follow it);
  - a tick first ends jobs and takes submissions up to and including its own second, then schedules, so that units
    freed at a tick are used at it; what ends between ticks is freed at the next;
  - a job never outlives its limit, so none runs past its expected end but for the seconds until the next tick;
  - limits are rounded up to whole slots; a job longer than the window needs the window's rest only;
  - equal priorities keep the order of submission.

Ticks at which nothing can happen are skipped: a start needs an arrival, an end, or a backfill tick with a pending job
that fits into the idle units.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.flat.passes import conservative, easy, in_order, slotted_backfill, smallest_pending
from simulator.flat.state import (
    ARRIVALS,
    CONSERVATIVE,
    EASY,
    FREE,
    INJECTED_JOB,
    INJECTED_SUBMIT,
    MIRAGE,
    NEVER,
    NEXT_ARRIVAL,
    NONE,
    NOW,
    QUEUE_HEAD,
    QUEUE_TAIL,
    RUNNING,
    RUNNING_END,
    WATCHED,
    WATCHED_START,
    Int64s,
    Jobs,
    Knobs,
    State,
    end_next,
    enqueue,
    has_room,
)

NO_ROOM = -2
MIRAGE_TICK_S = 60
MIRAGE_BACKFILL_S = 600  # bf_interval, 10 ticks


@kernel
def advance(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s, until_s: int, stop_job: int) -> int:
    """Let everything happen up to and including `until_s`; stop as soon as `stop_job` (a row, or NONE) has started.

    Each start is written to `starts` (int64, one a row of `jobs`), which branches may share as scratch. Returns the
    start of `stop_job` (then state's NOW is that instant, after the pass that started it), NONE when `until_s` is
    reached (then NOW is `until_s`, or the last event's time for NEVER), or NO_ROOM when the queue is full: give the
    state more room (`grown`) and call again; nothing is lost.
    """
    scalars = state.scalars
    scalars[WATCHED], scalars[WATCHED_START] = stop_job, NONE
    while True:
        instant = _next_instant(jobs, knobs, state)
        if instant > until_s or instant == NEVER:
            if until_s != NEVER:
                scalars[NOW] = max(scalars[NOW], until_s)
            return NONE
        if knobs.scheduler != MIRAGE and knobs.instant == 0:
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
def submit(jobs: Jobs, knobs: Knobs, state: State, job: int, submit_s: int) -> None:
    """Submit row `job` (one that does not arrive by itself) at `submit_s` >= the state's NOW.

    It comes after every other event of that second. With `submit_s` equal to NOW an event-driven scheduler may start
    it at once, `mirage` at the next tick; to be considered at a tick t as a job of the trace would be, submit at t
    into a state that has advanced to t - 1. Only one submission may lie ahead of a state.
    """
    state.scalars[INJECTED_JOB] = job
    state.scalars[INJECTED_SUBMIT] = submit_s


@kernel_inline
def _next_arrival(jobs: Jobs, state: State) -> int:
    arrival: int = NEVER
    if state.scalars[NEXT_ARRIVAL] < state.scalars[ARRIVALS]:
        arrival = int(jobs.submit_s[state.scalars[NEXT_ARRIVAL]])
    if state.scalars[INJECTED_JOB] != NONE:
        arrival = min(arrival, int(state.scalars[INJECTED_SUBMIT]))
    return arrival


@kernel_inline
def _next_end(state: State) -> int:
    running = state.scalars[RUNNING]
    return int(state.running[running - 1, RUNNING_END]) if running > 0 else int(NEVER)


@kernel_inline
def _next_instant(jobs: Jobs, knobs: Knobs, state: State) -> int:
    """The next time at which anything can happen, or NEVER."""
    scalars = state.scalars
    instant = min(_next_end(state), _next_arrival(jobs, state))
    if knobs.scheduler != MIRAGE:
        return instant
    now = int(scalars[NOW])
    if instant != NEVER:
        instant = max((instant + MIRAGE_TICK_S - 1) // MIRAGE_TICK_S, now // MIRAGE_TICK_S + 1) * MIRAGE_TICK_S
    backfill = int(now // MIRAGE_BACKFILL_S + 1) * MIRAGE_BACKFILL_S
    if backfill < instant and scalars[FREE] > 0 and smallest_pending(state) <= scalars[FREE]:
        return backfill
    return instant


@kernel_inline
def _take_arrival(jobs: Jobs, knobs: Knobs, state: State) -> bool:
    """Queue the next arrival; False, with nothing changed, where there is no room."""
    if not has_room(state):
        return False
    scalars = state.scalars
    row = scalars[NEXT_ARRIVAL]
    injected = scalars[INJECTED_JOB]
    if row < scalars[ARRIVALS] and (injected == NONE or jobs.submit_s[row] <= scalars[INJECTED_SUBMIT]):
        scalars[NEXT_ARRIVAL] = row + 1
        enqueue(jobs, knobs, state, row, jobs.submit_s[row])
    else:
        scalars[INJECTED_JOB] = NONE
        enqueue(jobs, knobs, state, injected, scalars[INJECTED_SUBMIT])
    return True


@kernel_inline
def _take_event(jobs: Jobs, knobs: Knobs, state: State, instant: int) -> bool:
    if _next_end(state) <= instant:
        end_next(state)
        return True
    return _take_arrival(jobs, knobs, state)


@kernel_inline
def _take_events(jobs: Jobs, knobs: Knobs, state: State, instant: int) -> bool:
    while _next_end(state) <= instant:
        end_next(state)
    while _next_arrival(jobs, state) <= instant:
        if not _take_arrival(jobs, knobs, state):
            return False
    return True


@kernel_inline
def _pass(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    if state.scalars[QUEUE_HEAD] == state.scalars[QUEUE_TAIL] or state.scalars[FREE] == 0:
        return
    if knobs.scheduler == EASY:
        easy(jobs, knobs, state, starts)
    elif knobs.scheduler == CONSERVATIVE:
        conservative(jobs, knobs, state, starts)
    else:
        in_order(jobs, knobs, state, starts)
        if knobs.scheduler == MIRAGE and state.scalars[NOW] % MIRAGE_BACKFILL_S == 0:
            slotted_backfill(jobs, knobs, state, starts)
