"""The simulation after a branch leaves the log: the pass starts every job, and a submitted job competes. Compiled.

A branch leaves the log at a submission. It starts from the state of the other jobs at that instant: the running jobs
and their starts, the pending jobs, the held jobs, and the nodes out of service. From then on the pass of
`simulator.recorded.passes` starts every job. Later recorded starts do not reach the state, except the start of a job
that was held already. So the simulation cannot infer the start of a submitted job from the nodes that it, or others,
left idle in the record.

The log still provides what an operator would know: arrivals, cancellations, nodes in use, and a job's run time once its
recorded end has passed. A job that starts earlier than recorded, or that was cancelled in the queue, keeps its nodes
until its recorded end or cancellation, but no longer than similar jobs run (`simulator.recorded.run_times`). It counts
against its user's limits until its recorded end in any case. So a user at a limit who runs one job after the other is
never more than one job ahead of the record, whatever delayed these jobs in the record.

An example: in the log B was submitted at 10:00, started at 12:00 and ended at 13:00. If the simulation starts it at
12:30, it ends at 13:30, after its recorded hour; at 12:10 the simulation does not yet know that hour. If the simulation
starts it at 11:00, its run time is known only at 13:00. It ends then, or earlier if jobs of its user have run for less
than two hours in the mean.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.recorded.log import Log
from simulator.recorded.passes import PassMemory, may_start
from simulator.recorded.record import CANCELLED, ENDED, STARTED, SUBMITTED
from simulator.recorded.run_times import longest_run_s
from simulator.recorded.state import (
    PENDING,
    RUNNING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    asks_no_more,
    begin,
    count_no_more,
    enter,
    finish,
    leave,
    still_count,
)

OUT_S = 7200  # assumed remaining outage, s, of nodes that are out when the branch leaves the log


@kernel_inline
def _end_s(jobs: RecordedJobs, log: Log, job: int, start_s: int, left_s: int) -> int:
    """Return the end of a job that the simulation starts, if the branch left the log at `left_s` (module docstring)."""
    early_s = log.start_s[job] - start_s
    if early_s <= 0:
        return int(log.end_s[job] - early_s)
    longest_s = longest_run_s(log.run_times, jobs.user[job], jobs.limit_s[job], early_s, left_s)
    return int(min(log.end_s[job], start_s + longest_s))


@kernel
def finish_before(jobs: RecordedJobs, log: Log, state: RecordedState, before_s: int) -> None:
    """End the jobs that end before `before_s`; they count against their users' limits until their recorded end."""
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
def observe_event(jobs: RecordedJobs, log: Log, state: RecordedState, event: int) -> None:
    """Apply the visible part of an event of the log: an arrival, end or cancellation, or the start of a held job."""
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
    jobs: RecordedJobs,
    rules: RecordedRules,
    log: Log,
    state: RecordedState,
    scratch: PassMemory,
    first_beyond: int,
    left_s: int,
    now: int,
    watched: int,
) -> bool:
    """Start the jobs that the last pass placed now, except those that wait for a held sibling.

    The branch left the log at `left_s`. Rows from `first_beyond` on are beyond the record and wait for no sibling,
    because nothing holds them. Returns whether `watched` (a row, or NONE) starts.
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
