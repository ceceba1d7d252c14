"""Following the log: its events change the state, and what they show about holds and about nodes out. Compiled.

What the record shows on the way (each can be switched off, `Rules`):

  - *nodes out*: a pending job that the pass would have started `stall_s` ago, and that nobody overtook, shows that
    fewer nodes are usable than thought: at most those in use and one less than it asks for. This holds until more
    are in use;
  - *holds*: a pending job is held (by a dependency, a begin time, an operator: the log does not say) once it was
    overtaken. That is: a job of another user behind it started although the pass would have started this one first, or
    although this one asks for neither more nodes nor a longer limit and its user is within the limits. A held job
    reserves nothing from then on;
  - *siblings*: a job waits for its own user's held jobs ahead of it that ask for no more than it does.

An example on 4 nodes: A holds 2 of them; B (another user's, 2 nodes, 1 h) has pended for a minute, and the pass says
that it may start. Then C, behind B, of a third user, starts on 2 nodes: B was overtaken and is held. Had nobody
started for `stall_s` (five minutes), then B's waiting would show that at most 2 + 2 - 1 = 3 nodes are usable.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recorded.log import Log
from simulator.recorded.passes import Scratch, make_pass
from simulator.recorded.record import ENDED, NEVER, NONE, STARTED, SUBMITTED
from simulator.recorded.state import (
    BUSY,
    CEILING,
    PENDING,
    Jobs,
    Rules,
    State,
    begin,
    enter,
    finish,
    leave,
    over_limit,
)

TICK_S = 600  # a pass although nothing happened: limits run out and reservations come near
HORIZON_S = 10 * 86400  # a job that has not started by then is given up at that wait


@kernel
def look(jobs: Jobs, rules: Rules, state: State, scratch: Scratch, now: int, usable: int, target: int) -> bool:
    """What the record has come to show about nodes out, then a pass on at most `usable` nodes (`passes.make_pass`)."""
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
def take(jobs: Jobs, rules: Rules, log: Log, state: State, event: int) -> None:
    """An event of the log happens: a job is submitted, starts, ends, or is cancelled in the queue."""
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
def _hold_overtaken(jobs: Jobs, rules: Rules, state: State, job: int, start_s: int, ahead: int) -> None:
    """`job` starts at `start_s`: of the `ahead` jobs before it, those that could have started in its place are held."""
    for i in range(ahead):
        other = state.pending[i]
        if jobs.user[other] != jobs.user[job]:
            could = state.could_start_s[other]
            asks_less = jobs.size[other] <= jobs.size[job] and jobs.limit_s[other] <= jobs.limit_s[job]
            if (could != NONE and could < start_s) or (asks_less and not over_limit(jobs, rules, state, other, 0, 0)):
                state.held[other] = 1
