"""One simulated future of a flat cluster: who is there goes on as it was drawn, and others arrive as they once did.

The counterpart of `simulator.recorded.future` for the plain world: the scheduler itself goes on from a branch, of which
nothing is taken over but what anyone may see. Run times of the jobs that are there are handed in as they were drawn.
Arrivals are the jobs submitted in the `cycle_s` seconds before the decision, each `cycle_s` later, again and again.
Those that had ended by the decision run for as long as they did, the others for as long as was drawn. Compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.flat.kernel import advance, new_state, submit
from simulator.flat.state import (
    ARRIVALS,
    NEXT_ARRIVAL,
    NONE,
    NOW,
    RUNNING,
    RUNNING_COLUMNS,
    RUNNING_END,
    RUNNING_JOB,
    RUNNING_START,
    RUNNING_SUBMIT,
    Int64s,
    Jobs,
    Knobs,
    State,
    copy_state,
)
from simulator.marks import NO_ROOM


class Past(NamedTuple):
    """The jobs of the trace as they went in one branch: rows of `Jobs` that arrive by themselves."""

    jobs: Jobs  # as in the branch, the extra rows behind those of the trace
    end_s: Int64s  # (jobs of the trace,) s; NEVER for one that had not started when the branch ended


class Room(NamedTuple):
    """Working memory of one thread."""

    jobs: Jobs  # the rows of the branch, with run times as drawn, and behind them those that arrive in a future
    state: State
    starts: Int64s  # (rows,) scratch


def new_room(knobs: Knobs, jobs: Jobs, arrivals: int) -> Room:
    """Room for the rows of `jobs` and so many arrivals in a future."""
    rows = len(jobs.size) + arrivals
    own = Jobs(*(np.append(column, np.zeros(arrivals, np.int64)) for column in jobs))
    return Room(own, new_state(knobs, 0, rows, min(rows, knobs.capacity)), np.full(rows, NONE))


@kernel
def start_in_future(
    past: Past, knobs: Knobs, room: Room, there: State, now: int, cycle_s: int, last_s: int, successor: int
) -> int:
    """The start of row `successor`, submitted at `now`; `last_s` where it has not started by then; or NO_ROOM.

    there: the branch, advanced to the second before `now` or to `now` itself; it stays as it is. `room.jobs.run_s`
    holds what was drawn for every row that pends or runs in it.
    """
    state, scalars = room.state, room.state.scalars
    copy_state(state, there)
    for i in range(scalars[RUNNING]):
        _end_as_drawn(room, i, now)
    after = _arrivals(past, room, now, there.scalars[NOW] + 1, cycle_s, last_s)
    if after == NO_ROOM:
        return NO_ROOM
    scalars[NEXT_ARRIVAL], scalars[ARRIVALS] = len(past.jobs.size), after
    submit(state, successor, now)
    start = advance(room.jobs, knobs, state, room.starts, last_s, successor)
    return int(last_s if start == NONE else start)


@kernel
def _end_as_drawn(room: Room, i: int, now: int) -> None:
    """Row i of the running ones ends as drawn, no earlier than now; it takes its place among those before it."""
    running = room.state.running
    job = running[i, RUNNING_JOB]
    run_s = min(room.jobs.run_s[job], room.jobs.limit_s[job])
    running[i, RUNNING_END] = max(running[i, RUNNING_START] + run_s, now)
    while i > 0 and (running[i - 1, RUNNING_END], running[i - 1, RUNNING_SUBMIT], running[i - 1, RUNNING_JOB]) < (
        running[i, RUNNING_END],
        running[i, RUNNING_SUBMIT],
        running[i, RUNNING_JOB],
    ):
        for column in range(RUNNING_COLUMNS):
            running[i - 1, column], running[i, column] = running[i, column], running[i - 1, column]
        i -= 1


@kernel
def _arrivals(past: Past, room: Room, now: int, known_s: int, cycle_s: int, last_s: int) -> int:
    """Write who arrives before `last_s` behind the rows of the branch; the row after the last of them, or NO_ROOM.

    known_s: what ended before then is known.
    """
    submit_s, jobs = past.jobs.submit_s[: len(past.end_s)], room.jobs
    first, end = np.searchsorted(submit_s, now - cycle_s), np.searchsorted(submit_s, now)
    row, coming, later_s = len(past.jobs.size), first, cycle_s
    while first < end and submit_s[coming] + later_s < last_s:
        if row == len(jobs.size):
            return NO_ROOM
        jobs.submit_s[row] = submit_s[coming] + later_s
        jobs.size[row], jobs.limit_s[row] = past.jobs.size[coming], past.jobs.limit_s[coming]
        jobs.run_s[row] = past.jobs.run_s[coming] if past.end_s[coming] < known_s else jobs.run_s[coming]
        row += 1
        coming += 1
        if coming == end:
            coming, later_s = first, later_s + cycle_s
    return row
