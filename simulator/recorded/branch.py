"""A branch of the recorded world: it follows the log until a job is submitted, and is simulated from then on.

    branch = new_branch(cluster)
    advance(cluster, branch, t - 1, NONE)      # follow the log
    copy_branch(cluster, other, branch)
    submit(cluster, other, row, t)             # `other` leaves the log at t
    start = advance(cluster, other, NEVER, row)

Compiled, and callable from compiled code. The events of a second are known one second later. While a branch follows the
log, a pass happens then and at every tenth minute. After the branch leaves the log, passes happen

- one second after every event of another job and after every simulated end;
- when nodes that were out come back, `forked.OUT_S` after the branch left the log;
- when the job submitted last is given up, `follow.HORIZON_S` after its submission.

After the last event of the log no job arrives, and the number of usable nodes stays as it was then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel, kernel_inline
from simulator.recorded.follow import HORIZON_S, TICK_S, look, take
from simulator.recorded.forked import OUT_S, finish_before, observe_event, start_placed
from simulator.recorded.log import Log, log_of, most_in_use, next_of_others
from simulator.recorded.passes import PassMemory, make_pass, new_scratch
from simulator.recorded.record import NEVER, NONE, SUBMITTED, Events, RecordedTrace
from simulator.recorded.state import (
    BUSY,
    CEILING,
    PENDING,
    RUNNING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    copy_state,
    enter,
    new_state,
)
from traces.arrays import Int64s

# Entries of RecordedBranch.scalars.
TAKEN = 0  # events of the log that have happened, including those passed over
ARRIVED = 1  # jobs of the record that have been submitted
LAST_PASS_S = 2  # instant of the last pass, NONE before the first
NEXT_PASS_S = 3  # instant of the next pass; NEVER if nothing more can happen
LEFT_S = 4  # when the branch left the log, NEVER while it follows the log
OWN = 5  # the row of the record whose events are passed over, given to `submit` or `pass_over`; NONE
SUBMITTED_JOB = 6  # a job given to `submit` whose submission is still ahead
SUBMITTED_S = 7  # that submission; NEVER if there is no such job
GIVE_UP_S = 8  # when the job submitted last is given up, NEVER before the first
SCALARS = 9


class Beyond(NamedTuple):
    """The keys of jobs beyond the record at their submission: their own keys, else the usual key.

    `simulator.recorded.parameters.jobs_of` defines a key.
    """

    own: Int64s  # (jobs beyond the record,) key for a submission at origin_s; NONE: the usual key
    usual: Int64s  # (jobs of the record + 1,) usual key at origin_s, by the number of arrived jobs
    key_per_s: float  # added for each second between origin_s and the submission
    origin_s: int  # epoch s


class RecordedCluster(NamedTuple):
    """The constant data of a recorded world, and the working memory of one thread."""

    jobs: RecordedJobs  # rows 0 .. len(beyond.usual) - 2 are the record's; later rows start only through `submit`
    beyond: Beyond
    rules: RecordedRules
    log: Log
    scratch: PassMemory


class RecordedBranch(NamedTuple):
    """What changes."""

    state: RecordedState
    scalars: Int64s  # (SCALARS,) TAKEN .. GIVE_UP_S


def new_cluster(
    record: RecordedTrace, events: Events, jobs: RecordedJobs, rules: RecordedRules, beyond: Beyond | None = None
) -> RecordedCluster:
    """Build the cluster of a record and its events.

    `jobs` holds the jobs of the record (`simulator.recorded.parameters.jobs_of`), then jobs beyond it, which run for
    their whole limit. Without `beyond` the latter are served first come, first served.
    """
    if beyond is None:
        origin_s = int(record.submit_s[0]) if len(record) else 0
        more = len(jobs.user) - len(record)
        beyond = Beyond(np.full(more, NONE), np.zeros(len(record) + 1, np.int64), -1.0, origin_s)
    users = int(jobs.user.max()) + 1 if len(jobs.user) else 0
    log = log_of(record, events, jobs.limit_s[len(record) :])
    return RecordedCluster(jobs, beyond, rules, log, new_scratch(len(jobs.user), users))


def new_branch(cluster: RecordedCluster, remembered: int = 0) -> RecordedBranch:
    """Return a branch before the first event of the log; it remembers the last `remembered` starts and ends."""
    scalars = np.zeros(SCALARS, np.int64)
    scalars[LAST_PASS_S] = scalars[OWN] = scalars[SUBMITTED_JOB] = NONE
    scalars[LEFT_S] = scalars[SUBMITTED_S] = scalars[GIVE_UP_S] = NEVER
    scalars[NEXT_PASS_S] = cluster.log.time_s[0] + 1 if len(cluster.log.time_s) else NEVER
    return RecordedBranch(new_state(cluster.jobs, len(cluster.scratch.placed_jobs), remembered), scalars)


@kernel
def copy_branch(cluster: RecordedCluster, target: RecordedBranch, source: RecordedBranch) -> None:
    """Make `target` equal to `source`; cost and conditions are those of `copy_state`."""
    copy_state(target.state, source.state, _first_beyond(cluster))
    for i in range(SCALARS):
        target.scalars[i] = source.scalars[i]


@kernel_inline
def _first_beyond(cluster: RecordedCluster) -> int:
    """Return the first row beyond the record."""
    return len(cluster.beyond.usual) - 1


@kernel
def pass_over(branch: RecordedBranch, row: int) -> None:
    """Ignore the events of a row of the record from now on; no effect if it has been submitted already."""
    if branch.scalars[ARRIVED] <= row:
        branch.scalars[OWN] = row


@kernel
def submit(cluster: RecordedCluster, branch: RecordedBranch, job: int, submit_s: int) -> None:
    """Submit row `job` at `submit_s`, which the branch must not have passed; the branch leaves the log then.

    The row is beyond the record, or it is one row of the record at its recorded second, whose own events are then
    passed over. A branch takes one future submission at a time.
    """
    scalars = branch.scalars
    scalars[SUBMITTED_JOB], scalars[SUBMITTED_S] = job, submit_s
    if job < _first_beyond(cluster):
        scalars[OWN] = job
    scalars[NEXT_PASS_S] = min(scalars[NEXT_PASS_S], submit_s + 1)


@kernel
def advance(cluster: RecordedCluster, branch: RecordedBranch, until_s: int, watched: int) -> int:
    """Advance up to and including `until_s`, or until `watched` (a row, or NONE) starts; return its start.

    Returns NONE when `until_s` is reached, when nothing more can happen, or when `watched` is given up. After a start
    the branch has processed the events before that second and the pass in it.
    """
    scalars = branch.scalars
    while scalars[NEXT_PASS_S] <= until_s and scalars[NEXT_PASS_S] < NEVER:
        now = scalars[NEXT_PASS_S]
        if pass_due(cluster, branch, watched):
            return int(now)
        if watched != NONE and now >= branch.state.submit_s[watched] + HORIZON_S:
            return NONE
    if scalars[NEXT_PASS_S] < NEVER:  # a pass is at least one second after the event that causes it
        _happen(cluster, branch, until_s + 1)
    return NONE


@kernel
def until_submission(cluster: RecordedCluster, branch: RecordedBranch, job: int) -> None:
    """Follow the log up to the submission of a row of the record, without the submission itself.

    Call this for rising rows.
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
def pass_due(cluster: RecordedCluster, branch: RecordedBranch, watched: int) -> bool:
    """Advance to the next pass and make it; return whether `watched` (a row, or NONE) starts in it."""
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
def usable_nodes(cluster: RecordedCluster, branch: RecordedBranch, now: int) -> int:
    """Return the usable nodes as known at `now`: the most in recent use, capped by evidence of nodes out of service.

    While the branch follows the log, the cap holds until more nodes are in use; after that, for OUT_S.
    """
    scalars, busy, ceiling = branch.scalars, branch.state.scalars[BUSY], branch.state.scalars[CEILING]
    is_out = busy <= ceiling if scalars[LEFT_S] == NEVER else now < scalars[LEFT_S] + OUT_S
    log, taken = cluster.log, scalars[TAKEN]
    if taken == len(log.time_s) and taken > 0:
        now = min(now, log.time_s[taken - 1] + 1)
    usable = most_in_use(cluster.jobs, cluster.rules, log, now, taken, scalars[OWN])
    return int(min(usable, ceiling) if is_out else usable)


@kernel_inline
def _happen(cluster: RecordedCluster, branch: RecordedBranch, before_s: int) -> None:
    """Process every event before `before_s` without passes."""
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
                observe_event(jobs, log, state, scalars[TAKEN])
            scalars[ARRIVED] += log.kind[scalars[TAKEN]] == SUBMITTED
            scalars[TAKEN] += 1


@kernel_inline
def _arrive(cluster: RecordedCluster, branch: RecordedBranch) -> None:
    """Put the job given to `submit` into the queue; at the first such job the branch leaves the log."""
    state, scalars = branch.state, branch.scalars
    job, submit_s = scalars[SUBMITTED_JOB], scalars[SUBMITTED_S]
    scalars[SUBMITTED_JOB], scalars[SUBMITTED_S] = NONE, NEVER
    scalars[LEFT_S] = min(scalars[LEFT_S], submit_s)
    scalars[GIVE_UP_S] = submit_s + HORIZON_S
    if job >= _first_beyond(cluster):
        state.submit_s[job], state.key[job] = submit_s, key_beyond(cluster, branch, job, submit_s)
    enter(state, job)


@kernel_inline
def key_beyond(cluster: RecordedCluster, branch: RecordedBranch, job: int, submit_s: int) -> int:
    """Return the key of a row beyond the record that is submitted at `submit_s`."""
    beyond = cluster.beyond
    own = beyond.own[job - _first_beyond(cluster)]
    key = beyond.usual[branch.scalars[ARRIVED]] if own == NONE else own
    return int(key + int(np.rint(beyond.key_per_s * (submit_s - beyond.origin_s))))


@kernel
def place_of(cluster: RecordedCluster, branch: RecordedBranch, job: int, submit_s: int) -> int:
    """Count the pending jobs that would be ahead of a row beyond the record submitted at `submit_s`."""
    key, ahead = key_beyond(cluster, branch, job, submit_s), 0
    while ahead < branch.state.scalars[PENDING] and branch.state.key[branch.state.pending[ahead]] >= key:
        ahead += 1
    return ahead


@kernel_inline
def _next_pass_s(log: Log, branch: RecordedBranch, now: int) -> int:
    """Return the instant of the first pass after the pass at `now`; NEVER if nothing more can happen."""
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
