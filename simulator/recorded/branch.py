"""The recorded world as it goes on: it follows the log until a job is submitted, and is simulated from then on.

    branch = new_branch(cluster)
    advance(cluster, branch, t - 1, NONE)      # the log is followed
    copy_branch(cluster, other, branch)
    submit(cluster, other, row, t)             # `other` leaves the log at t
    start = advance(cluster, other, NEVER, row)

Compiled, and callable from compiled code. The clock: what the log says of a second is known a second later. Then, and
at every tenth minute while the log is followed, there is a pass. Once the log is left there is one a second after every
event of another job and after every simulated end, when nodes that were out come back (`forked.OUT_S` after the log
was left), and at the instant at which the job submitted last is given up (`follow.HORIZON_S` after its submission).
After the last event of the log nobody arrives any more, and as many nodes are usable as were then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel, kernel_inline
from simulator.recorded.follow import HORIZON_S, TICK_S, look, take
from simulator.recorded.forked import OUT_S, finish_before, start_placed, tell
from simulator.recorded.log import Log, log_of, most_in_use, next_of_others
from simulator.recorded.passes import Scratch, make_pass, new_scratch
from simulator.recorded.record import NEVER, NONE, SUBMITTED, Events, Int64s, Record
from simulator.recorded.state import BUSY, CEILING, PENDING, RUNNING, Jobs, Rules, State, copy_state, enter, new_state

# Entries of Branch.scalars.
TAKEN = 0  # events of the log that have happened, those passed over included
ARRIVED = 1  # jobs of the record that have been submitted
LAST_PASS_S = 2  # instant of the last pass, NONE before the first
NEXT_PASS_S = 3  # instant of the next one; NEVER where nothing is left to happen
LEFT_S = 4  # when the log was left, NEVER while it is followed
OWN = 5  # the row of the record whose events are passed over: that which was submitted, or `pass_over` named; NONE
SUBMITTED_JOB = 6  # a job given to `submit` whose time has not come
SUBMITTED_S = 7  # that time; NEVER where there is no such job
GIVE_UP_S = 8  # when the job submitted last is given up, NEVER before the first
SCALARS = 9


class Beyond(NamedTuple):
    """Which key a job beyond the record gets at its submission: its own, else the usual one; and growth since origin.

    `simulator.recorded.parameters.jobs_of` says what a key is.
    """

    own: Int64s  # (jobs beyond the record,) for a submission at origin_s; NONE: the usual one
    usual: Int64s  # (jobs of the record + 1,) by how many of them have arrived, for a submission at origin_s
    key_per_s: float  # added for each second that the submission is later
    origin_s: int  # epoch s


class Cluster(NamedTuple):
    """What never changes, and the working memory of one thread."""

    jobs: Jobs  # rows 0 .. len(beyond.usual) - 2 are the record's, those beyond it start only through `submit`
    beyond: Beyond
    rules: Rules
    log: Log
    scratch: Scratch


class Branch(NamedTuple):
    """What changes."""

    state: State
    scalars: Int64s  # (SCALARS,) TAKEN .. GIVE_UP_S


def new_cluster(record: Record, events: Events, jobs: Jobs, rules: Rules, beyond: Beyond | None = None) -> Cluster:
    """The cluster of a record and its events.

    `jobs` are the record's (`simulator.recorded.parameters.jobs_of`), then those beyond it, which run for their whole
    limit. Without `beyond` these come first, served first.
    """
    if beyond is None:
        origin_s = int(record.submit_s[0]) if len(record) else 0
        more = len(jobs.user) - len(record)
        beyond = Beyond(np.full(more, NONE), np.zeros(len(record) + 1, np.int64), -1.0, origin_s)
    users = int(jobs.user.max()) + 1 if len(jobs.user) else 0
    log = log_of(record, events, jobs.limit_s[len(record) :])
    return Cluster(jobs, beyond, rules, log, new_scratch(len(jobs.user), users))


def new_branch(cluster: Cluster, remembered: int = 0) -> Branch:
    """Before the first event of the log; the last `remembered` starts and ends will be known."""
    scalars = np.zeros(SCALARS, np.int64)
    scalars[LAST_PASS_S] = scalars[OWN] = scalars[SUBMITTED_JOB] = NONE
    scalars[LEFT_S] = scalars[SUBMITTED_S] = scalars[GIVE_UP_S] = NEVER
    scalars[NEXT_PASS_S] = cluster.log.time_s[0] + 1 if len(cluster.log.time_s) else NEVER
    return Branch(new_state(cluster.jobs, len(cluster.scratch.placed_jobs), remembered), scalars)


@kernel
def copy_branch(cluster: Cluster, target: Branch, source: Branch) -> None:
    """Make `target` equal to `source`; costs and conditions are those of `copy_state`."""
    copy_state(target.state, source.state, _first_beyond(cluster))
    for i in range(SCALARS):
        target.scalars[i] = source.scalars[i]


@kernel_inline
def _first_beyond(cluster: Cluster) -> int:
    """The first row that is not the record's."""
    return len(cluster.beyond.usual) - 1


@kernel
def pass_over(branch: Branch, row: int) -> None:
    """What is still to come of that row of the record does not happen; nothing where it has been submitted already."""
    if branch.scalars[ARRIVED] <= row:
        branch.scalars[OWN] = row


@kernel
def submit(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> None:
    """Row `job` will be submitted at `submit_s`, no earlier than the branch has advanced; the log is left then.

    A row beyond the record, or one row of the record at its recorded second, whose own events are then passed over.
    Only one submission may lie ahead of a branch.
    """
    scalars = branch.scalars
    scalars[SUBMITTED_JOB], scalars[SUBMITTED_S] = job, submit_s
    if job < _first_beyond(cluster):
        scalars[OWN] = job
    scalars[NEXT_PASS_S] = min(scalars[NEXT_PASS_S], submit_s + 1)


@kernel
def advance(cluster: Cluster, branch: Branch, until_s: int, watched: int) -> int:
    """Let everything happen up to and including `until_s`, or until `watched` (a row, or NONE) starts: its start.

    NONE when `until_s` is reached, when nothing is left to happen, or when `watched` is given up. After a start the
    branch has seen what is before that second, and the pass in it.
    """
    scalars = branch.scalars
    while scalars[NEXT_PASS_S] <= until_s and scalars[NEXT_PASS_S] < NEVER:
        now = scalars[NEXT_PASS_S]
        if pass_due(cluster, branch, watched):
            return int(now)
        if watched != NONE and now >= branch.state.submit_s[watched] + HORIZON_S:
            return NONE
    if scalars[NEXT_PASS_S] < NEVER:  # the pass is at least a second after what it waits for
        _happen(cluster, branch, until_s + 1)
    return NONE


@kernel
def until_submission(cluster: Cluster, branch: Branch, job: int) -> None:
    """Follow the log up to the submission of a row of the record: all that came before it, and not the row itself.

    Rows that are asked for one after the other rise.
    """
    log, state, scalars = cluster.log, branch.state, branch.scalars
    now = cluster.jobs.submit_s[job]
    advance(cluster, branch, now - 1, NONE)
    if scalars[NEXT_PASS_S] == now:
        pass_due(cluster, branch, NONE)
    while not (log.job[scalars[TAKEN]] == job and log.kind[scalars[TAKEN]] == SUBMITTED):
        take(cluster.jobs, cluster.rules, log, state, scalars[TAKEN])
        scalars[ARRIVED] += log.kind[scalars[TAKEN]] == SUBMITTED
        scalars[TAKEN] += 1


@kernel_inline
def pass_due(cluster: Cluster, branch: Branch, watched: int) -> bool:
    """Go on to the next pass; whether `watched` (a row, or NONE) starts in it."""
    jobs, rules, log, state, scratch = cluster.jobs, cluster.rules, cluster.log, branch.state, cluster.scratch
    scalars = branch.scalars
    now = scalars[NEXT_PASS_S]
    _happen(cluster, branch, now)
    starts = False
    if scalars[LEFT_S] == NEVER:
        look(jobs, rules, state, scratch, now, usable_nodes(cluster, branch, now), NONE)
    else:
        usable = usable_nodes(cluster, branch, now)
        if usable > state.scalars[BUSY]:
            make_pass(jobs, rules, state, scratch, now, usable, NONE)
            first_beyond, left_s = _first_beyond(cluster), scalars[LEFT_S]
            starts = start_placed(jobs, rules, log, state, scratch, first_beyond, left_s, now, watched)
    scalars[LAST_PASS_S], scalars[NEXT_PASS_S] = now, _next_pass_s(log, branch, now)
    return starts


@kernel_inline
def usable_nodes(cluster: Cluster, branch: Branch, now: int) -> int:
    """Usable nodes as known at `now`: the most in use lately, but no more than what nodes out have come to show.

    What they showed holds until more are in use while the log is followed, and for OUT_S after it was left.
    """
    scalars, busy, ceiling = branch.scalars, branch.state.scalars[BUSY], branch.state.scalars[CEILING]
    is_out = busy <= ceiling if scalars[LEFT_S] == NEVER else now < scalars[LEFT_S] + OUT_S
    log, taken = cluster.log, scalars[TAKEN]
    if taken == len(log.time_s) and taken > 0:
        now = min(now, log.time_s[taken - 1] + 1)
    usable = most_in_use(cluster.jobs, cluster.rules, log, now, taken, scalars[OWN])
    return int(min(usable, ceiling) if is_out else usable)


@kernel_inline
def _happen(cluster: Cluster, branch: Branch, before_s: int) -> None:
    """Everything before `before_s` happens, but for passes."""
    jobs, rules, log, state, scalars = cluster.jobs, cluster.rules, cluster.log, branch.state, branch.scalars
    count = len(log.time_s)
    if scalars[LEFT_S] == NEVER:
        until_s = min(before_s, scalars[SUBMITTED_S])
        while scalars[TAKEN] < count and log.time_s[scalars[TAKEN]] < until_s:
            take(jobs, rules, log, state, scalars[TAKEN])
            scalars[ARRIVED] += log.kind[scalars[TAKEN]] == SUBMITTED
            scalars[TAKEN] += 1
    if scalars[SUBMITTED_S] < before_s:
        _arrive(cluster, branch)
    if scalars[LEFT_S] < NEVER:
        finish_before(jobs, log, state, before_s)
        while scalars[TAKEN] < count and log.time_s[scalars[TAKEN]] < before_s:
            if log.job[scalars[TAKEN]] != scalars[OWN]:
                tell(jobs, log, state, scalars[TAKEN])
            scalars[ARRIVED] += log.kind[scalars[TAKEN]] == SUBMITTED
            scalars[TAKEN] += 1


@kernel_inline
def _arrive(cluster: Cluster, branch: Branch) -> None:
    """The job given to `submit` enters the queue; the first one leaves the log."""
    state, scalars = branch.state, branch.scalars
    job, submit_s = scalars[SUBMITTED_JOB], scalars[SUBMITTED_S]
    scalars[SUBMITTED_JOB], scalars[SUBMITTED_S] = NONE, NEVER
    scalars[LEFT_S] = min(scalars[LEFT_S], submit_s)
    scalars[GIVE_UP_S] = submit_s + HORIZON_S
    if job >= _first_beyond(cluster):
        state.submit_s[job], state.key[job] = submit_s, _key_beyond(cluster, branch, job, submit_s)
    enter(state, job)


@kernel_inline
def _key_beyond(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> int:
    """The key that a row beyond the record gets if it is submitted at `submit_s`."""
    beyond = cluster.beyond
    own = beyond.own[job - _first_beyond(cluster)]
    key = beyond.usual[branch.scalars[ARRIVED]] if own == NONE else own
    return int(key + int(np.rint(beyond.key_per_s * (submit_s - beyond.origin_s))))


@kernel
def place_of(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> int:
    """How many of the pending jobs would go ahead of a row beyond the record that is submitted at `submit_s`."""
    key, ahead = _key_beyond(cluster, branch, job, submit_s), 0
    while ahead < branch.state.scalars[PENDING] and branch.state.key[branch.state.pending[ahead]] >= key:
        ahead += 1
    return ahead


@kernel_inline
def _next_pass_s(log: Log, branch: Branch, now: int) -> int:
    """The instant of the first pass after `now`, when there was one; NEVER where nothing is left to happen."""
    state, scalars = branch.state, branch.scalars
    event = next_of_others(log, scalars[TAKEN], scalars[OWN])
    following = min(scalars[SUBMITTED_S], log.time_s[event] if event < len(log.time_s) else NEVER)
    if scalars[LEFT_S] == NEVER:
        if event < len(log.time_s):
            following = min(following, (now // TICK_S + 1) * TICK_S - 1)
        return int(min(following, NEVER - 1) + 1)
    for i in range(state.scalars[RUNNING]):
        following = min(following, state.end_s[state.running[i]])
    for instant in (scalars[LEFT_S] + OUT_S, scalars[GIVE_UP_S]):
        if now < instant:
            following = min(following, instant - 1)
    return int(min(following, NEVER - 1) + 1)
