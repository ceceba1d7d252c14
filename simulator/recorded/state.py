"""The state of the recorded cluster at an instant, and its transitions: jobs enter, leave, begin and finish. Compiled.

The state knows no clock and no scheduler. The log (`simulator.recorded.follow`) or a simulation
(`simulator.recorded.forked`, `simulator.recorded.free`) fills it, and the scheduling pass (`simulator.recorded.passes`)
reads it. It also remembers the latest starts and ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recent import RecentJobs, copy_recent, new_recent, remember_end, remember_start
from simulator.recorded.record import NEVER, NONE
from traces.arrays import Int64s

PENDING, RUNNING, BUSY, CEILING, COUNTED = 0, 1, 2, 3, 4  # entries of RecordedState.scalars
_UTILITY_STEPS = 1e6  # utilities are compared as integers
ORDERS = (  # of the queue (`reorder`)
    "first come, first served",
    "wait / limit (Moab's expansion factor)",
    "(wait / limit)^3 x nodes (Cobalt's wfp)",
    "wait / limit / log2 of nodes (Cobalt's unicef)",
)


class RecordedJobs(NamedTuple):
    """The requests of the jobs, int64, shape (jobs,)."""

    submit_s: Int64s  # epoch s, rising
    size: Int64s  # nodes
    limit_s: Int64s  # wall-clock limit, s
    user: Int64s
    key: Int64s  # order in the queue: falling key, equal keys by row


class RecordedRules(NamedTuple):
    """The settings of the mechanisms, all integers; `simulator.recorded.parameters` defines and fits them."""

    nodes: int  # usable nodes if window_s is 0
    window_s: int  # usable nodes are the most in use during the last window_s
    stall_s: int  # a startable job that pends for this long shows that nodes are out of service; 0: off
    max_jobs: int  # running jobs of a user
    max_nodes: int  # nodes held by a user; a single wider job is allowed
    overtaken: int  # 1: jobs that were overtaken are held
    siblings: int  # 1: a job waits for its user's held jobs ahead that ask for no more than it does
    backfill: int = 1  # 0: a job that cannot start keeps every job behind it waiting
    depth: int = NEVER  # pending jobs that a pass plans (bf_max_job_test of slurm.conf)
    user_depth: int = NEVER  # of one user (bf_max_job_user)
    plan_s: int = NEVER  # a place further ahead than this is not reserved (bf_window)
    order: int = 0  # of the queue, a position in ORDERS; a target beyond the record needs the first


class RecordedState(NamedTuple):
    """The pending and running jobs, and what each user holds; int64 arrays."""

    pending: Int64s  # (jobs,) rows in queue order; the first scalars[PENDING] are used
    running: Int64s  # (jobs,) rows by rising start + limit; the first scalars[RUNNING] are used
    submit_s: Int64s  # (jobs,) from `RecordedJobs`, or the submission of a job beyond the record
    key: Int64s  # (jobs,) from `RecordedJobs`, or the key of a job beyond the record at its submission
    start_s: Int64s  # (jobs,) starts of running jobs
    end_s: Int64s  # (jobs,) true ends of running jobs, which no policy may see
    counted: Int64s  # (jobs,) rows that still count against their users' limits although their nodes are free
    user_jobs: Int64s  # (users,) running jobs and counted jobs
    user_nodes: Int64s  # (users,) their nodes
    own_max_jobs: Int64s  # (users,) as `RecordedRules.max_jobs`, of a single user; the lower of the two holds
    own_max_nodes: Int64s  # (users,) the same for `max_nodes`
    could_start_s: Int64s  # (jobs,) instant since which the pass would start it, NONE if it would not
    held: Int64s  # (jobs,) 1: kept from starting by something that the log does not show
    scalars: Int64s  # PENDING, RUNNING, COUNTED (jobs), BUSY (nodes in use), CEILING (most that are usable, or NEVER)
    recent: RecentJobs


def new_state(jobs: RecordedJobs, users: int, remembered: int = 0) -> RecordedState:
    """Return an empty state with room for every job and for `users` users.

    It remembers the last `remembered` starts and ends.
    """
    count, users = len(jobs.submit_s), max(users, 1)
    scalars = np.zeros(5, np.int64)
    scalars[CEILING] = NEVER
    return RecordedState(
        pending=np.zeros(count, np.int64),
        running=np.zeros(count, np.int64),
        submit_s=jobs.submit_s.copy(),
        key=jobs.key.copy(),
        start_s=np.zeros(count, np.int64),
        end_s=np.zeros(count, np.int64),
        counted=np.zeros(count, np.int64),
        user_jobs=np.zeros(users, np.int64),
        user_nodes=np.zeros(users, np.int64),
        own_max_jobs=np.full(users, NEVER, np.int64),
        own_max_nodes=np.full(users, NEVER, np.int64),
        could_start_s=np.full(count, NONE, np.int64),
        held=np.zeros(count, np.int64),
        scalars=scalars,
        recent=new_recent(remembered),
    )


@kernel
def goes_ahead(state: RecordedState, first: int, second: int) -> bool:
    """Whether row `first` comes before row `second` in the queue."""
    return bool(state.key[first] > state.key[second] or (state.key[first] == state.key[second] and first < second))


@kernel
def asks_no_more(jobs: RecordedJobs, first: int, second: int) -> bool:
    """Whether `first` is of the same user as `second` and asks for neither more nodes nor a longer limit."""
    return bool(
        jobs.user[first] == jobs.user[second]
        and jobs.size[first] <= jobs.size[second]
        and jobs.limit_s[first] <= jobs.limit_s[second]
    )


@kernel
def over_limit(
    jobs: RecordedJobs, rules: RecordedRules, state: RecordedState, job: int, more_jobs: int, more_nodes: int
) -> bool:
    """Whether the user's limits hold the job back if the user had `more_jobs` and `more_nodes` more than now."""
    user, size = jobs.user[job], jobs.size[job]
    allowed = max(min(rules.max_nodes, state.own_max_nodes[user]), size)
    most_jobs = min(rules.max_jobs, state.own_max_jobs[user])
    return bool(state.user_jobs[user] + more_jobs >= most_jobs or state.user_nodes[user] + more_nodes + size > allowed)


@kernel
def enter(state: RecordedState, job: int) -> None:
    """Put a job into the queue."""
    i = state.scalars[PENDING]
    while i > 0 and goes_ahead(state, job, state.pending[i - 1]):
        state.pending[i] = state.pending[i - 1]
        i -= 1
    state.pending[i] = job
    state.scalars[PENDING] += 1
    state.could_start_s[job], state.held[job] = NONE, 0


@kernel
def reorder(jobs: RecordedJobs, state: RecordedState, order: int, now: int) -> None:
    """Order the queue by the utility that the pending jobs have at `now`, for any but the first of ORDERS.

    Utilities of waiting time over time limit: Moab's expansion factor (Administrator Guide 9.0.1, Job Priority
    Factors), and Cobalt's wfp and unicef (Argonne, Cobalt wiki, Utility Functions). The waiting time is `now` less the
    first submission plus `jobs.key`, which is first come, first served with the seconds that a change adds.
    """
    count, pending = state.scalars[PENDING], state.pending
    for i in range(count):
        job = pending[i]
        utility = (jobs.key[job] + now - jobs.submit_s[0]) / max(jobs.limit_s[job], 1)
        if order == 2:
            utility *= jobs.size[job] ** (1 / 3)  # orders as the cube of the rest times the nodes
        elif order == 3:
            utility /= max(np.ceil(np.log2(jobs.size[job])), 6.0) - 5.0
        state.key[job] = int(_UTILITY_STEPS * utility)
    for i in range(1, count):
        job, at = pending[i], i
        while at > 0 and goes_ahead(state, job, pending[at - 1]):
            pending[at] = pending[at - 1]
            at -= 1
        pending[at] = job


@kernel
def leave(state: RecordedState, job: int) -> int:
    """Remove a job from the queue. Returns the number of jobs ahead of it; all pending jobs if it is not queued."""
    count = state.scalars[PENDING]
    at = 0
    while at < count and state.pending[at] != job:
        at += 1
    if at < count:
        for i in range(at, count - 1):
            state.pending[i] = state.pending[i + 1]
        state.scalars[PENDING] = count - 1
    return int(at)


@kernel
def begin(jobs: RecordedJobs, state: RecordedState, job: int, start_s: int, end_s: int) -> None:
    """Start a job at `start_s`; it holds its nodes from now on and will end at `end_s`."""
    state.start_s[job], state.end_s[job] = start_s, end_s
    expected_end = start_s + jobs.limit_s[job]
    i = state.scalars[RUNNING]
    while i > 0 and state.start_s[state.running[i - 1]] + jobs.limit_s[state.running[i - 1]] > expected_end:
        state.running[i] = state.running[i - 1]
        i -= 1
    state.running[i] = job
    state.scalars[RUNNING] += 1
    state.scalars[BUSY] += jobs.size[job]
    _count(jobs, state, job, 1)
    remember_start(state.recent, job, state.submit_s[job], start_s, jobs.size[job])


@kernel
def finish(jobs: RecordedJobs, state: RecordedState, job: int, end_s: int) -> None:
    """Finish a running job that ended at `end_s` and free its nodes."""
    last = state.scalars[RUNNING] - 1
    i = 0
    while state.running[i] != job:
        i += 1
    for k in range(i, last):
        state.running[k] = state.running[k + 1]
    state.scalars[RUNNING] = last
    state.scalars[BUSY] -= jobs.size[job]
    _count(jobs, state, job, -1)
    remember_end(state.recent, job, end_s, end_s - state.start_s[job], jobs.limit_s[job])


@kernel
def still_count(jobs: RecordedJobs, state: RecordedState, job: int) -> None:
    """Keep counting a finished job against its user's limits until `count_no_more`."""
    state.counted[state.scalars[COUNTED]] = job
    state.scalars[COUNTED] += 1
    _count(jobs, state, job, 1)


@kernel
def count_no_more(jobs: RecordedJobs, state: RecordedState, job: int) -> None:
    """Stop counting a job given to `still_count`; no effect for other jobs."""
    last = state.scalars[COUNTED] - 1
    for i in range(last + 1):
        if state.counted[i] == job:
            state.counted[i] = state.counted[last]
            state.scalars[COUNTED] = last
            _count(jobs, state, job, -1)
            return


@kernel
def _count(jobs: RecordedJobs, state: RecordedState, job: int, sign: int) -> None:
    state.user_jobs[jobs.user[job]] += sign
    state.user_nodes[jobs.user[job]] += sign * jobs.size[job]


@kernel
def copy_state(target: RecordedState, source: RecordedState, first_beyond: int) -> None:
    """Make `target` equal to `source`; both have room for the same jobs and users.

    `target` remembers as many starts and ends as `source`, or none. The cost grows with the pending, running and
    counted jobs, the users, the remembered starts and ends, and the rows from `first_beyond` on. These rows are beyond
    the record; their submission and key differ between states.
    """
    scalars = source.scalars
    for i in range(scalars[PENDING]):
        job = source.pending[i]
        target.pending[i] = job
        target.could_start_s[job], target.held[job] = source.could_start_s[job], source.held[job]
    for i in range(scalars[RUNNING]):
        job = source.running[i]
        target.running[i] = job
        target.start_s[job], target.end_s[job] = source.start_s[job], source.end_s[job]
    for i in range(scalars[COUNTED]):
        target.counted[i] = source.counted[i]
    for job in range(first_beyond, len(source.key)):
        target.submit_s[job], target.key[job] = source.submit_s[job], source.key[job]
    for user in range(len(source.user_jobs)):
        target.user_jobs[user], target.user_nodes[user] = source.user_jobs[user], source.user_nodes[user]
    for i in range(len(scalars)):
        target.scalars[i] = scalars[i]
    copy_recent(target.recent, source.recent)
