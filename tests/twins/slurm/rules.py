"""The twin's rules about which jobs may run: docs/schedulers/slurm.md, "Words", "Limits" and "Dependencies"."""

from __future__ import annotations

import numpy as np

from simulator.slurm import world as w
from tests.twins.slurm.placement import could_hold
from tests.twins.slurm.state import ENDED, PlainController, PlainSlurmJob

# Limits


def within_limits(controller: PlainController, job: PlainSlurmJob, *, alone: bool = False) -> bool:
    """Whether the job may run in addition to the running jobs (`alone`: by itself, within the limits of one job)."""
    world, running = controller.world, [] if alone else controller.running
    for count, tres, others in _counts(controller, job, running):
        if count != w.NO_LIMIT and len(others) + 1 > count:
            return False
        for kind in range(w.TRES):
            used = sum(other.request[kind] for other in others) + job.request[kind]
            if tres[kind] != w.NO_LIMIT and used > tres[kind]:
                return False
    own = world.jobs.association[job.row]
    most = int(world.associations.max_jobs[own])
    beside = sum(bool(world.jobs.association[other.row] == own) for other in running)
    return most == w.NO_LIMIT or beside + 1 <= most


def _counts(
    controller: PlainController, job: PlainSlurmJob, running: list[PlainSlurmJob]
) -> list[tuple[int, list[int], list[PlainSlurmJob]]]:
    """Return (most jobs, most TRES, the running jobs that count) of each limit that counts the job."""
    world = controller.world
    qos, tree, jobs = world.qos, world.associations, world.jobs
    user, account = jobs.user, tree.account[jobs.association]
    limits: list[tuple[int, list[int], list[PlainSlurmJob]]] = []
    for row in _qos_of(controller, job):
        same = [other for other in running if row in _qos_of(controller, other)]
        of_user = [other for other in same if user[other.row] == user[job.row]]
        of_account = [other for other in same if account[other.row] == account[job.row]]
        limits.append((w.NO_LIMIT, qos.job_tres[row].tolist(), []))
        limits.append((int(qos.group_jobs[row]), qos.group_tres[row].tolist(), same))
        limits.append((int(qos.user_jobs[row]), qos.user_tres[row].tolist(), of_user))
        limits.append((int(qos.account_jobs[row]), qos.account_tres[row].tolist(), of_account))
    for row in _chain(world, int(jobs.association[job.row])):
        below = [other for other in running if row in _chain(world, int(jobs.association[other.row]))]
        limits.append((int(tree.group_jobs[row]), tree.group_tres[row].tolist(), below))
    return limits


def _qos_of(controller: PlainController, job: PlainSlurmJob) -> set[int]:
    """Return the job's QOS and that of its partition."""
    return {job.qos, int(controller.world.partitions.qos[job.partition])} - {w.NONE}


def _chain(world: w.SlurmWorld, association: int) -> list[int]:
    """Return the association and all above it."""
    rows = []
    while association != w.NONE:
        rows.append(association)
        association = int(world.associations.parent[association])
    return rows


def array_of(controller: PlainController, job: PlainSlurmJob) -> int:
    """Return the job array of the task, or NONE."""
    return int(controller.world.jobs.array[job.row])


def throttled(controller: PlainController, job: PlainSlurmJob) -> bool:
    """Whether the job's array runs its maximum number of tasks."""
    array = array_of(controller, job)
    if array == w.NONE or not controller.world.array_throttle[array]:
        return False
    running = sum(array_of(controller, other) == array for other in controller.running)
    return bool(running >= controller.world.array_throttle[array])


# Dependencies


def dependencies_hold(controller: PlainController, job: PlainSlurmJob) -> bool:
    """Whether the job's dependencies are satisfied."""
    met = [_met(controller, job, at) for at in _conditions(controller.world, job)]
    if not met:
        return True
    return any(met) if controller.world.jobs.any_dependency[job.row] else all(met)


def _conditions(world: w.SlurmWorld, job: PlainSlurmJob) -> list[int]:
    return np.flatnonzero(world.dependencies.job == job.row).tolist()


def _met(controller: PlainController, job: PlainSlurmJob, at: int) -> bool:
    world = controller.world
    kind = int(world.dependencies.kind[at])
    if kind == w.SINGLETON:
        jobs = world.jobs
        return all(
            other.state in ENDED
            for other in controller.jobs[: job.row]
            if jobs.user[other.row] == jobs.user[job.row] and jobs.name[other.row] == jobs.name[job.row]
        )
    parent = controller.jobs[int(world.dependencies.parent[at])]
    if kind == w.AFTER:
        begun, delay = parent.first_start, int(world.dependencies.delay_s[at])
        return controller.now >= begun + delay if begun != w.NONE else parent.state == w.CANCELLED
    if kind == w.AFTERANY:
        return parent.state in ENDED
    if kind == w.AFTEROK:
        return parent.state == w.COMPLETED
    return parent.state in ENDED and parent.state != w.COMPLETED


def never_satisfied(controller: PlainController, job: PlainSlurmJob) -> bool:
    """Whether a dependency has failed permanently, so the job can never start."""
    failed = [_failed(controller, at) for at in _conditions(controller.world, job)]
    if not failed:
        return False
    return all(failed) if controller.world.jobs.any_dependency[job.row] else any(failed)


def _failed(controller: PlainController, at: int) -> bool:
    kind = int(controller.world.dependencies.kind[at])
    if kind == w.SINGLETON:
        return False
    parent = controller.jobs[int(controller.world.dependencies.parent[at])]
    if parent.state == w.UNPLACEABLE:
        return kind in (w.AFTEROK, w.AFTER)
    if kind == w.AFTEROK:
        return parent.state in ENDED and parent.state != w.COMPLETED
    return kind == w.AFTERNOTOK and parent.state == w.COMPLETED


# Jobs that can never start


def find_unplaceable(controller: PlainController) -> None:
    """Mark the jobs that can never start, with the first reason of `world.REASONS` that holds."""
    for job in controller.jobs:
        job.reason = _reason(controller, job)
        if job.reason != w.PLACEABLE:
            job.state = w.UNPLACEABLE
    marked = True
    while marked:
        marked = False
        for job in controller.jobs:
            if job.state != w.UNPLACEABLE and not _is_pinned(controller, job) and never_satisfied(controller, job):
                job.state, job.reason, marked = w.UNPLACEABLE, w.NEVER_SATISFIED, True


def _reason(controller: PlainController, job: PlainSlurmJob) -> int:
    world = controller.world
    if job.partition == w.NONE:
        return w.UNKNOWN_PARTITION
    members = np.flatnonzero(world.partitions.nodes[job.partition]).tolist()
    if sum(could_hold(controller.machine, job, node) for node in members) < job.nodes:
        return w.TOO_LARGE
    if _is_pinned(controller, job):
        return w.PLACEABLE
    most, longest = int(world.partitions.max_nodes[job.partition]), int(world.partitions.max_time_s[job.partition])
    if most != w.NO_LIMIT and job.nodes > most:
        return w.OVER_MAX_NODES
    if longest != w.NO_LIMIT and job.limit > longest:
        return w.OVER_MAX_TIME
    if not within_limits(controller, job, alone=True):
        return w.OVER_LIMIT
    return w.CYCLIC_DEPENDENCY if _waits_for_itself(world, job.row) else w.PLACEABLE


def _is_pinned(controller: PlainController, job: PlainSlurmJob) -> bool:
    return int(controller.world.jobs.pinned_s[job.row]) < controller.free_from


def _waits_for_itself(world: w.SlurmWorld, row: int) -> bool:
    pairs = list(zip(world.dependencies.job.tolist(), world.dependencies.parent.tolist(), strict=True))
    seen: set[int] = set()
    todo = [row]
    while todo:
        child = todo.pop()
        parents = {parent for job, parent in pairs if job == child and parent != w.NONE}
        if row in parents:
            return True
        todo += parents - seen
        seen |= parents
    return False
