"""Follow the log: apply its events to the state and infer holds and nodes out of service. Compiled.

The record reveals three things on the way (`RecordedRules` can switch off each):

  - *Nodes out*: a pending job that the pass would have started `stall_s` ago, and that no job overtook, shows that
    fewer nodes are usable than assumed: at most the nodes in use plus one less than it asks for. This holds until more
    nodes are in use.
  - *Holds*: a pending job counts as held (by a dependency, a begin time or an operator; the log does not show which)
    once it was overtaken. It was overtaken if a job of another user behind it started although the pass would have
    started this job first, or although this job asks for neither more nodes nor a longer limit and its user is within
    the limits. A held job reserves nothing from then on.
  - *Siblings*: a job waits for its own user's held jobs ahead of it that ask for no more than it does.

An example on 4 nodes: A holds 2 of them. B (another user's, 2 nodes, 1 h) has pended for a minute, and the pass finds
that it may start. Then C, behind B and of a third user, starts on 2 nodes: B was overtaken and counts as held. If no
job had started for `stall_s` (five minutes), B's wait would show that at most 2 + 2 - 1 = 3 nodes are usable.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recorded.log import Log
from simulator.recorded.passes import PassMemory, make_pass
from simulator.recorded.record import ENDED, NEVER, NONE, STARTED, SUBMITTED
from simulator.recorded.state import (
    BUSY,
    CEILING,
    PENDING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    begin,
    enter,
    finish,
    leave,
    over_limit,
)

TICK_S = 600  # period of passes without an event: limits expire and reservations come closer
HORIZON_S = 10 * 86400  # a job that has not started after this wait is given up with this wait


@kernel
def look(
    jobs: RecordedJobs,
    rules: RecordedRules,
    state: RecordedState,
    scratch: PassMemory,
    now: int,
    usable: int,
    target: int,
) -> bool:
    """Infer nodes out of service from the record, then make a pass on at most `usable` nodes (`passes.make_pass`)."""
    scalars = state.scalars
    if scalars[BUSY] > scalars[CEILING]:
        scalars[CEILING] = NEVER
    if rules.stall_s > 0:
        for i in range(scalars[PENDING]):
            job = state.pending[i]
            since = state.could_start_s[job]
            if state.held[job] == 0 and since != NONE and now - since >= rules.stall_s:
                scalars[CEILING] = min(scalars[CEILING], scalars[BUSY] + jobs.size[job] - 1)
    return make_pass(jobs, rules, state, scratch, now, min(usable, scalars[CEILING]), target)


@kernel
def take(jobs: RecordedJobs, rules: RecordedRules, log: Log, state: RecordedState, event: int) -> None:
    """Apply an event of the log: a job is submitted, starts, ends, or is cancelled in the queue."""
    job, kind = log.job[event], log.kind[event]
    if kind == SUBMITTED:
        enter(state, job)
    elif kind == ENDED:
        finish(jobs, state, job, log.end_s[job])
    else:
        ahead = leave(state, job)
        if kind == STARTED:
            if rules.overtaken == 1:
                _hold_overtaken(jobs, rules, state, job, log.start_s[job], ahead)
            begin(jobs, state, job, log.start_s[job], log.end_s[job])


@kernel
def _hold_overtaken(
    jobs: RecordedJobs, rules: RecordedRules, state: RecordedState, job: int, start_s: int, ahead: int
) -> None:
    """Mark as held those of the `ahead` jobs before `job` that could have started in its place at `start_s`."""
    for i in range(ahead):
        other = state.pending[i]
        if jobs.user[other] != jobs.user[job]:
            could = state.could_start_s[other]
            asks_less = jobs.size[other] <= jobs.size[job] and jobs.limit_s[other] <= jobs.limit_s[job]
            if (could != NONE and could < start_s) or (asks_less and not over_limit(jobs, rules, state, other, 0, 0)):
                state.held[other] = 1
