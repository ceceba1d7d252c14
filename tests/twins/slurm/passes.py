"""The twin's two passes: docs/schedulers/slurm.md, "Main pass" and "Backfill pass"."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from simulator.slurm import world as w
from tests.twins.slurm import moves, placement, preemption, rules
from tests.twins.slurm.moves import in_service, nodes_in_any, partition_nodes
from tests.twins.slurm.state import PlainController, PlainSlurmJob
from traces.arrays import Bools


def queue(controller: PlainController) -> list[PlainSlurmJob]:
    """Return the jobs that a pass may start, in its order."""
    tier = controller.world.partitions.priority_tier
    return sorted(
        (job for job in controller.jobs if job.queued),
        key=lambda job: (-_level(controller, job.qos), -tier[job.partition], -job.priority, job.submit, job.row),
    )


def _level(controller: PlainController, qos: int) -> int:
    """Return the preemption level of a QOS: one above the highest level that it may preempt, 0 if it preempts none."""
    if controller.settings.preempt_by_partition:
        return 0
    below = np.flatnonzero(controller.world.qos.preempts[qos]).tolist()
    return 1 + max(_level(controller, other) for other in below) if below else 0


def _reservations(controller: PlainController, begin: int, end: int) -> Bools:
    """Return which outages are reservations, known by now, that overlap [begin, end)."""
    outages = controller.world.outages
    known = (outages.kind == w.RESERVATION) & (outages.announced_s <= controller.now)
    touches: Bools = known & (outages.begin_s < end) & (outages.end_s > begin)
    return touches


def _may_reserve(controller: PlainController, job: PlainSlurmJob) -> bool:
    settings = controller.settings
    return controller.now - job.accrue >= settings.bf_min_age_reserve_s and job.priority >= settings.bf_min_prio_reserve


def main_pass(controller: PlainController, *, limited: bool) -> None:
    """Start the jobs that fit in queue order, until each partition's first job that does not fit."""
    now, machine = controller.now, controller.machine
    nodes = in_service(controller)
    blocked: set[int] = set()
    rejected: set[int] = set()
    seen: set[int] = set()
    number = 0
    for job in queue(controller):
        array = rules.array_of(controller, job)
        if array == w.NONE or array not in seen:
            number += 1
            if limited and number == controller.settings.default_queue_depth + 2:
                break
        seen.add(array)
        if job.partition in blocked or array in rejected - {w.NONE}:
            continue
        if not rules.within_limits(controller, job) or rules.throttled(controller, job):
            rejected.add(array)
            continue
        held = nodes_in_any(controller.world.outages.nodes[_reservations(controller, now, now + job.limit)])
        left = partition_nodes(controller.world, job) & nodes
        if len(left) < job.nodes:
            rejected.add(array)
            blocked.add(job.partition)
            nodes -= partition_nodes(controller.world, job)
            continue
        available = left - held
        chosen = placement.place(machine, job, available) or preemption.preempt(controller, job, available)
        if chosen:
            moves.start(controller, job, chosen, by_backfill=False)
            continue
        rejected.add(array)
        enough = sum(placement.could_hold(machine, job, node) for node in available) >= job.nodes
        if enough and _may_reserve(controller, job):
            blocked.add(job.partition)
            nodes -= partition_nodes(controller.world, job)


@dataclass
class _Slot:
    begin: int
    end: int
    nodes: set[int]


class _Plan:
    """The slots and counters of one backfill pass."""

    def __init__(self, controller: PlainController) -> None:
        now = controller.now
        self.controller, self.now = controller, now
        r = controller.settings.bf_resolution_s
        self.window_end = now + controller.settings.bf_window_s
        self.nodes = in_service(controller)
        self.slots = [_Slot(now // r * r, self.window_end // r * r, set(self.nodes))]
        self.slots_made = 1
        self.tested = self.started = 0
        self.of_partition: Counter[int] = Counter()
        self.of_user: Counter[int] = Counter()
        self.reservations_of_partition: Counter[int] = Counter()
        self.reservations_of_array: Counter[int] = Counter()

    def is_free(self, nodes: list[int], begin: int, end: int) -> bool:
        return all(set(nodes) <= slot.nodes for slot in self.slots if slot.begin < end and slot.end > begin)

    def cut(self, at: int, second: int) -> None:
        slot = self.slots[at]
        self.slots[at : at + 1] = [_Slot(slot.begin, second, set(slot.nodes)), _Slot(second, slot.end, set(slot.nodes))]
        self.slots_made += 1

    def reserve(self, nodes: list[int], begin: int, end: int) -> None:
        """Remove the nodes from the slots within [begin, end); then join the first two equal neighbours."""
        at = next((at for at, slot in enumerate(self.slots) if slot.end >= begin), None)
        if at is None:
            return
        around = [max(at - 1, 0), len(self.slots)]
        if self.slots[at].end > begin:
            self.cut(at, begin)
        for inner in range(at + 1, len(self.slots) + 1):
            if inner == len(self.slots):
                around[1] = inner - 1
                break
            if self.slots[inner].end > end:
                self.cut(inner, end)
            self.slots[inner].nodes -= set(nodes)
            if self.slots[inner].end == end:
                around[1] = min(inner + 1, len(self.slots) - 1)
                break
        for left in range(*around):
            if self.slots[left].nodes == self.slots[left + 1].nodes:
                self.slots[left].end = self.slots[left + 1].end
                del self.slots[left + 1]
                return


NEXT, RESERVED, STARTED, STOP = "next job", "reserved", "started", "end the pass"


def backfill_pass(controller: PlainController) -> None:
    """Start jobs that delay no reservation of a job ahead in the queue, and reserve nodes for the others."""
    plan, settings = _Plan(controller), controller.settings
    rejected: set[int] = set()
    for job in queue(controller):
        if plan.tested >= settings.bf_max_job_test:
            return
        array, user = rules.array_of(controller, job), int(controller.world.jobs.user[job.row])
        if array in rejected - {w.NONE}:
            continue
        if (
            not rules.within_limits(controller, job)
            or rules.throttled(controller, job)
            or 0 < settings.bf_max_job_part <= plan.of_partition[job.partition]
            or 0 < settings.bf_max_job_user <= plan.of_user[user]
        ):
            rejected.add(array)
            continue
        plan.of_partition[job.partition] += 1
        plan.of_user[user] += 1
        outcome = _plan_one(plan, job)
        if outcome == STOP:
            return
        if outcome == STARTED:
            plan.started += 1
            if plan.started == settings.bf_max_job_start:
                return
        elif outcome == RESERVED:
            plan.reservations_of_partition[job.partition] += 1
            plan.reservations_of_array[array] += 1
            if plan.reservations_of_array[array] >= settings.bf_max_job_array_resv:
                rejected.add(array)
        else:
            rejected.add(array)


def _plan_one(plan: _Plan, job: PlainSlurmJob) -> str:
    """Apply step 4 of the page: find when the job could start; start it, or reserve nodes for it."""
    controller, now, settings = plan.controller, plan.now, plan.controller.settings
    most = settings.bf_job_part_count_reserve
    reserving = _may_reserve(controller, job) and not 0 < most <= plan.reservations_of_partition[job.partition]
    begin = now  # `try` on the page
    is_counted = False
    while begin <= plan.window_end:
        usable, later = _usable(plan, job, begin)
        chosen, start = None, now
        if len(usable) >= job.nodes:
            plan.tested += not is_counted
            is_counted = True
            chosen = placement.place(controller.machine, job, usable)
            victims = [] if chosen else preemption.candidates(controller, job)
            if victims and begin == now:
                chosen = preemption.preempt(controller, job, usable)
            elif victims:
                machine = controller.machine.copy()
                for other in preemption.removable(controller, victims):
                    placement.remove(machine, other)
                chosen = placement.place(machine, job, usable)
            if not chosen and reserving:
                chosen, start = _look_ahead(controller, job, usable, victims)
        if not chosen:
            if later is None or not reserving:
                return NEXT
            begin = later
            continue
        start = max(start, begin)
        if start == now:
            moves.start(controller, job, chosen, by_backfill=True)
            return STARTED
        if not reserving:
            return NEXT
        if later is not None and start > later:
            begin = later
            continue
        if start > plan.window_end:
            return NEXT
        r = settings.bf_resolution_s
        first, last = start // r * r, (start + job.limit) // r * r
        if not plan.is_free(chosen, first, last):
            begin = start + r if start == begin else start
            continue
        if plan.slots_made >= max(2, settings.bf_max_job_test):
            return STOP
        plan.reserve(chosen, first, max(last, first + r))
        return RESERVED
    return NEXT


def _usable(plan: _Plan, job: PlainSlurmJob, begin: int) -> tuple[set[int], int | None]:
    """Apply steps b and c: return the nodes free of reservations from `begin` to its end, and when to try next."""
    controller, end = plan.controller, begin + job.limit
    touching = _reservations(controller, begin, end)
    base = (partition_nodes(controller.world, job) & plan.nodes) - nodes_in_any(
        controller.world.outages.nodes[touching]
    )
    usable, later = set(base), None
    for slot, after in zip(plan.slots, [*plan.slots[1:], None], strict=True):
        if slot.end <= begin:
            continue
        if after is not None and later is None and (base & after.nodes) - (usable & slot.nodes):
            later = slot.end
        if slot.begin > end:
            break
        usable &= slot.nodes
    members = sorted(partition_nodes(controller.world, job))
    of_partition = touching & controller.world.outages.nodes[:, members].any(axis=1)
    if of_partition.any():
        e = int(controller.world.outages.end_s[of_partition].min())
        if e < plan.window_end and (later is None or e < later):
            later = e
    return usable, later


def _look_ahead(
    controller: PlainController, job: PlainSlurmJob, usable: set[int], victims: list[PlainSlurmJob]
) -> tuple[list[int] | None, int]:
    """Return the nodes, and the expected end of the last running job that must end for them; `victims` are gone."""
    machine, settings = controller.machine.copy(), controller.settings
    for other in preemption.removable(controller, victims):
        placement.remove(machine, other)
    others = [other for other in controller.running if other not in victims]
    order = sorted(others, key=lambda other: (other.expected_end, other.row))
    window, origin, at = 30, None, 0
    while at < len(order):
        last = None
        while at < len(order):
            other, at = order[at], at + 1
            if not set(other.held) & usable:
                continue
            placement.remove(machine, other)
            last = other
            origin = origin or (last.expected_end // 30 + 1) * 30
            if at < len(order) and order[at].expected_end > origin + window:
                break
        if last is None or origin is None:
            break
        window *= 2
        while at < len(order) and order[at].expected_end > origin + window:
            window *= 2
        chosen = placement.place(machine, job, usable)
        if chosen:
            start = last.expected_end
            if start <= controller.now:
                start = max(controller.now + 1, start + settings.over_time_limit_s + settings.kill_wait_s)
            return chosen, start
    return None, controller.now
