"""What happens once the log has been left: every job is started by the pass, and a job submitted competes. Compiled.

The log is left at a submission, in the state of the others at that instant: who runs since when, who pends, who is
held, which nodes are out. From then on every job is started by the pass of `simulator.recorded.passes`. Nothing of the
others' later starts reaches the state, but for the start of a job that was held already. So the start of a submitted
job cannot be read off the nodes that it, or others, left idle in truth.

The log goes on to tell what an operator would know: arrivals, cancellations, nodes in use, and how long a job ran once
its recorded end is past. A job that starts earlier than it did in truth, or that was cancelled in the queue in truth,
keeps its nodes until that end, or that cancellation, but no longer than like jobs run (`simulator.recorded.run_times`).
Against its user's limits it counts until then all the same: a user at a limit, who runs one job after the other, is
never more than one ahead of the record, whatever kept these jobs in truth.

An example: the log says that B was submitted at 10:00, started at 12:00 and ended at 13:00. If the simulation starts it
at 12:30, it ends at 13:30, after the hour that it ran; at 12:10 nobody can know that hour, and nobody is told. If the
simulation starts it at 11:00, that it runs for an hour is known at 13:00 only: it ends then, or earlier if jobs of its
user have run for less than two hours in the mean.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.recorded.log import Log
from simulator.recorded.passes import Scratch, may_start
from simulator.recorded.record import CANCELLED, ENDED, STARTED, SUBMITTED
from simulator.recorded.run_times import longest_run_s
from simulator.recorded.state import (
    PENDING,
    RUNNING,
    Jobs,
    Rules,
    State,
    asks_no_more,
    begin,
    count_no_more,
    enter,
    finish,
    leave,
    still_count,
)

OUT_S = 7200  # nodes that were out when the log was left are taken to be out for so long


@kernel_inline
def _end_s(jobs: Jobs, log: Log, job: int, start_s: int, left_s: int) -> int:
    """When a job ends that the simulation starts, where the log was left at `left_s`: see above."""
    early_s = log.start_s[job] - start_s
    if early_s <= 0:
        return int(log.end_s[job] - early_s)
    longest_s = longest_run_s(log.run_times, jobs.user[job], jobs.limit_s[job], early_s, left_s)
    return int(min(log.end_s[job], start_s + longest_s))


@kernel
def finish_before(jobs: Jobs, log: Log, state: State, before_s: int) -> None:
    """Jobs that end before an instant give their nodes back; their users' limits count them until the record's end."""
    i = 0
    while i < state.scalars[RUNNING]:
        job = state.running[i]
        if state.end_s[job] < before_s:
            finish(jobs, state, job, state.end_s[job])
            if state.end_s[job] < log.end_s[job]:
                still_count(jobs, state, job)
        else:
            i += 1


@kernel
def tell(jobs: Jobs, log: Log, state: State, event: int) -> None:
    """What counts of an event of the log: an arrival, end or cancellation, or the start of a job that was held."""
    job, kind = log.job[event], log.kind[event]
    if kind in (ENDED, CANCELLED):
        count_no_more(jobs, state, job)
    if kind == SUBMITTED:
        enter(state, job)
    elif kind == CANCELLED or (kind == STARTED and state.held[job] == 1):
        pended = state.scalars[PENDING]
        leave(state, job)
        if kind == STARTED and state.scalars[PENDING] < pended:
            begin(jobs, state, job, log.start_s[job], log.end_s[job])


@kernel
def start_placed(
    jobs: Jobs,
    rules: Rules,
    log: Log,
    state: State,
    scratch: Scratch,
    first_beyond: int,
    left_s: int,
    now: int,
    watched: int,
) -> bool:
    """Start what the last pass placed now, but for the jobs that wait for a held sibling. The log was left at `left_s`.

    Rows from `first_beyond` on, not in the record, wait for none: of them it is known that nothing holds them.
    Returns whether `watched` (a row, or NONE) is among those that start.
    """
    watched_starts = False
    i = 0
    while i < state.scalars[PENDING]:
        job = state.pending[i]
        starts = may_start(scratch, job)
        if starts and rules.siblings == 1 and job < first_beyond:
            for k in range(i):
                ahead = state.pending[k]
                if state.held[ahead] == 1 and asks_no_more(jobs, ahead, job):
                    starts = False
        if starts:
            leave(state, job)
            begin(jobs, state, job, now, _end_s(jobs, log, job, now, left_s))
            watched_starts = watched_starts or job == watched
        else:
            i += 1
    return watched_starts
