"""One scheduling pass with the rules that a record reveals, and the world that it looks at. Compiled.

A world is what a scheduler sees at an instant: who pends, who runs, what each user holds. It is either recorded (the
log of the jobs, as far as it goes: `simulator.recorded.follow`) or simulated (`simulator.recorded.free`); the
pass is the same.

The pass takes the pending jobs by falling priority. A job whose user holds `max_jobs` jobs or would hold more than
`max_nodes` nodes (those ahead in this pass included; a single wider job is let through) is passed over. The others
get, one after the other, the earliest place in the profile of free nodes that delays none before them, planned on time
limits (conservative backfill, which is what Slurm's backfill does: sched_config.html). A job whose place is now may
start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.record import NEVER, Int64s

PENDING, RUNNING, BUSY, CEILING, PASS = 0, 1, 2, 3, 4  # entries of World.scalars
NONE = -1


class Jobs(NamedTuple):
    """Columns of the record, int64, shape (jobs,)."""

    submit_s: Int64s
    size: Int64s
    limit_s: Int64s
    user: Int64s
    key: Int64s  # falling priority; equal keys in order of row


class Rules(NamedTuple):
    """The mechanisms, all integers; `simulator.recorded.parameters` says what each means and fits them."""

    nodes: int  # usable nodes where window_s is 0
    window_s: int  # usable nodes are the most in use over so long before now
    stall_s: int  # a job that could start and did not for so long shows that nodes are out of service; 0 off
    max_jobs: int
    max_nodes: int
    overtaken: int  # 1: jobs that were overtaken are held
    siblings: int  # 1: a job waits for its user's held jobs ahead that ask for no more than it does


class World(NamedTuple):
    """int64 arrays; `scalars` holds how much of the lists is used."""

    pending: Int64s  # rows by falling priority
    running: Int64s  # rows by rising expected end
    start_s: Int64s  # (jobs,) start of the running ones
    user_jobs: Int64s  # (users,)
    user_nodes: Int64s  # (users,)
    could_start_s: Int64s  # (jobs,) since when the pass would start it, NONE where it would not
    held: Int64s  # (jobs,) 1: evidently kept from starting by what the log does not show
    scalars: Int64s  # PENDING, RUNNING, BUSY, CEILING (usable nodes are at most that), PASS (passes made)


class Scratch(NamedTuple):
    """Working memory of a pass; means nothing between passes."""

    time_s: Int64s  # (steps,)
    free: Int64s  # (steps,)
    ahead_jobs: Int64s  # (users,)
    ahead_nodes: Int64s  # (users,)
    placed: Int64s  # (jobs,) the pass that placed the job now


def new_world(jobs: int, users: int) -> World:
    """An empty world with room for every job."""
    scalars = np.zeros(5, np.int64)
    scalars[CEILING] = NEVER
    lists = (np.zeros(jobs, np.int64), np.zeros(jobs, np.int64), np.zeros(jobs, np.int64))
    users = max(users, 1)
    held = (np.full(jobs, NONE, np.int64), np.zeros(jobs, np.int64))
    return World(*lists, np.zeros(users, np.int64), np.zeros(users, np.int64), *held, scalars)


def new_scratch(jobs: int, users: int) -> Scratch:
    """Room for a step at each running job's expected end and two for each reservation."""
    steps, users = 3 * jobs + 4, max(users, 1)
    profile = (np.zeros(steps, np.int64), np.zeros(steps, np.int64))
    return Scratch(*profile, np.zeros(users, np.int64), np.zeros(users, np.int64), np.zeros(jobs, np.int64))


@kernel
def goes_ahead(jobs: Jobs, first: int, second: int) -> bool:
    """Whether row `first` comes before row `second` in the queue."""
    return bool(jobs.key[first] > jobs.key[second] or (jobs.key[first] == jobs.key[second] and first < second))


@kernel
def enter(jobs: Jobs, world: World, job: int) -> None:
    """Put a job into the queue."""
    i = world.scalars[PENDING]
    while i > 0 and goes_ahead(jobs, job, world.pending[i - 1]):
        world.pending[i] = world.pending[i - 1]
        i -= 1
    world.pending[i] = job
    world.scalars[PENDING] += 1
    world.could_start_s[job], world.held[job] = NONE, 0


@kernel
def leave(world: World, job: int) -> int:
    """Take a job out of the queue; returns how many were ahead of it. One that is not there: all of them."""
    count = world.scalars[PENDING]
    at = 0
    while at < count and world.pending[at] != job:
        at += 1
    if at < count:
        for i in range(at, count - 1):
            world.pending[i] = world.pending[i + 1]
        world.scalars[PENDING] = count - 1
    return int(at)


@kernel
def begin(jobs: Jobs, world: World, job: int, start_s: int) -> None:
    """A job starts to hold its nodes."""
    world.start_s[job] = start_s
    expected_end = start_s + jobs.limit_s[job]
    i = world.scalars[RUNNING]
    while i > 0 and world.start_s[world.running[i - 1]] + jobs.limit_s[world.running[i - 1]] > expected_end:
        world.running[i] = world.running[i - 1]
        i -= 1
    world.running[i] = job
    world.scalars[RUNNING] += 1
    _holds(jobs, world, job, 1)


@kernel
def finish(jobs: Jobs, world: World, job: int) -> None:
    """A running job gives its nodes back."""
    last = world.scalars[RUNNING] - 1
    i = 0
    while world.running[i] != job:
        i += 1
    for k in range(i, last):
        world.running[k] = world.running[k + 1]
    world.scalars[RUNNING] = last
    _holds(jobs, world, job, -1)


@kernel
def _holds(jobs: Jobs, world: World, job: int, sign: int) -> None:
    world.scalars[BUSY] += sign * jobs.size[job]
    world.user_jobs[jobs.user[job]] += sign
    world.user_nodes[jobs.user[job]] += sign * jobs.size[job]


@kernel
def over_limit(jobs: Jobs, rules: Rules, world: World, job: int, ahead_jobs: int, ahead_nodes: int) -> bool:
    """Whether the user's limits keep the job back, with so many jobs and nodes of the user's counted on top."""
    user, size = jobs.user[job], jobs.size[job]
    allowed = max(rules.max_nodes, size)
    return bool(
        world.user_jobs[user] + ahead_jobs >= rules.max_jobs or world.user_nodes[user] + ahead_nodes + size > allowed
    )


@kernel
def make_pass(jobs: Jobs, rules: Rules, world: World, scratch: Scratch, now: int, usable: int, target: int) -> bool:
    """One pass at `now` with `usable` nodes: sets `could_start_s`, says whether `target` (a row, or NONE) may start.

    The pass ends at the target, which need not be in the queue.
    """
    scalars, pending = world.scalars, world.pending
    scalars[PASS] += 1
    for i in range(scalars[PENDING]):
        user = jobs.user[pending[i]]
        scratch.ahead_jobs[user] = scratch.ahead_nodes[user] = 0
    if target != NONE:
        scratch.ahead_jobs[jobs.user[target]] = scratch.ahead_nodes[jobs.user[target]] = 0
    free = usable - scalars[BUSY]
    steps = 0  # of the profile, which is made when the first job does not fit
    i = 0
    while i <= scalars[PENDING]:
        if target != NONE and (i == scalars[PENDING] or goes_ahead(jobs, target, pending[i])):
            job = target
        elif i == scalars[PENDING]:
            return False
        else:
            job = pending[i]
        i += 1
        user, size = jobs.user[job], jobs.size[job]
        if job != target and world.held[job] == 1:
            if rules.siblings == 1 and target != NONE and asks_no_more(jobs, job, target):
                return False
            continue
        if over_limit(jobs, rules, world, job, scratch.ahead_jobs[user], scratch.ahead_nodes[user]):
            if job == target:
                return False
            world.could_start_s[job] = NONE
            continue
        if steps == 0 and size > free:
            steps = _profile(jobs, world, scratch, now, usable, i - 1)
        place = now if steps == 0 else _earliest(scratch, steps, size, jobs.limit_s[job])
        if job == target:
            return bool(place == now)
        scratch.ahead_jobs[user] += 1
        scratch.ahead_nodes[user] += size
        if place == now:
            free -= size
            scratch.placed[job] = scalars[PASS]
            if world.could_start_s[job] == NONE:
                world.could_start_s[job] = now
        else:
            world.could_start_s[job] = NONE
        if steps > 0 and place < NEVER:
            steps = _reserve(scratch, steps, place, place + jobs.limit_s[job], size)
        if free <= 0:
            if target == NONE:
                for k in range(i, scalars[PENDING]):
                    world.could_start_s[pending[k]] = NONE
            return False
    return False


@kernel
def asks_no_more(jobs: Jobs, first: int, second: int) -> bool:
    """Whether `first` is of the same user as `second` and asks for neither more nodes nor a longer limit."""
    return bool(
        jobs.user[first] == jobs.user[second]
        and jobs.size[first] <= jobs.size[second]
        and jobs.limit_s[first] <= jobs.limit_s[second]
    )


@kernel
def _profile(jobs: Jobs, world: World, scratch: Scratch, now: int, usable: int, ahead: int) -> int:
    """Free nodes over time from the expected ends; then the jobs that this pass placed now. Returns its steps."""
    time_s, free = scratch.time_s, scratch.free
    time_s[0], free[0] = now, usable - world.scalars[BUSY]
    steps = 1
    for i in range(world.scalars[RUNNING]):
        job = world.running[i]
        expected_end = max(world.start_s[job] + jobs.limit_s[job], now + 1)  # late ones end at any moment
        if time_s[steps - 1] != expected_end:
            time_s[steps], free[steps] = expected_end, free[steps - 1]
            steps += 1
        free[steps - 1] += jobs.size[job]
    for i in range(ahead):
        job = world.pending[i]
        if scratch.placed[job] == world.scalars[PASS]:
            steps = _reserve(scratch, steps, now, now + jobs.limit_s[job], jobs.size[job])
    return steps


@kernel
def _earliest(scratch: Scratch, steps: int, size: int, limit_s: int) -> int:
    """The first step at which `size` nodes are free for `limit_s`, or NEVER (wider than the cluster)."""
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
def _reserve(scratch: Scratch, steps: int, from_s: int, until_s: int, size: int) -> int:
    """Take `size` nodes from the profile between two times; returns its steps."""
    steps = _step_at(scratch, steps, from_s)
    steps = _step_at(scratch, steps, until_s)
    for i in range(steps):
        if from_s <= scratch.time_s[i] < until_s:
            scratch.free[i] -= size
    return steps


@kernel
def _step_at(scratch: Scratch, steps: int, time_s: int) -> int:
    at = steps
    while scratch.time_s[at - 1] > time_s:
        at -= 1
    if scratch.time_s[at - 1] == time_s:
        return steps
    for i in range(steps, at, -1):
        scratch.time_s[i], scratch.free[i] = scratch.time_s[i - 1], scratch.free[i - 1]
    scratch.time_s[at], scratch.free[at] = time_s, scratch.free[at - 1]
    return steps + 1
