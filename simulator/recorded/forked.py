"""A job's start when the recorded world is left at its submission and simulated from then on. Compiled.

The world starts from the recorded state of the others when the job is submitted: who runs since when, who pends, who
is held, which nodes are out. From then on every job is started by the pass of `simulator.recorded.passes`, at every
arrival, end and cancellation and at every tenth minute. Nothing of the others' later starts reaches the job, but for
the start of a job that was held already. So its own start cannot be read off the idle nodes that it leaves in truth.

The record gives what an operator would know by then: arrivals, cancellations, nodes in use, and how long a job ran
once its recorded end is past. A job that starts earlier than it did in truth therefore keeps its nodes until that end,
and one that was cancelled in the queue until its cancellation.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recorded.follow import HORIZON_S, Log, most_in_use, next_of_others
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
    asks_no_more,
    begin,
    enter,
    finish,
    leave,
    make_pass,
)
from simulator.recorded.record import CANCELLED, STARTED, SUBMITTED

OUT_S = 7200  # nodes that were out at the submission are taken to be out for so long


@kernel
def forked_start(
    jobs: Jobs, rules: Rules, log: Log, world: World, scratch: Scratch, job: int, taken: int, now: int
) -> int:
    """First instant from `now` on at which `job` starts in the world simulated from its submission on, s.

    `world` is the recorded one after the first `taken` events, and is used up.
    """
    count = len(log.time_s)
    back_s, last = jobs.submit_s[job] + OUT_S, jobs.submit_s[job] + HORIZON_S
    while True:
        _finish_all(jobs, log, world, now)
        while taken < count and log.time_s[taken] < now:
            _tell(jobs, log, world, log.job[taken], log.kind[taken], job)
            taken += 1
        usable = most_in_use(jobs, rules, log, now, taken, job)
        if now < back_s:
            usable = min(usable, world.scalars[CEILING])
        if usable > world.scalars[BUSY]:
            make_pass(jobs, rules, world, scratch, now, usable, NONE)
            if _start_all(jobs, rules, world, scratch, now, job):
                return now
        event = next_of_others(log, taken, job)
        if now >= last or event == count:
            return now
        following = min(log.time_s[event] + 1, last)
        if now < back_s:
            following = min(following, back_s)
        for i in range(world.scalars[RUNNING]):
            following = min(following, _end_s(log, world, world.running[i]) + 1)
        now = following


@kernel
def _end_s(log: Log, world: World, job: int) -> int:
    """When a running job ends: after its recorded run time where the record knows it by then."""
    start_s, recorded_s = world.start_s[job], log.start_s[job]
    if start_s >= recorded_s:
        return int(log.end_s[job] + start_s - recorded_s)
    return int(log.end_s[job])


@kernel
def _finish_all(jobs: Jobs, log: Log, world: World, now: int) -> None:
    i = 0
    while i < world.scalars[RUNNING]:
        if _end_s(log, world, world.running[i]) < now:
            finish(jobs, world, world.running[i])
        else:
            i += 1


@kernel
def _tell(jobs: Jobs, log: Log, world: World, other: int, kind: int, job: int) -> None:
    """An arrival, a cancellation, or the start of a job that was held when the world was left."""
    if kind == SUBMITTED:
        enter(jobs, world, other)
    elif other != job and (kind == CANCELLED or (kind == STARTED and world.held[other] == 1)):
        pended = world.scalars[PENDING]
        leave(world, other)
        if kind == STARTED and world.scalars[PENDING] < pended:
            begin(jobs, world, other, log.start_s[other])


@kernel
def _start_all(jobs: Jobs, rules: Rules, world: World, scratch: Scratch, now: int, job: int) -> bool:
    """Start what the pass placed now, but for those that wait for a held sibling; whether `job` is among them."""
    i = 0
    while i < world.scalars[PENDING]:
        placed = world.pending[i]
        starts = scratch.placed[placed] == world.scalars[PASS]
        if starts and rules.siblings == 1:
            for k in range(i):
                ahead = world.pending[k]
                if world.held[ahead] == 1 and asks_no_more(jobs, ahead, placed):
                    starts = False
        if not starts:
            i += 1
        elif placed == job:
            return True
        else:
            leave(world, placed)
            begin(jobs, world, placed, now)
    return False
