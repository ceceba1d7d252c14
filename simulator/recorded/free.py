"""Replay a record under the calibrated rules: from its beginning, or anew from the recorded state of each day.

Only requests, run times and cancellations are read, and what `Given` holds. Passes (`simulator.recorded.passes`) follow
every arrival, end and cancellation, at most once per second, and every tenth minute while a job pends. A job that was
cancelled in the queue never starts, because its run time is unknown, and leaves the queue at the recorded time.

`free_starts` replays the whole record, so a wrong start shifts all later starts. `anchored_starts` begins again at
each anchor, from the state that the record shows then (`simulator.recorded.follow`). A what-if takes as given:

- *Nodes in and out of service* are those that following the record shows, every ten minutes.
- *Held jobs*, which the record shows to be kept from starting by something that it does not name, start when they did.
- *Run times* are the recorded ones, also of a job that starts earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded import branch
from simulator.recorded.branch import RecordedCluster, new_branch
from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.passes import PassMemory, make_pass, may_start, new_scratch
from simulator.recorded.record import NEVER, NONE, Events, RecordedTrace
from simulator.recorded.state import (
    BUSY,
    PENDING,
    RUNNING,
    RecordedJobs,
    RecordedRules,
    RecordedState,
    asks_no_more,
    begin,
    enter,
    finish,
    leave,
    new_state,
)
from traces.arrays import Int64s

NEXT_S, ARRIVED, WITHDRAWN = 0, 1, 2  # of a clock: the next instant, s; jobs that arrived; cancellations that happened


class Given(NamedTuple):
    """What a replay takes from the record, int64; shape (jobs,) where not said otherwise."""

    run_s: Int64s  # NEVER for a job cancelled in the queue
    present: Int64s  # 1: is submitted; a job that is absent still runs to its end if it does so at an anchor
    start_s: Int64s  # recorded starts, used for held jobs alone
    end_s: Int64s  # ends, used for jobs that run at an anchor, and cancellations; a job that has no end: at its limit
    limit_s: Int64s  # recorded limits, used for jobs that run at an anchor
    held: Int64s  # 1: starts when it did
    cancelled: Int64s  # (cancelled jobs,) rows in order of cancellation
    usable: Int64s  # usable nodes, one value every TICK_S from the first submission on; the last remains valid


class Anchor(NamedTuple):
    """The recorded state at an instant, before the events of that second; rows of jobs, int64."""

    at_s: int
    running: Int64s
    pending: Int64s


class Phase(NamedTuple):
    """The rules and the order of the queue from an instant on, up to the next phase."""

    from_s: int
    key: Int64s  # (jobs,) as `RecordedJobs.key`
    rules: RecordedRules


@dataclass(frozen=True)
class Followed:
    """What following a record shows."""

    anchors: tuple[Anchor, ...]
    usable: Int64s  # as `Given.usable`
    held: Int64s  # as `Given.held`


class LimitsOfUsers(NamedTuple):
    """Limits of single users, int64, shape (users,); NEVER for none. `RecordedRules` limits every user."""

    max_jobs: Int64s  # running jobs
    max_nodes: Int64s  # nodes held; a single wider job is allowed


def free_starts(record: RecordedTrace, jobs: RecordedJobs, rules: RecordedRules, usable: Int64s) -> Int64s:
    """Return the simulated start of each job that ran, s, shape (jobs,); NEVER for a job cancelled in the queue.

    `usable` is as `Given.usable`. A job that has not started HORIZON_S after the last submission gets that instant as
    its start.
    """
    starts = np.full(len(record), NEVER, np.int64)
    if not len(record):
        return starts
    given = given_by(record, np.zeros(len(record), np.int64), usable)
    state, scratch = new_state(jobs, record.users), new_scratch(len(record), record.users)
    first, last = int(record.submit_s[0]), int(record.submit_s[-1])
    _play(jobs, rules, given, state, scratch, new_clock(jobs, given, first), first, last + 1, NEVER, starts)
    starts[record.ran & (starts == NEVER)] = last + HORIZON_S
    return starts


def given_by(record: RecordedTrace, held: Int64s, usable: Int64s) -> Given:
    """Return what a replay of the record takes as given; a job that ran at its end runs to its limit."""
    cancelled = np.flatnonzero(~record.ran)
    cancelled = cancelled[np.argsort(record.end_s[cancelled], kind="stable")]
    end_s = np.where(record.ran & (record.end_s == NEVER), record.start_s + record.limit_s, record.end_s)
    return Given(
        run_s=np.where(record.ran, end_s - record.start_s, NEVER),
        present=np.ones(len(record), np.int64),
        start_s=record.start_s,
        end_s=end_s,
        limit_s=record.limit_s,
        held=held,
        cancelled=cancelled,
        usable=np.ascontiguousarray(usable, np.int64),
    )


def follow_to(cluster: RecordedCluster, anchors_s: Sequence[int], until_s: int) -> Followed:
    """Follow the record to `until_s`, epoch s, and keep its state at each of `anchors_s`, which rise.

    For `anchored_starts`, the rules need no `siblings`: held jobs start when they did, and so do those behind them.
    """
    followed, anchors = new_branch(cluster), list[Anchor]()
    state = followed.state
    ticks = range(int(cluster.jobs.submit_s[0]), until_s + TICK_S, TICK_S)
    usable = np.zeros(len(ticks), np.int64)
    for tick, now in enumerate(ticks):
        while len(anchors) < len(anchors_s) and anchors_s[len(anchors)] <= now:
            at_s = anchors_s[len(anchors)]
            branch.advance(cluster, followed, at_s - 1, NONE)
            running, pending = state.running[: state.scalars[RUNNING]], state.pending[: state.scalars[PENDING]]
            anchors.append(Anchor(at_s, running.copy(), pending.copy()))
        branch.advance(cluster, followed, now, NONE)
        usable[tick] = branch.usable_nodes(cluster, followed, now)
    return Followed(tuple(anchors), usable, state.held.copy())


def anchored_starts(
    given: Given,
    anchors: Sequence[Anchor],
    jobs: RecordedJobs,
    rules: RecordedRules,
    until_s: int,
    own: LimitsOfUsers | None = None,
    later: Sequence[Phase] = (),
) -> Int64s:
    """Return the simulated start of each job submitted from the first anchor to `until_s`, s, shape (jobs,).

    The jobs between two anchors are simulated from the state at the first, together with all later arrivals, until they
    have all started; `later` replaces `rules` and the order from its instants on. `jobs`, `rules` and `given` may
    differ from those that were followed; rows are the same. NEVER for jobs that were cancelled in the queue, submitted
    at other times, or not started HORIZON_S after their span.
    """
    starts = np.full(len(jobs.submit_s), NEVER, np.int64)
    users = int(jobs.user.max(initial=0)) + 1
    scratch = new_scratch(len(jobs.submit_s), users)
    ends = (*(anchor.at_s for anchor in anchors[1:]), until_s)
    for (from_s, running, pending), end_s in zip(anchors, ends, strict=True):
        state, begun = new_state(jobs, users), np.full(len(starts), NEVER, np.int64)
        if own is not None:
            state = state._replace(own_max_jobs=own.max_jobs, own_max_nodes=own.max_nodes)
        limit_s = jobs.limit_s.copy()
        limit_s[running] = given.limit_s[running]  # a change of limits leaves running jobs alone
        asked = jobs._replace(limit_s=limit_s)
        restore(asked, given, state, running, pending)
        phases = (Phase(from_s, jobs.key, rules), *later)
        for phase, stop_s in zip(phases, (*(one.from_s for one in later), NEVER), strict=True):
            asked = asked._replace(key=phase.key)
            _queue_by(state, phase.key)
            clock = new_clock(asked, given, phase.from_s)
            _play(asked, phase.rules, given, state, scratch, clock, from_s, end_s, stop_s, begun)
        first, last = np.searchsorted(jobs.submit_s, (from_s, end_s))
        starts[first:last] = begun[first:last]
    return starts


def usable_nodes(record: RecordedTrace, events: Events, window_s: int) -> Int64s:
    """Return the most nodes in use in the `window_s` before each tick, from the first submission on.

    For `free_starts`. Each value depends only on the record before its tick.
    """
    ticks = np.arange(record.submit_s[0], events.time_s[-1] + TICK_S, TICK_S)
    taken = np.searchsorted(events.time_s, ticks)
    first = np.maximum(np.searchsorted(events.time_s, ticks - window_s) - 1, 0)
    level = events.peak[0]
    return np.array([level[a:b].max() if b > a else 0 for a, b in zip(first, taken, strict=True)], np.int64)


def _queue_by(state: RecordedState, key: Int64s) -> None:
    """Order the queue anew."""
    pending = state.pending[: state.scalars[PENDING]]
    pending[:] = pending[np.lexsort((pending, -key[pending]))]
    state.key[:] = key


def new_clock(jobs: RecordedJobs, given: Given, now: int) -> Int64s:
    """Return a clock, (3,), whose first instant is `now`: NEXT_S, ARRIVED and WITHDRAWN."""
    gone_s = given.end_s[given.cancelled]
    return np.array([now, np.searchsorted(jobs.submit_s, now), np.searchsorted(gone_s, now)], np.int64)


@kernel
def _play(
    jobs: RecordedJobs,
    rules: RecordedRules,
    given: Given,
    state: RecordedState,
    scratch: PassMemory,
    clock: Int64s,
    from_s: int,
    until_s: int,
    stop_s: int,
    starts: Int64s,
) -> None:
    """Simulate from the clock's instant to `stop_s`, or until all jobs submitted in [from_s, until_s) have started.

    Writes their starts to `starts`, s.
    """
    awaited = 0
    for job in range(int(np.searchsorted(jobs.submit_s, from_s)), len(jobs.submit_s)):
        is_awaited = jobs.submit_s[job] < until_s and given.run_s[job] < NEVER and given.present[job] == 1
        awaited += is_awaited and starts[job] == NEVER
    while awaited > 0 and clock[NEXT_S] <= until_s - 1 + HORIZON_S and clock[NEXT_S] < stop_s:
        awaited -= step(jobs, rules, given, state, scratch, clock, from_s, until_s, starts)


@kernel
def step(
    jobs: RecordedJobs,
    rules: RecordedRules,
    given: Given,
    state: RecordedState,
    scratch: PassMemory,
    clock: Int64s,
    from_s: int,
    until_s: int,
    starts: Int64s,
) -> int:
    """Simulate the instant that the clock names, and set it to the next. Writes starts to `starts`, s.

    Returns how many of the jobs submitted in [from_s, until_s) started.
    """
    now, count, first, started = clock[NEXT_S], len(jobs.submit_s), jobs.submit_s[0], 0
    _end_until(jobs, state, now)
    while clock[ARRIVED] < count and jobs.submit_s[clock[ARRIVED]] <= now:
        if given.present[clock[ARRIVED]] == 1:
            enter(state, clock[ARRIVED])
        clock[ARRIVED] += 1
    while clock[WITHDRAWN] < len(given.cancelled) and given.end_s[given.cancelled[clock[WITHDRAWN]]] <= now:
        leave(state, given.cancelled[clock[WITHDRAWN]])
        clock[WITHDRAWN] += 1
    started += _release(jobs, given, state, now, from_s, until_s, starts)
    nodes = given.usable[min((now - first) // TICK_S, len(given.usable) - 1)]
    if state.scalars[PENDING] > 0 and nodes > state.scalars[BUSY]:
        make_pass(jobs, rules, state, scratch, now, nodes, NONE)
        started += _start(jobs, rules, given, state, scratch, now, from_s, until_s, starts)
    following = jobs.submit_s[clock[ARRIVED]] if clock[ARRIVED] < count else NEVER
    if clock[WITHDRAWN] < len(given.cancelled):
        following = min(following, given.end_s[given.cancelled[clock[WITHDRAWN]]])
    for i in range(state.scalars[RUNNING]):
        following = min(following, state.end_s[state.running[i]])
    for i in range(state.scalars[PENDING]):
        if given.held[state.pending[i]] == 1:
            following = min(following, given.start_s[state.pending[i]])
    if state.scalars[PENDING] > 0:
        following = min(following, first + ((now - first) // TICK_S + 1) * TICK_S)
    clock[NEXT_S] = following
    return started


@kernel
def restore(jobs: RecordedJobs, given: Given, state: RecordedState, running: Int64s, pending: Int64s) -> None:
    """Fill an empty state with jobs that run since their recorded starts, and with the present pending jobs."""
    for job in running:
        begin(jobs, state, job, given.start_s[job], given.end_s[job])
    for job in pending:
        if given.present[job] == 1:
            enter(state, job)


@kernel
def _begin_now(jobs: RecordedJobs, given: Given, state: RecordedState, job: int, now: int, starts: Int64s) -> None:
    """Start a pending job, which runs as long as recorded."""
    leave(state, job)
    begin(jobs, state, job, now, now + given.run_s[job])
    starts[job] = now


@kernel
def _end_until(jobs: RecordedJobs, state: RecordedState, now: int) -> None:
    """End the jobs whose end has come."""
    i = 0
    while i < state.scalars[RUNNING]:
        job = state.running[i]
        if state.end_s[job] <= now:
            finish(jobs, state, job, state.end_s[job])
        else:
            i += 1


@kernel
def _release(
    jobs: RecordedJobs, given: Given, state: RecordedState, now: int, from_s: int, until_s: int, starts: Int64s
) -> int:
    """Start the held jobs whose recorded start has come; mark the others. Return how many of the span started."""
    started, i = 0, 0
    while i < state.scalars[PENDING]:
        job = state.pending[i]
        state.held[job] = given.held[job]
        if given.held[job] == 1 and given.start_s[job] <= now:
            _begin_now(jobs, given, state, job, now, starts)
            started += from_s <= jobs.submit_s[job] < until_s
        else:
            i += 1
    return started


@kernel
def _start(
    jobs: RecordedJobs,
    rules: RecordedRules,
    given: Given,
    state: RecordedState,
    scratch: PassMemory,
    now: int,
    from_s: int,
    until_s: int,
    starts: Int64s,
) -> int:
    """Start the jobs that the last pass placed now, except those that wait for a held sibling.

    Return how many of the span started.
    """
    started, i = 0, 0
    while i < state.scalars[PENDING]:
        job = state.pending[i]
        may = may_start(scratch, job) and given.run_s[job] < NEVER
        if may and rules.siblings == 1:
            for k in range(i):
                ahead = state.pending[k]
                if state.held[ahead] == 1 and asks_no_more(jobs, ahead, job):
                    may = False
        if may:
            _begin_now(jobs, given, state, job, now, starts)
            started += from_s <= jobs.submit_s[job] < until_s
        else:
            i += 1
    return started
