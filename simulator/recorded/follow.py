"""The recorded world as it stood at an instant: who pended, who ran, and what the record had taught by then. Compiled.

What the record teaches on the way (each can be switched off, `Rules`):

  - usable nodes are the most that were in use over `window_s` before;
  - a pending job that the pass would have started `stall_s` ago, and that nobody overtook, shows that nodes are out
    of service: fewer than its size are usable beyond those in use. This holds until more are in use;
  - a pending job is held (by a dependency, a begin time, an operator: the log does not say) once it was overtaken: a
    job of another user behind it started although the pass would have started this one first, or although this one
    asks for neither more nodes nor a longer limit and its user is within the limits. It reserves nothing from then;
  - a job waits for its user's held jobs ahead of it that ask for no more than it does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.passes import (
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
    leave,
    make_pass,
    over_limit,
)
from simulator.recorded.record import ENDED, NEVER, STARTED, SUBMITTED, Events, Int64s, Record

TICK_S = 600  # a look although nothing happened: limits run out and reservations come near
HORIZON_S = 10 * 86400  # a job that has not started by then is given up at that wait


class Log(NamedTuple):
    """What was recorded, int64: per job of shape (jobs,), per event of shape (events,), in order of time."""

    start_s: Int64s  # (jobs,) NEVER for one cancelled in the queue
    end_s: Int64s  # (jobs,) end, or the cancellation
    started_at: Int64s  # (jobs,) index of the job's start among the events; their number where it has none
    ended_at: Int64s  # (jobs,) likewise of its end
    time_s: Int64s  # (events,)
    job: Int64s  # (events,)
    kind: Int64s  # (events,)
    peak: Int64s  # (levels, events) `simulator.recorded.record.range_peaks`


def log_of(record: Record, events: Events) -> Log:
    """The arrays of a record and its events for the kernels."""
    whole = np.ascontiguousarray
    return Log(
        whole(record.start_s), whole(record.end_s), events.started_at, events.ended_at, whole(events.time_s),
        whole(events.job), whole(events.kind), events.peak,
    )  # fmt: skip


@kernel
def look(jobs: Jobs, rules: Rules, world: World, scratch: Scratch, now: int, usable: int, target: int) -> bool:
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
def take(jobs: Jobs, rules: Rules, log: Log, world: World, event: int) -> None:
    """One record comes true."""
    job, kind = log.job[event], log.kind[event]
    if kind == SUBMITTED:
        enter(jobs, world, job)
    elif kind == ENDED:
        finish(jobs, world, job)
    else:
        ahead = leave(world, job)
        if kind == STARTED:
            if rules.overtaken == 1:
                _overtake(jobs, rules, world, job, log.start_s[job], ahead)
            begin(jobs, world, job, log.start_s[job])


@kernel
def _overtake(jobs: Jobs, rules: Rules, world: World, job: int, start_s: int, ahead: int) -> None:
    """`job` starts: those ahead of it that evidently could have started in its place are held."""
    for i in range(ahead):
        other = world.pending[i]
        if jobs.user[other] != jobs.user[job]:
            could = world.could_start_s[other]
            smaller = jobs.size[other] <= jobs.size[job] and jobs.limit_s[other] <= jobs.limit_s[job]
            if (could != NONE and could < start_s) or (smaller and not over_limit(jobs, rules, world, other, 0, 0)):
                world.held[other] = 1


@kernel
def most_in_use(jobs: Jobs, rules: Rules, log: Log, now: int, taken: int, target: int) -> int:
    """Most nodes in use over the window before `now`, of which the first `taken` events are known.

    The window begins with the level that it finds. `target` (a row, or NONE) holds its nodes between its own events;
    what others do then is counted without them.
    """
    if rules.window_s == 0:
        return rules.nodes
    first = max(_events_before(log, now - rules.window_s) - 1, 0)
    if target == NONE:
        return _range_peak(log.peak, first, taken)
    started_at, ended_at = log.started_at[target], log.ended_at[target]
    most = _range_peak(log.peak, first, min(taken, started_at))
    most = max(most, _range_peak(log.peak, max(first, started_at), min(taken, ended_at)) - jobs.size[target])
    return int(max(most, _range_peak(log.peak, max(first, ended_at), taken)))


@kernel
def _events_before(log: Log, time_s: int) -> int:
    """How many events lie before an instant."""
    low, high = 0, len(log.time_s)
    while low < high:
        middle = (low + high) // 2
        if log.time_s[middle] < time_s:
            low = middle + 1
        else:
            high = middle
    return low


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
def next_of_others(log: Log, event: int, job: int) -> int:
    """The first event from `event` on that is not of `job`; the number of events where there is none."""
    while event < len(log.job) and log.job[event] == job:
        event += 1
    return event


@kernel
def copy(target: World, source: World) -> None:
    """Make `target` the world of `source`; both have room for the same jobs and users."""
    scalars = source.scalars
    for i in range(scalars[PENDING]):
        job = source.pending[i]
        target.pending[i] = job
        target.could_start_s[job], target.held[job] = source.could_start_s[job], source.held[job]
    for i in range(scalars[RUNNING]):
        job = source.running[i]
        target.running[i], target.start_s[job] = job, source.start_s[job]
    for user in range(len(source.user_jobs)):
        target.user_jobs[user], target.user_nodes[user] = source.user_jobs[user], source.user_nodes[user]
    target.scalars[PENDING], target.scalars[RUNNING] = scalars[PENDING], scalars[RUNNING]
    target.scalars[BUSY], target.scalars[CEILING] = scalars[BUSY], scalars[CEILING]
    target.scalars[PASS] = max(target.scalars[PASS], scalars[PASS])
