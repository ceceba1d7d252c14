"""Mesos: the framework with the smallest dominant share is offered all free resources, and may decline them.

Hindman et al., "Mesos: A platform for fine-grained resource sharing in the data center" (NSDI 2011), sections 3.2 to
3.4, with the order of dominant resource fairness (Ghodsi et al., NSDI 2011). A framework is a group of jobs: a virtual
cluster, a partition or a user, whichever the trace has. It starts all of its jobs that fit the offer, in order of
arrival, and declines the rest, which the next framework is offered. A framework that declines free GPUs while it has
jobs waiting is offered nothing for `decline_s` seconds (Mesos' filter, whose default is 5 s). No job is stopped.

Our reading: a gang accepts an offer only if the whole gang fits it, and hoards nothing. A filter covers all nodes,
where Mesos keeps one for each node. A job that arrives lifts the filter of its framework (Mesos' call REVIVE). Offers
are made when a job arrives or ends and when a filter ends. Mesos waits up to a second.
"""

from __future__ import annotations

import math

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.groups import queue_up, share_of
from simulator.gpu.events.placing import find_any, free_gpus, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    DEAF_UNTIL,
    GROUP,
    LEFT_OVER,
    NEVER,
    ORDER,
    PENDED,
    PENDING,
    SHARE,
    STATUS,
    WAKE,
    GpuState,
)
from simulator.gpu.scheduler import EventScheduler

_HEARS = -1.0  # no filter
_OFFERED = 2.0  # above every dominant share: this framework has seen the offer


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    decline_s = state.knobs[0]
    groups = len(state.asked)
    queue_up(state)
    _lift_filters(state, now, decline_s)
    for group in range(groups):
        state.of_group[SHARE, group] = share_of(state, group)
    while free_gpus(state) > 0:
        least = -1
        for group in range(groups):
            is_asked = state.asked[group] >= 0 and state.of_group[DEAF_UNTIL, group] <= now
            share = state.of_group[SHARE, group]
            if is_asked and share < _OFFERED and (least < 0 or share < state.of_group[SHARE, least]):
                least = group
        if least < 0:
            break
        state.of_group[SHARE, least] = _OFFERED
        is_left = _declines(state, state.asked[least], now)
        state.of_group[DEAF_UNTIL, least] = now + decline_s if is_left else _HEARS
    state.counts[LEFT_OVER] = free_gpus(state)


@kernel
def _lift_filters(state: GpuState, now: float, decline_s: float) -> None:
    """Lift the filters of frameworks with a new job; wake the others at the end of their filter.

    While nothing changes, a framework declines the same offer at the end of each filter. Those offers are not
    simulated: `DEAF_UNTIL` moves to the first end that is not before `now`. A filter that ended while no GPU was free
    had no offer after it, and is gone.
    """
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        state.real[WAKE, job] = NEVER
        if state.whole[STATUS, job] == PENDING and state.real[PENDED, job] == now:
            state.of_group[DEAF_UNTIL, state.whole[GROUP, job]] = _HEARS
    for group in range(len(state.asked)):
        until = state.of_group[DEAF_UNTIL, group]
        if until != _HEARS and until < now:
            missed = math.ceil((now - until) / decline_s) if decline_s > 0.0 else 0
            state.of_group[DEAF_UNTIL, group] = until + missed * decline_s if state.counts[LEFT_OVER] > 0 else _HEARS
        if state.asked[group] >= 0 and state.of_group[DEAF_UNTIL, group] > now:
            state.real[WAKE, state.asked[group]] = state.of_group[DEAF_UNTIL, group]


@kernel
def _declines(state: GpuState, first: int, now: float) -> bool:
    """Start the jobs that fit, of the queue that begins with `first`; return whether GPUs and jobs are left over."""
    waiting, job = 0, first
    while job >= 0:
        following = state.whole[ORDER, job]
        kind = find_any(state, job, False)
        if kind >= 0:
            start(state, job, kind, now)
        else:
            waiting += 1
        job = following
    return waiting > 0 and free_gpus(state) > 0


SCHEDULER = EventScheduler(decide, {"decline_s": 5.0}, shares="resources")
