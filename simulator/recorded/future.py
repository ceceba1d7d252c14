"""One simulated future of a recorded cluster: who is there goes on as it was drawn, and others arrive as they once did.

Nothing that was recorded after the instant of the decision is read. Run times of the jobs that are there, and when held
ones are released, are handed in as they were drawn. Arrivals are those of an earlier time of the same length, moved to
now: jobs of the record submitted in the `cycle_s` seconds before the decision, each `cycle_s` later, again and again.
Of these, run times are known where they had ended by then; of the others the drawn ones are taken. Who was withdrawn
from the queue by then does not come again.

The pass is that of `simulator.recorded.passes`, a second after what it waits for and STEP_S after the last one at the
earliest. A job that waits for a held one of its user (`Rules.siblings`) keeps the place that the pass gave it, so that
its nodes stay idle, as they do in `simulator.recorded.forked`. As many nodes are usable as at the decision; those that
are out come back `forked.OUT_S` later. Compiled; the slow twin is `features.ahead.plain`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.marks import NO_ROOM
from simulator.recorded.forked import OUT_S
from simulator.recorded.passes import Scratch, make_pass, may_start, new_scratch
from simulator.recorded.record import NEVER, NONE, Int64s, Record
from simulator.recorded.search import first_not_before
from simulator.recorded.state import (
    BUSY,
    PENDING,
    RUNNING,
    Jobs,
    Rules,
    State,
    asks_no_more,
    begin,
    enter,
    finish,
    leave,
    new_state,
)

STEP_S = (
    60  # between passes, at least: backfill itself runs every 30 s (Slurm's bf_interval), and most events are alone
)

# Entries of Moment.
NOW_S = 0  # the decision
CYCLE_S = 1  # arrivals are those of so long before it; 0: those that came in truth (to say what knowing them is worth)
LAST_S = 2  # a successor that has not started by then is given up
USABLE = 3  # nodes, once those that are out have come back
USABLE_YET = 4  # nodes until then
OWN_USER = 5  # whose jobs of the name OWN_NAME do not come: the successor stands in their place; NONE
OWN_NAME = 6
WATCHED = 7  # the row whose start is asked for
ROWS = 8  # rows in use; an arrival takes the next one
FIRST_ROW = 9  # of the past that comes, where CYCLE_S is 0
MOMENT = 10


class Past(NamedTuple):
    """The record as arrivals and histories read it, int64, shape (jobs,), in order of submission."""

    submit_s: Int64s
    start_s: Int64s  # NEVER for one that never ran
    end_s: Int64s  # or the cancellation
    size: Int64s
    limit_s: Int64s
    user: Int64s
    name: Int64s
    priority_key: Int64s  # what its Priority adds to its key (`simulator.recorded.parameters.jobs_of`)


class Ageing(NamedTuple):
    """How a key falls with the instant of submission."""

    key_per_s: float
    origin_s: int


class Room(NamedTuple):
    """Working memory of one thread: a small cluster of its own, whose rows are numbered anew for each decision."""

    jobs: Jobs
    state: State
    scratch: Scratch
    run_s: Int64s  # (rows,) run time of a pending row
    release_s: Int64s  # (rows,) when a held row is released, epoch s
    drawn_s: Int64s  # (jobs of the past,) run times of those that had not ended


def past_of(record: Record, *, has_priority: bool) -> Past:
    """The past of a record; without priorities (first come, first served) keys hang on the submission alone."""
    priority = 3600 * record.priority if has_priority else np.zeros_like(record.submit_s)
    name = record.name if len(record.name) else np.zeros_like(record.user)
    columns = (record.submit_s, record.start_s, record.end_s, record.size, record.limit_s, record.user, name, priority)
    return Past(*(np.ascontiguousarray(column, np.int64) for column in columns))


def new_room(rows: int, users: int, past: Past) -> Room:
    """Room for so many jobs at once and in the course of a future, arrivals included."""
    jobs = Jobs(*(np.zeros(rows, np.int64) for _ in Jobs._fields))
    state, scratch = new_state(jobs, users), new_scratch(rows, users)
    drawn_s = np.zeros(len(past.submit_s), np.int64)
    return Room(jobs, state, scratch, np.zeros(rows, np.int64), np.zeros(rows, np.int64), drawn_s)


@kernel
def key_at(ageing: Ageing, priority_key: int, submit_s: int) -> int:
    """The key of a job submitted then."""
    return int(priority_key + int(np.rint(ageing.key_per_s * (submit_s - ageing.origin_s))))


@kernel
def clear(state: State) -> None:
    """Nobody pends and nobody runs."""
    for user in range(len(state.user_jobs)):
        state.user_jobs[user] = state.user_nodes[user] = 0
    for i in range(len(state.scalars)):
        state.scalars[i] = 0


@kernel
def start_in_future(past: Past, ageing: Ageing, rules: Rules, room: Room, moment: Int64s) -> int:
    """The start of row WATCHED, s; LAST_S where it has not started by then; NO_ROOM where more came than `room` holds.

    `room` holds who pends and runs at NOW_S, the watched row among those that pend; it is used up.

    Over 50 lines: the loop of the clock, with what happens at one instant in the order in which it happens.
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
    held = 0
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
                first = end  # what came in truth comes once
            elif coming == end:
                coming, later_s = first, later_s + cycle_s
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
        following = back_s if now <= back_s else NEVER
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
def _arrive(past: Past, ageing: Ageing, room: Room, moment: Int64s, row: int, later_s: int) -> None:
    """A job of the past comes again, `later_s` later, unless it was withdrawn or is the user's own next one."""
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
def _start_placed(rules: Rules, room: Room, now: int, watched: int) -> bool:
    """Start what the pass placed now, but for jobs that wait for a held one of their user; does `watched` start?"""
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
