"""What happens once the log has been left: every job is started by the pass, and a job submitted competes. Compiled.

The log is left at a submission, in the state of the others at that instant: who runs since when, who pends, who is
held, which nodes are out. From then on every job is started by the pass of `simulator.recorded.passes`. Nothing of the
others' later starts reaches the state, but for the start of a job that was held already. So the start of a submitted
job cannot be read off the nodes that it, or others, left idle in truth.

The log goes on to tell what an operator would know: arrivals, cancellations, nodes in use, and how long a job ran once
its recorded end is past. A job that starts earlier than it did in truth therefore keeps its nodes until that end, and
one that was cancelled in the queue until its cancellation.

An example: the log says that B was submitted at 10:00, started at 12:00 and ended at 13:00. If the simulation starts it
at 12:30, it ends at 13:30, after the hour that it ran; at 12:10 nobody can know that hour, and nobody is told. If the
simulation starts it at 11:00, it ends at 13:00: that it runs for an hour is known only then.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recorded.log import Log
from simulator.recorded.passes import Scratch, may_start
from simulator.recorded.record import CANCELLED, STARTED, SUBMITTED
from simulator.recorded.state import PENDING, RUNNING, Jobs, Rules, State, asks_no_more, begin, enter, finish, leave

OUT_S = 7200  # nodes that were out when the log was left are taken to be out for so long


@kernel
def end_s(log: Log, state: State, job: int) -> int:
    """When a running job ends: its recorded run time after its start, but not before its recorded end."""
    start_s, recorded_s = state.start_s[job], log.start_s[job]
    if start_s >= recorded_s:
        return int(log.end_s[job] + start_s - recorded_s)
    return int(log.end_s[job])


@kernel
def finish_before(jobs: Jobs, log: Log, state: State, before_s: int) -> None:
    """Jobs that end before an instant give their nodes back."""
    i = 0
    while i < state.scalars[RUNNING]:
        job = state.running[i]
        job_end_s = end_s(log, state, job)
        if job_end_s < before_s:
            finish(jobs, state, job, job_end_s)
        else:
            i += 1


@kernel
def tell(jobs: Jobs, log: Log, state: State, event: int) -> None:
    """An event of the log, as far as it counts: an arrival, a cancellation, or the start of a job that was held."""
    job, kind = log.job[event], log.kind[event]
    if kind == SUBMITTED:
        enter(state, job)
    elif kind == CANCELLED or (kind == STARTED and state.held[job] == 1):
        pended = state.scalars[PENDING]
        leave(state, job)
        if kind == STARTED and state.scalars[PENDING] < pended:
            begin(jobs, state, job, log.start_s[job])


@kernel
def start_placed(
    jobs: Jobs, rules: Rules, state: State, scratch: Scratch, first_beyond: int, now: int, watched: int
) -> bool:
    """Start what the last pass placed now, but for the jobs that wait for a held sibling.

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
            begin(jobs, state, job, now)
            watched_starts = watched_starts or job == watched
        else:
            i += 1
    return watched_starts
