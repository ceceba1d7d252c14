"""One simulated future of a recorded cluster: present jobs run for drawn times, and past arrivals repeat. Compiled.

Nothing that was recorded after the instant of the decision is read. The caller passes drawn run times of the present
jobs and drawn releases of the held ones. Arrivals repeat the jobs of the record that were submitted in the `cycle_s`
seconds before the decision, shifted by `cycle_s` again and again. Such an arrival runs for its recorded time if the job
had ended by the decision, else for a drawn time. A job that had been withdrawn from the queue by then does not arrive
again.

A pass (`simulator.recorded.passes`) happens one second after the event that causes it, and at least STEP_S after the
pass before. A job that waits for a held job of its user (`RecordedRules.siblings`) keeps its place in the plan, so its
nodes stay idle, as in `simulator.recorded.forked`. The usable nodes are those of the decision; nodes that are out come
back `forked.OUT_S` later. `features.futures.plain` is a plain Python version of the same algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.marks import NO_ROOM
from simulator.recorded.forked import OUT_S
from simulator.recorded.passes import PassMemory, make_pass, may_start, new_scratch
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from simulator.recorded.search import first_not_before
from simulator.recorded.state import (
    BUSY,
    PENDING,
    RUNNING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    asks_no_more,
    begin,
    enter,
    finish,
    leave,
    new_state,
)
from traces.arrays import Int64s

STEP_S = 60  # least time between passes; Slurm's backfill runs every 30 s (bf_interval), and most events are alone

# Entries of the array `moment`.
NOW_S = 0  # the instant of the decision
CYCLE_S = 1  # length of the repeated past; 0: use the true arrivals, to measure the value of knowing them
LAST_S = 2  # when a successor that has not started is given up
USABLE = 3  # usable nodes after those that are out have come back
USABLE_YET = 4  # usable nodes until then
OWN_USER = 5  # user whose jobs named OWN_NAME do not arrive, because the successor replaces them; NONE
OWN_NAME = 6
WATCHED = 7  # the row whose start is returned
ROWS = 8  # rows in use; an arrival takes the next one
FIRST_ROW = 9  # first row of the past that arrives if CYCLE_S is 0
ENTERS_S = 10  # when the watched row is submitted, if later than NOW_S
MOMENT = 11


class RecordedHistory(NamedTuple):
    """The recorded jobs that may arrive again, int64, shape (jobs,), in order of submission."""

    submit_s: Int64s
    start_s: Int64s  # NEVER for a job that never ran
    end_s: Int64s  # end or cancellation
    size: Int64s
    limit_s: Int64s
    user: Int64s
    name: Int64s
    priority_key: Int64s  # part of the key from its Priority (`simulator.recorded.parameters.jobs_of`)


class Ageing(NamedTuple):
    """The change of a key with the instant of submission."""

    key_per_s: float
    origin_s: int


class RecordedFutureBuffers(NamedTuple):
    """Working memory of one thread: a small cluster whose rows are renumbered for each decision."""

    jobs: RecordedJobs
    state: RecordedState
    scratch: PassMemory
    run_s: Int64s  # (rows,) run time of a pending row
    release_s: Int64s  # (rows,) release of a held row, epoch s
    drawn_s: Int64s  # (jobs of the past,) drawn run times of jobs that had not ended


def past_of(record: RecordedTrace, *, has_priority: bool) -> RecordedHistory:
    """Return the past of a record. Without priorities (first come, first served) keys depend on submission alone."""
    priority = 3600 * record.priority if has_priority else np.zeros_like(record.submit_s)
    name = record.name if len(record.name) else np.zeros_like(record.user)
    columns = (record.submit_s, record.start_s, record.end_s, record.size, record.limit_s, record.user, name, priority)
    return RecordedHistory(*(np.ascontiguousarray(column, np.int64) for column in columns))


def new_room(rows: int, users: int, past: RecordedHistory) -> RecordedFutureBuffers:
    """Allocate working memory for `rows` jobs over the whole future, including arrivals."""
    jobs = RecordedJobs(*(np.zeros(rows, np.int64) for _ in RecordedJobs._fields))
    state, scratch = new_state(jobs, users), new_scratch(rows, users)
    drawn_s = np.zeros(len(past.submit_s), np.int64)
    return RecordedFutureBuffers(jobs, state, scratch, np.zeros(rows, np.int64), np.zeros(rows, np.int64), drawn_s)


@kernel
def key_at(ageing: Ageing, priority_key: int, submit_s: int) -> int:
    """Return the key of a job submitted at `submit_s`."""
    return int(priority_key + int(np.rint(ageing.key_per_s * (submit_s - ageing.origin_s))))


@kernel
def clear(state: RecordedState) -> None:
    """Empty the state: no job pends or runs."""
    for user in range(len(state.user_jobs)):
        state.user_jobs[user] = state.user_nodes[user] = 0
    for i in range(len(state.scalars)):
        state.scalars[i] = 0


@kernel
def start_in_future(
    past: RecordedHistory, ageing: Ageing, rules: RecordedRules, room: RecordedFutureBuffers, moment: Int64s
) -> int:
    """Return the start of row WATCHED, s; LAST_S if it has not started by then; NO_ROOM if `room` is too small.

    On entry `room` holds the jobs that pend and run at NOW_S, including the watched row unless it enters later. Its
    content is consumed.

    Over 50 lines: the loop of the clock, with the events of one instant in their order.
    """
    jobs, state, scratch = room.jobs, room.state, room.scratch
    scalars = state.scalars
    now, last_s, watched = moment[NOW_S] + 1, moment[LAST_S], moment[WATCHED]
    back_s = moment[NOW_S] + OUT_S
    cycle_s = moment[CYCLE_S]
    count = len(past.submit_s)
    first = moment[FIRST_ROW]
    if cycle_s > 0:
        first = first_not_before(past.submit_s, 0, count, moment[NOW_S] - cycle_s)
    end = count if cycle_s == 0 else first_not_before(past.submit_s, 0, count, moment[NOW_S])
    coming, later_s = first, cycle_s
    enters_s, held = moment[ENTERS_S] if moment[ENTERS_S] > moment[NOW_S] else NEVER, 0
    for i in range(scalars[PENDING]):
        held += state.held[state.pending[i]]
    while now <= last_s:
        i = 0
        while i < scalars[RUNNING]:
            job = state.running[i]
            if state.end_s[job] < now:
                finish(jobs, state, job, state.end_s[job])
            else:
                i += 1
        while first < end and past.submit_s[coming] + later_s < now:
            if moment[ROWS] == len(room.run_s):
                return NO_ROOM
            _arrive(past, ageing, room, moment, coming, later_s)
            coming += 1
            if coming == end and cycle_s == 0:
                first = end  # true arrivals arrive once
            elif coming == end:
                coming, later_s = first, later_s + cycle_s
        if enters_s < now:
            enter(state, watched)
            enters_s = NEVER
        if held > 0:
            for i in range(scalars[PENDING]):
                job = state.pending[i]
                if state.held[job] == 1 and room.release_s[job] < now:
                    state.held[job] = 0
                    held -= 1
        usable = moment[USABLE_YET] if now <= back_s else moment[USABLE]
        if usable > scalars[BUSY]:
            make_pass(jobs, rules, state, scratch, now, usable, NONE)
            if _start_placed(rules, room, now, watched):
                return int(now)
        following = min(back_s if now <= back_s else NEVER, enters_s)
        if first < end:
            following = min(following, past.submit_s[coming] + later_s)
        for i in range(scalars[RUNNING]):
            following = min(following, state.end_s[state.running[i]])
        if held > 0:
            for i in range(scalars[PENDING]):
                if state.held[state.pending[i]] == 1:
                    following = min(following, room.release_s[state.pending[i]])
        if following == NEVER:
            return int(last_s)
        now = max(following + 1, now + STEP_S)
    return int(last_s)


@kernel
def _arrive(
    past: RecordedHistory, ageing: Ageing, room: RecordedFutureBuffers, moment: Int64s, row: int, later_s: int
) -> None:
    """Repeat the arrival of a past job `later_s` later, unless it was withdrawn or the successor replaces it."""
    is_over = past.end_s[row] < moment[NOW_S]
    if is_over and past.start_s[row] == NEVER:
        return
    if past.user[row] == moment[OWN_USER] and past.name[row] == moment[OWN_NAME]:
        return
    job = moment[ROWS]
    moment[ROWS] += 1
    submit_s = past.submit_s[row] + later_s
    room.jobs.submit_s[job] = room.state.submit_s[job] = submit_s
    room.jobs.size[job], room.jobs.limit_s[job] = past.size[row], past.limit_s[row]
    room.jobs.user[job] = past.user[row]
    room.state.key[job] = key_at(ageing, past.priority_key[row], submit_s)
    room.run_s[job] = past.end_s[row] - past.start_s[row] if is_over else room.drawn_s[row]
    enter(room.state, job)


@kernel
def _start_placed(rules: RecordedRules, room: RecordedFutureBuffers, now: int, watched: int) -> bool:
    """Start the jobs placed now, except those that wait for a held sibling; return whether `watched` starts."""
    jobs, state = room.jobs, room.state
    watched_starts = False
    i = 0
    while i < state.scalars[PENDING]:
        job = state.pending[i]
        starts = may_start(room.scratch, job)
        if starts and rules.siblings == 1 and job != watched:
            for k in range(i):
                ahead = state.pending[k]
                if state.held[ahead] == 1 and asks_no_more(jobs, ahead, job):
                    starts = False
        if starts:
            leave(state, job)
            begin(jobs, state, job, now, now + room.run_s[job])
            watched_starts = watched_starts or job == watched
        else:
            i += 1
    return watched_starts
