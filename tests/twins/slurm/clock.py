"""The twin's clock: docs/schedulers/slurm.md, "One second"."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.slurm import world as w
from tests.twins.slurm import rules
from tests.twins.slurm.moves import meet_capacity, recorded_end, start_pinned, take_ends
from tests.twins.slurm.passes import backfill_pass, main_pass
from tests.twins.slurm.priority import calculate_usage, fair_share_factors, set_priority, static_priority
from tests.twins.slurm.state import PlainController, PlainSlurmJob, at_the_beginning

ALWAYS = -1  # free from the beginning
Limits = Mapping[int, tuple[int, int]]


def simulate(
    world: w.SlurmWorld, *, free_from: int = ALWAYS, until: int = w.NEVER, limit_from: Limits | None = None
) -> w.SlurmResult:
    """Simulate every job; arguments and result as for `simulator.slurm.run.run`, without checks.

    limit_from: by row, a second, and the limit that a job which has not started then has from there on.
    """
    controller = played(world, free_from=free_from, until=until, limit_from=limit_from)
    jobs = controller.jobs
    for job in jobs:
        if job.state == w.PENDING and rules.never_satisfied(controller, job):
            job.reason = w.NEVER_SATISFIED
    placement = [job.held or [w.NONE] * job.nodes for job in jobs]
    return w.SlurmResult(
        start_s=np.array([job.start for job in jobs], np.int64),
        end_s=np.array([job.end for job in jobs], np.int64),
        state=np.array([job.state for job in jobs], np.int64),
        reason=np.array([job.reason for job in jobs], np.int64),
        restarts=np.array([job.restarts for job in jobs], np.int64),
        by_backfill=np.array([job.by_backfill for job in jobs], bool),
        placement_first=np.cumsum([0, *map(len, placement)], dtype=np.int64),
        placement=np.array([node for nodes in placement for node in nodes], np.int64),
    )


def played(
    world: w.SlurmWorld, *, free_from: int = ALWAYS, until: int = w.NEVER, limit_from: Limits | None = None
) -> PlainController:
    """Return the controller after second `until`; its clock may be later."""
    controller = at_the_beginning(world, free_from, until)
    controller.usage.factor = fair_share_factors(controller)
    rules.find_unplaceable(controller)
    for job in controller.jobs:
        if job.state != w.UNPLACEABLE:
            job.static = static_priority(world, job)
    second = _next_second(controller, -1)
    while second is not None and second <= until:
        controller.now = second
        for row, (from_s, limit_s) in (limit_from or {}).items():
            if from_s <= second and controller.jobs[row].start == w.NONE:
                controller.jobs[row].limit = limit_s
        _one_second(controller)
        second = _next_second(controller, second)
    return controller


def _multiple_after(now: int, origin: int, period: int) -> int:
    """Return the first origin + k * period after `now`."""
    return origin + ((now - origin) // period + 1) * period


def _one_second(controller: PlainController) -> None:
    """Apply steps 1 to 6; repeat the passes while a job that they start ends in the same second."""
    now, settings = controller.now, controller.settings
    free = now >= controller.free_from
    happened = _outages_and_capacity(controller)
    ended = take_ends(controller)
    happened |= ended
    happened |= _arrivals_and_timed_events(controller)
    if (now - settings.origin_s) % settings.calc_period_s == 0:
        _priorities(controller)
    while True:
        if free:
            _main_pass_if_due(controller, ended)
        due = now >= controller.last_backfill + settings.bf_interval_s
        if free and settings.backfill and due and (happened or any(job.queued for job in controller.jobs)):
            controller.last_backfill = now
            backfill_pass(controller)
        ended = take_ends(controller)
        if not ended:
            break


def _outages_and_capacity(controller: PlainController) -> bool:
    """Apply outages and capacity changes; return whether there is one in this second."""
    outages, capacity = controller.world.outages, controller.world.capacity
    gone = bool((outages.begin_s == controller.now).any())
    back = bool((outages.end_s == controller.now).any())
    changed = np.flatnonzero(capacity.time_s == controller.now)
    before = np.concatenate([[len(controller.world.nodes)], capacity.nodes])
    rises = bool((capacity.nodes[changed] > before[changed]).any())
    controller.requested |= back or rises
    meet_capacity(controller)
    return gone or back or bool(changed.size)


def _main_pass_if_due(controller: PlainController, ended: bool) -> None:
    """Make at most one main pass: full if due, else limited. There is no pass over an empty queue."""
    now, settings = controller.now, controller.settings
    full = (now - settings.origin_s) % settings.sched_interval_s == 0 and controller.last_main < now
    asked = controller.requested and now >= controller.last_main + settings.batch_sched_delay_s
    if not any(job.queued for job in controller.jobs):
        return
    if full or asked:
        controller.last_main, controller.requested = now, False
    if full or asked or ended:
        main_pass(controller, limited=not full)


def _arrivals_and_timed_events(controller: PlainController) -> bool:
    """Apply submissions, ends of holds, cancellations and pinned starts, then queue jobs.

    Returns whether there was any such event.
    """
    now, happened = controller.now, False
    for job in controller.jobs:
        if job.state == w.FUTURE and job.submit == now:
            job.state, happened = w.PENDING, True
    for job in controller.jobs:
        if job.state != w.PENDING:
            continue
        happened |= job.eligible == now
        if job.cancel == now:
            job.state, job.end, job.queued, happened = w.CANCELLED, now, False, True
    for job in controller.jobs:
        if now < controller.free_from and int(controller.world.jobs.pinned_s[job.row]) == now:
            start_pinned(controller, job)
            happened = True
    for job in controller.jobs:
        if _may_queue(controller, job):
            job.queued, job.accrue, controller.requested, happened = True, now, True, True
            set_priority(controller, job)
    return happened


def _may_queue(controller: PlainController, job: PlainSlurmJob) -> bool:
    """Whether a pending job's conditions are all met."""
    waits = job.state == w.PENDING and not job.queued
    return waits and job.eligible <= controller.now and rules.dependencies_hold(controller, job)


def _next_second(controller: PlainController, now: int) -> int | None:
    """Return the next second in which something happens; None if nothing more can."""
    settings = controller.settings
    later = [second for second in _seconds_known(controller, now) if now < second < w.NEVER]
    controller.now = now + 1
    if now >= 0 and any(_may_queue(controller, job) for job in controller.jobs):
        return now + 1  # a start or an end of this second's passes satisfied a dependency
    passes: list[int] = []
    queued = any(job.queued for job in controller.jobs)
    if queued and now >= controller.free_from:
        passes.append(_multiple_after(now, settings.origin_s, settings.sched_interval_s))
        if controller.requested:
            passes.append(max(now + 1, int(controller.last_main) + settings.batch_sched_delay_s))
        if settings.backfill:
            passes.append(max(now + 1, int(controller.last_backfill) + settings.bf_interval_s))
    if not later and not controller.running and _settled(controller, now):
        return None
    if queued or (settings.weight_fairshare and now >= 0):
        passes.append(_multiple_after(now, settings.origin_s, settings.calc_period_s))
    return min(later + passes, default=None)


def _seconds_known(controller: PlainController, now: int) -> list[int]:
    """Return the seconds, including past ones, in which something happens regardless of the passes."""
    world = controller.world
    seconds = [*world.outages.begin_s.tolist(), *world.outages.end_s.tolist(), *world.capacity.time_s.tolist()]
    for job in controller.jobs:
        if job.state == w.FUTURE:
            seconds.append(job.submit)
        elif job.state == w.PENDING:
            seconds += [job.eligible, job.cancel]
            delays = world.dependencies
            for at in np.flatnonzero((delays.job == job.row) & (delays.kind == w.AFTER)):
                parent = controller.jobs[delays.parent[at]]
                if parent.first_start != w.NONE:
                    seconds.append(parent.first_start + int(delays.delay_s[at]))
        elif job.state == w.RUNNING:
            seconds.append(recorded_end(controller, job) + controller.settings.completing_s)
        if now < controller.free_from != ALWAYS:
            seconds.append(int(world.jobs.pinned_s[job.row]))
    if controller.free_from != ALWAYS:
        seconds.append(controller.free_from)
    return seconds


def _settled(controller: PlainController, now: int) -> bool:
    """Whether a full pass and a backfill pass have been made since nothing runs and nothing is to come."""
    oldest = max((job.accrue for job in controller.jobs if job.queued), default=None)
    if oldest is None:
        return True
    settings = controller.settings
    patience = settings.sched_interval_s + settings.bf_interval_s + settings.bf_min_age_reserve_s
    ends = [job.end for job in controller.jobs if job.end != w.NONE]
    outages, capacity = controller.world.outages, controller.world.capacity
    machine = [*outages.begin_s.tolist(), *outages.end_s.tolist(), *capacity.time_s.tolist()]
    last_events = [oldest, controller.free_from, *ends, *(second for second in machine if second <= now)]
    return bool(now > max(last_events) + 2 * patience)


def _priorities(controller: PlainController) -> None:
    """End a calculation period: update usage, then the priorities of all waiting jobs."""
    if controller.settings.weight_fairshare:
        calculate_usage(controller)
    for job in controller.jobs:
        if job.queued:
            set_priority(controller, job)
