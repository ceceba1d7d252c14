"""One simulated future of a flat cluster: present jobs run for drawn times, and past arrivals repeat. Compiled.

This is the counterpart of `simulator.recorded.future` for the flat world. The scheduler continues from a branch and
uses only its visible state. The caller passes a drawn run time for each present job. Arrivals repeat the jobs submitted
in the `cycle_s` seconds before the decision, shifted by `cycle_s` again and again. An arrival copied from a job that
had ended by the decision has that job's run time; any other arrival has a drawn run time.
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
    FlatJobs,
    FlatKnobs,
    FlatState,
    copy_state,
    ends_before,
    position_of,
)
from simulator.marks import NO_ROOM
from traces.arrays import Int64s


class FlatHistory(NamedTuple):
    """The jobs of the trace with their ends in one branch."""

    jobs: FlatJobs  # as in the branch: the rows of the trace, then the extra rows
    end_s: Int64s  # (jobs of the trace,) s; NEVER for a job that had not started when the branch ended


class FlatFutureBuffers(NamedTuple):
    """Working memory of one thread."""

    jobs: FlatJobs  # the rows of the branch with drawn run times, then the rows that arrive in a future
    state: FlatState
    starts: Int64s  # (rows,) scratch


def new_room(knobs: FlatKnobs, jobs: FlatJobs, arrivals: int) -> FlatFutureBuffers:
    """Allocate working memory for the rows of `jobs` and for `arrivals` more jobs in a future."""
    rows = len(jobs.size) + arrivals
    own = FlatJobs(*(np.append(column, np.zeros(arrivals, np.int64)) for column in jobs))
    return FlatFutureBuffers(own, new_state(knobs, 0, rows, min(rows, knobs.capacity)), np.full(rows, NONE))


@kernel
def start_in_future(
    past: FlatHistory,
    knobs: FlatKnobs,
    room: FlatFutureBuffers,
    there: FlatState,
    now: int,
    cycle_s: int,
    last_s: int,
    successor: int,
    enters_s: int,
) -> int:
    """Return the start of row `successor`, s; `last_s` if it has not started by then; or NO_ROOM.

    It is submitted at `enters_s`, `now` or later, unless it pends already. `there` is the branch, advanced to `now` or
    to the second before; it is not changed. `room.jobs.run_s` holds the drawn run time of every row that pends or runs
    in the branch.
    """
    state, scalars = room.state, room.state.scalars
    copy_state(state, there)
    for i in range(scalars[RUNNING]):
        _end_as_drawn(room, i, now)
    after = _arrivals(past, room, now, there.scalars[NOW] + 1, cycle_s, last_s)
    if after == NO_ROOM:
        return NO_ROOM
    scalars[NEXT_ARRIVAL], scalars[ARRIVALS] = len(past.jobs.size), after
    if position_of(state, successor) == NONE:
        if enters_s > now:
            advance(room.jobs, knobs, state, room.starts, enters_s - 1, NONE)
        submit(state, successor, enters_s)
    start = advance(room.jobs, knobs, state, room.starts, last_s, successor)
    return int(last_s if start == NONE else start)


@kernel
def _end_as_drawn(room: FlatFutureBuffers, i: int, now: int) -> None:
    """Set the drawn end of running row i, no earlier than now, and move it to its place among the rows before it."""
    running = room.state.running
    job = running[i, RUNNING_JOB]
    run_s = min(room.jobs.run_s[job], room.jobs.limit_s[job])
    running[i, RUNNING_END] = max(running[i, RUNNING_START] + run_s, now)
    while i > 0 and ends_before(room.state, i - 1, i):
        for column in range(RUNNING_COLUMNS):
            running[i - 1, column], running[i, column] = running[i, column], running[i - 1, column]
        i -= 1


@kernel
def _arrivals(past: FlatHistory, room: FlatFutureBuffers, now: int, known_s: int, cycle_s: int, last_s: int) -> int:
    """Append the jobs that arrive before `last_s` to the rows of the branch; return the next free row, or NO_ROOM.

    The run times of jobs that ended before `known_s` are known.
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
