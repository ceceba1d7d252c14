"""Each job's start against the recorded state of the others: the causal form that an operator's tool could have.

For each job a private world holds the records of the other jobs from before the instant, and nothing of the job's own.
From the second after its submission, a second after every record of another job and at every tenth minute, the pass
of `simulator.calibration.passes` is asked whether the job would start; the first yes is its predicted start. What has
happened at or after that instant is not read: not the end or start of any job, nor the run time of one that runs.

What the record teaches on the way (each can be switched off, `Rules`):

  - usable nodes are the most that were in use over `window_s` before;
  - a pending job that the pass would have started `stall_s` ago, and that nobody overtook, shows that nodes are out
    of service: fewer than its size are usable beyond those in use. This holds until more are in use;
  - a pending job is held (by a dependency, a begin time, an operator: the log does not say) once it was overtaken: a
    job of another user behind it started although the pass would have started this one first, or although this one
    asks for neither more nodes nor a longer limit and its user is within the limits. It reserves nothing from then;
  - a job waits for its user's held jobs ahead of it that ask for no more than it does.

One thing must be said of this form: once the job has started in truth, the others' records leave its nodes idle, so
a prediction that has not come by then comes soon after. Being late is cheap here; being early is not.
"""

from __future__ import annotations

import numpy as np

from simulator.calibration.passes import (
    BUSY,
    CEILING,
    NONE,
    PASS,
    PENDING,
    RUNNING,
    Jobs,
    Rules,
    Scratch,
    World,
    begin,
    enter,
    finish,
    goes_ahead,
    leave,
    make_pass,
    new_scratch,
    new_world,
    over_limit,
)
from simulator.calibration.record import ENDED, NEVER, STARTED, SUBMITTED, Events, Int64s, Record
from simulator.compiled import kernel

TICK_S = 600  # a look although nothing happened: limits run out and reservations come near
HORIZON_S = 10 * 86400  # a job that has not started by then is given up at that wait


def informed_starts(
    record: Record, events: Events, jobs: Jobs, rules: Rules, from_s: int = 0, until_s: int = NEVER
) -> Int64s:
    """Predicted start of each job that ran and was submitted in [from_s, until_s), else NEVER; s, shape (jobs,).

    A job that no pass would start is given the last instant looked at: HORIZON_S after its submission, or the last
    record.
    """
    predicted = np.full(len(record), NEVER, np.int64)
    if not len(record):
        return predicted
    world, private = new_world(len(record), record.users), new_world(len(record), record.users)
    _informed(
        jobs, rules, record.start_s, events.time_s, events.job, events.kind, events.peak, events.started_at,
        events.ended_at, world, private, new_scratch(len(record), record.users), from_s, until_s, predicted,
    )  # fmt: skip
    return predicted


@kernel
def _informed(
    jobs: Jobs,
    rules: Rules,
    start_s: Int64s,
    time_s: Int64s,
    job_of: Int64s,
    kind_of: Int64s,
    peak: Int64s,
    started_at: Int64s,
    ended_at: Int64s,
    world: World,
    private: World,
    scratch: Scratch,
    from_s: int,
    until_s: int,
    predicted: Int64s,
) -> None:
    """The recorded world, and a private one for each job from the second after its submission."""
    count = len(time_s)
    taken, oldest = 0, 0  # events taken; the first event of the window
    now = time_s[0] + 1
    while True:
        before = taken
        while taken < count and time_s[taken] < now:
            taken += 1
        for k in range(before, taken):
            job = job_of[k]
            if kind_of[k] == SUBMITTED and start_s[job] < NEVER and from_s <= jobs.submit_s[job] < until_s:
                _copy(jobs, private, world, job)
                predicted[job] = _private_start(
                    jobs, rules, start_s, time_s, job_of, kind_of, peak, started_at[job], ended_at[job], private,
                    scratch, job, before, oldest, now,
                )  # fmt: skip
        for k in range(before, taken):
            _take(jobs, rules, world, start_s, job_of[k], kind_of[k])
        if taken == count or now > until_s:
            return
        while time_s[oldest] < now - rules.window_s:
            oldest += 1
        _look(jobs, rules, world, scratch, now, _most_in_use(rules, peak, oldest, taken, count, count, 0), NONE)
        now = min(time_s[taken] + 1, (now // TICK_S + 1) * TICK_S)


@kernel
def _private_start(
    jobs: Jobs,
    rules: Rules,
    start_s: Int64s,
    time_s: Int64s,
    job_of: Int64s,
    kind_of: Int64s,
    peak: Int64s,
    started_at: int,
    ended_at: int,
    world: World,
    scratch: Scratch,
    job: int,
    taken: int,
    oldest: int,
    now: int,
) -> int:
    """First instant from `now` on at which `job` may start in the record of the others.

    Only jobs ahead of it are in this world's queue: what is behind it cannot keep it.
    """
    count = len(time_s)
    while True:
        while taken < count and time_s[taken] < now:
            other = job_of[taken]
            if other != job and (kind_of[taken] != SUBMITTED or goes_ahead(jobs, other, job)):
                _take(jobs, rules, world, start_s, other, kind_of[taken])
            taken += 1
        while oldest < count and time_s[oldest] < now - rules.window_s:
            oldest += 1
        in_use = _most_in_use(rules, peak, oldest, taken, started_at, ended_at, jobs.size[job])
        if _look(jobs, rules, world, scratch, now, in_use, job):
            return now
        following = taken
        while following < count and job_of[following] == job:
            following += 1
        last = jobs.submit_s[job] + HORIZON_S
        if following == count or now >= last:
            return now
        now = min(time_s[following] + 1, (now // TICK_S + 1) * TICK_S, last)


@kernel
def _look(jobs: Jobs, rules: Rules, world: World, scratch: Scratch, now: int, usable: int, target: int) -> bool:
    """What the record has come to show about nodes out of service, then a pass."""
    scalars = world.scalars
    if scalars[BUSY] > scalars[CEILING]:
        scalars[CEILING] = NEVER
    if rules.stall_s > 0:
        for i in range(scalars[PENDING]):
            job = world.pending[i]
            since = world.could_start_s[job]
            if world.held[job] == 0 and since != NONE and now - since >= rules.stall_s:
                scalars[CEILING] = min(scalars[CEILING], scalars[BUSY] + jobs.size[job] - 1)
    return make_pass(jobs, rules, world, scratch, now, min(usable, scalars[CEILING]), target)


@kernel
def _take(jobs: Jobs, rules: Rules, world: World, start_s: Int64s, job: int, kind: int) -> None:
    """One record comes true."""
    if kind == SUBMITTED:
        enter(jobs, world, job)
    elif kind == ENDED:
        finish(jobs, world, job)
    else:
        ahead = leave(world, job)
        if kind == STARTED:
            if rules.overtaken == 1:
                _overtake(jobs, rules, world, start_s, job, ahead)
            begin(jobs, world, job, start_s[job])


@kernel
def _overtake(jobs: Jobs, rules: Rules, world: World, start_s: Int64s, job: int, ahead: int) -> None:
    """`job` starts: those ahead of it that evidently could have started in its place are held."""
    for i in range(ahead):
        other = world.pending[i]
        if jobs.user[other] != jobs.user[job]:
            could = world.could_start_s[other]
            smaller = jobs.size[other] <= jobs.size[job] and jobs.limit_s[other] <= jobs.limit_s[job]
            if (could != NONE and could < start_s[job]) or (
                smaller and not over_limit(jobs, rules, world, other, 0, 0)
            ):
                world.held[other] = 1


@kernel
def _most_in_use(rules: Rules, peak: Int64s, oldest: int, taken: int, started_at: int, ended_at: int, size: int) -> int:
    """Most nodes in use by the other jobs over the window, which begins with the level that it finds.

    The job itself holds `size` nodes between its own events; what others do then is counted without them.
    """
    if rules.window_s == 0:
        return rules.nodes
    first = max(oldest - 1, 0)
    most = _range_peak(peak, first, min(taken, started_at))
    most = max(most, _range_peak(peak, max(first, started_at), min(taken, ended_at)) - size)
    return max(most, _range_peak(peak, max(first, ended_at), taken))


@kernel
def _range_peak(peak: Int64s, low: int, high: int) -> int:
    """Largest level after the events low .. high - 1, 0 for none."""
    if high <= low:
        return 0
    k = 0
    while (2 << k) <= high - low:
        k += 1
    return int(max(peak[k, low], peak[k, high - (1 << k)]))


@kernel
def _copy(jobs: Jobs, target: World, source: World, job: int) -> None:
    """Make `target` the world of `source` with those pending jobs alone that go ahead of `job`."""
    scalars = source.scalars
    target.scalars[PENDING] = 0
    for i in range(scalars[PENDING]):
        other = source.pending[i]
        if goes_ahead(jobs, other, job):
            target.pending[target.scalars[PENDING]] = other
            target.scalars[PENDING] += 1
            target.could_start_s[other], target.held[other] = source.could_start_s[other], source.held[other]
    for i in range(scalars[RUNNING]):
        target.running[i] = source.running[i]
        target.start_s[source.running[i]] = source.start_s[source.running[i]]
    for user in range(len(source.user_jobs)):
        target.user_jobs[user], target.user_nodes[user] = source.user_jobs[user], source.user_nodes[user]
    target.scalars[RUNNING], target.scalars[BUSY] = scalars[RUNNING], scalars[BUSY]
    target.scalars[CEILING] = scalars[CEILING]
    target.scalars[PASS] = max(target.scalars[PASS], scalars[PASS])
