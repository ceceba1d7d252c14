"""The twin's preemption: docs/schedulers/slurm.md, "Preemption"."""

from __future__ import annotations

from simulator.slurm import world as w
from tests.twins.slurm import placement
from tests.twins.slurm.moves import evict, partition_nodes, preempt_mode, recorded_end
from tests.twins.slurm.state import PlainController, PlainSlurmJob


def _class_priority(controller: PlainController, job: PlainSlurmJob) -> int:
    if controller.settings.preempt_by_partition:
        return int(controller.world.partitions.priority_tier[job.partition])
    return min(int(controller.world.qos.priority[job.qos]), 0xFFFF)


def _may_preempt(controller: PlainController, job: PlainSlurmJob, other: PlainSlurmJob) -> bool:
    if controller.settings.preempt_by_partition:
        is_lower = _class_priority(controller, job) > _class_priority(controller, other)
        return is_lower and preempt_mode(controller, other) != w.PREEMPT_OFF
    return bool(controller.world.qos.preempts[job.qos, other.qos])


def candidates(controller: PlainController, job: PlainSlurmJob) -> list[PlainSlurmJob]:
    """Return the running jobs that the job may preempt, in the order in which they give way."""
    nodes, now = partition_nodes(controller.world, job), controller.now
    found = [
        other
        for other in controller.running
        if _may_preempt(controller, job, other)
        and now - other.start >= controller.world.qos.preempt_exempt_s[other.qos]
        and recorded_end(controller, other) > now
        and set(other.held) & nodes
    ]
    if controller.settings.preempt_youngest_first:
        return sorted(found, key=lambda other: (-other.start, other.row))
    return sorted(found, key=lambda other: (_class_priority(controller, other), other.nodes, other.row))


def removable(controller: PlainController, found: list[PlainSlurmJob]) -> list[PlainSlurmJob]:
    """Return the candidates whose mode is not OFF."""
    return [other for other in found if preempt_mode(controller, other) != w.PREEMPT_OFF]


def preempt(controller: PlainController, job: PlainSlurmJob, available: set[int]) -> list[int] | None:
    """Preempt running jobs to place this one and return its nodes; None if that is not enough."""
    order, rounds = candidates(controller, job), 0
    while True:
        chosen, last = _first_fit(controller, job, available, order)
        if chosen is None:
            return None
        if rounds > controller.settings.preempt_reorder_count or len(order) <= rounds + 1:
            break
        rounds += 1
        before, behind = order[:last], order[last + 1 :]
        if not controller.settings.preempt_strict_order:
            before.sort(key=lambda other: -len(set(other.held) & set(chosen)))
        order = [order[last], *before, *behind]
    for other in removable(controller, order[: last + 1]):
        if set(other.held) & set(chosen):
            evict(controller, other)
    return chosen


def _first_fit(
    controller: PlainController, job: PlainSlurmJob, available: set[int], order: list[PlainSlurmJob]
) -> tuple[list[int] | None, int]:
    """Remove candidates in this order from a copy until the job fits; return its nodes and the last one's position."""
    machine = controller.machine.copy()
    for number, other in enumerate(order):
        if other in removable(controller, [other]) and set(other.held) & available:
            placement.remove(machine, other)
            chosen = placement.place(machine, job, available)
            if chosen:
                return chosen, number
    return None, 0
