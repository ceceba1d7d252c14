"""One scheduling pass under the rules that a record reveals: find the pending jobs that may start now. Compiled.

The pass takes the pending jobs in queue order. It skips held jobs, and jobs whose user runs `max_jobs` jobs or would
hold more than `max_nodes` nodes. These counts include jobs placed before in this pass; a single wider job is allowed.
Every other job gets the earliest place in the profile of free nodes that delays no job before it, planned by time
limits (conservative backfill, as in Slurm: sched_config.html). A job whose place is now may start; the pass starts no
job. `RecordedRules` may limit how many jobs are planned and how far ahead, or forbid jobs to overtake.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.record import NEVER, NONE
from simulator.recorded.state import (
    BUSY,
    PENDING,
    RUNNING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    asks_no_more,
    goes_ahead,
    over_limit,
    reorder,
)
from traces.arrays import Int64s


class PassMemory(NamedTuple):
    """Working memory of a pass, int64. It has no meaning between passes, so states of one thread may share it."""

    time_s: Int64s  # (steps,) the profile: from time_s[i] on ...
    free: Int64s  # (steps,) ... free[i] nodes are free
    placed_jobs: Int64s  # (users,) jobs that the pass has placed
    placed_nodes: Int64s  # (users,) their nodes
    placed_now: Int64s  # (jobs,) number of the last pass in which the job could start
    passes: Int64s  # (1,) passes made in this memory: the number of the current one


def new_scratch(jobs: int, users: int) -> PassMemory:
    """Allocate one step for each running job's expected end and two for each reservation."""
    steps, users = 3 * jobs + 4, max(users, 1)
    sizes = (steps, steps, users, users, jobs, 1)
    return PassMemory(*(np.zeros(size, np.int64) for size in sizes))


@kernel
def may_start(scratch: PassMemory, job: int) -> bool:
    """Whether the last pass placed this pending job now."""
    return bool(scratch.placed_now[job] == scratch.passes[0])


@kernel
def make_pass(
    jobs: RecordedJobs, rules: RecordedRules, state: RecordedState, scratch: PassMemory,
    now: int, usable: int, target: int,
) -> bool:  # fmt: skip
    """Make a pass at `now` with `usable` nodes: set `could_start_s`; return whether `target` (a row or NONE) may start.

    The target need not be in the queue, and the pass ends at it. `may_start` gives the result for other jobs.

    Over 50 lines: what can become of a job in the order in which it is tried.
    """
    scalars, pending = state.scalars, state.pending
    if rules.order > 0:
        reorder(jobs, state, rules.order, now)
    _begin_pass(jobs, state, scratch, target)
    free = usable - scalars[BUSY]
    steps = 0  # of the profile, which is built when the first job does not fit
    i, planned = 0, 0
    while i <= scalars[PENDING]:
        if target != NONE and (i == scalars[PENDING] or goes_ahead(state, target, pending[i])):
            job = target
        elif i == scalars[PENDING]:
            return False
        else:
            job = pending[i]
        i += 1
        user, size = jobs.user[job], jobs.size[job]
        if job != target and state.held[job] == 1:
            if rules.siblings == 1 and target != NONE and asks_no_more(jobs, job, target):
                return False
            continue
        if over_limit(jobs, rules, state, job, scratch.placed_jobs[user], scratch.placed_nodes[user]):
            if job == target:
                return False
            state.could_start_s[job] = NONE
            continue
        if planned >= rules.depth:
            return _end_pass(state, i - 1, target)
        if scratch.placed_jobs[user] >= rules.user_depth:
            if job == target:
                return False
            state.could_start_s[job] = NONE
            continue
        planned += 1
        if steps == 0 and size > free:
            steps = _profile(jobs, state, scratch, now, usable, i - 1)
        place = now if steps == 0 else _earliest(scratch, steps, size, jobs.limit_s[job])
        if job == target:
            return bool(place == now)
        scratch.placed_jobs[user] += 1
        scratch.placed_nodes[user] += size
        if place == now:
            free -= size
            scratch.placed_now[job] = scratch.passes[0]
            if state.could_start_s[job] == NONE:
                state.could_start_s[job] = now
        else:
            state.could_start_s[job] = NONE
            if rules.backfill == 0:
                return _end_pass(state, i, target)
        if steps > 0 and place < NEVER and place - now <= rules.plan_s:
            steps = _reserve(scratch, steps, place, place + jobs.limit_s[job], size)
        if free <= 0:
            return _end_pass(state, i, target)
    return False


@kernel
def _end_pass(state: RecordedState, first: int, target: int) -> bool:
    """End a pass before the pending jobs from position `first` on, none of which may start."""
    if target == NONE:
        for k in range(first, state.scalars[PENDING]):
            state.could_start_s[state.pending[k]] = NONE
    return False


@kernel
def _begin_pass(jobs: RecordedJobs, state: RecordedState, scratch: PassMemory, target: int) -> None:
    """Begin a pass, in which no job is placed yet."""
    scratch.passes[0] += 1
    for i in range(state.scalars[PENDING]):
        user = jobs.user[state.pending[i]]
        scratch.placed_jobs[user] = scratch.placed_nodes[user] = 0
    if target != NONE:
        scratch.placed_jobs[jobs.user[target]] = scratch.placed_nodes[jobs.user[target]] = 0


@kernel
def _profile(jobs: RecordedJobs, state: RecordedState, scratch: PassMemory, now: int, usable: int, ahead: int) -> int:
    """Build the profile of free nodes by the running jobs' limits, less the jobs placed now; return its steps.

    `ahead` is the number of pending jobs that the pass has processed.
    """
    time_s, free = scratch.time_s, scratch.free
    time_s[0], free[0] = now, usable - state.scalars[BUSY]
    steps = 1
    for i in range(state.scalars[RUNNING]):
        job = state.running[i]
        expected_end = max(state.start_s[job] + jobs.limit_s[job], now + 1)  # past its limit it may end at any moment
        if time_s[steps - 1] != expected_end:
            time_s[steps], free[steps] = expected_end, free[steps - 1]
            steps += 1
        free[steps - 1] += jobs.size[job]
    for i in range(ahead):
        job = state.pending[i]
        if may_start(scratch, job):
            steps = _reserve(scratch, steps, now, now + jobs.limit_s[job], jobs.size[job])
    return steps


@kernel
def _earliest(scratch: PassMemory, steps: int, size: int, limit_s: int) -> int:
    """Return the first step at which `size` nodes are free for `limit_s`, or NEVER (wider than the cluster)."""
    i = 0
    while i < steps:
        k = i
        while k < steps and scratch.free[k] >= size and (k == i or scratch.time_s[k] < scratch.time_s[i] + limit_s):
            k += 1
        if k > i and (k == steps or scratch.time_s[k] >= scratch.time_s[i] + limit_s):
            return int(scratch.time_s[i])
        i = k + 1
    return NEVER


@kernel
def _reserve(scratch: PassMemory, steps: int, from_s: int, until_s: int, size: int) -> int:
    """Reserve `size` nodes in the profile between two times; return its steps."""
    steps = _step_at(scratch, steps, from_s)
    steps = _step_at(scratch, steps, until_s)
    for i in range(steps):
        if from_s <= scratch.time_s[i] < until_s:
            scratch.free[i] -= size
    return steps


@kernel
def _step_at(scratch: PassMemory, steps: int, time_s: int) -> int:
    """Ensure that a step of the profile begins at `time_s`; return its steps."""
    at = steps
    while scratch.time_s[at - 1] > time_s:
        at -= 1
    if scratch.time_s[at - 1] == time_s:
        return steps
    for i in range(steps, at, -1):
        scratch.time_s[i], scratch.free[i] = scratch.time_s[i - 1], scratch.free[i - 1]
    scratch.time_s[at], scratch.free[at] = time_s, scratch.free[at - 1]
    return steps + 1
