"""The transitions of one job of the twin: it starts, ends, or is preempted; and the nodes in service."""

from __future__ import annotations

import numpy as np

from simulator.slurm import world as w
from tests.twins.slurm import placement
from tests.twins.slurm.priority import charge
from tests.twins.slurm.state import PlainController, PlainSlurmJob
from traces.arrays import Bools


def start(controller: PlainController, job: PlainSlurmJob, nodes: list[int], *, by_backfill: bool) -> None:
    """Start the job now on these nodes."""
    now = controller.now
    placement.put(controller.machine, job, nodes)
    job.state, job.queued, job.start, job.end, job.held = w.RUNNING, False, now, w.NONE, sorted(nodes)
    job.expected_end, job.by_backfill = now + job.limit, by_backfill
    if job.first_start == w.NONE:
        job.first_start = now
    controller.usage.since[job.row] = now


def start_pinned(controller: PlainController, job: PlainSlurmJob) -> None:
    """Start the job on its recorded nodes, or without recorded nodes on nodes of its partition if they suffice."""
    world = controller.world
    first, last = world.pinned_first[job.row : job.row + 2]
    nodes = world.pinned_nodes[first:last].tolist() or placement.place(
        controller.machine, job, partition_nodes(world, job)
    )
    if nodes:
        start(controller, job, nodes, by_backfill=False)


def partition_nodes(world: w.SlurmWorld, job: PlainSlurmJob) -> set[int]:
    """Return the nodes of the job's partition."""
    return set(np.flatnonzero(world.partitions.nodes[job.partition]).tolist())


def recorded_end(controller: PlainController, job: PlainSlurmJob) -> int:
    """Return when a running job will end, s: by itself, or killed some time after its limit."""
    settings = controller.settings
    return job.start + min(job.run, job.limit + settings.over_time_limit_s + settings.kill_wait_s)


def leave(controller: PlainController, job: PlainSlurmJob, state: int, end: int) -> None:
    """Remove a running job from its nodes."""
    charge(controller, job, ends=True)
    placement.remove(controller.machine, job)
    job.state, job.end = state, end


def take_ends(controller: PlainController) -> bool:
    """End the jobs whose nodes become free by now; return whether there was any."""
    done = controller.now - controller.settings.completing_s
    ending = [job for job in controller.running if recorded_end(controller, job) <= done]
    for job in ending:
        failed = controller.world.jobs.failed[job.row]
        state = w.TIMEOUT if job.run > job.limit else w.FAILED if failed else w.COMPLETED
        leave(controller, job, state, recorded_end(controller, job))
    if ending:
        meet_capacity(controller)
    return bool(ending)


def preempt_mode(controller: PlainController, job: PlainSlurmJob) -> int:
    """Return how the job is preempted: by its partition with preempt/partition_prio, else by its QOS."""
    if controller.settings.preempt_by_partition:
        return int(controller.world.partitions.preempt_mode[job.partition])
    return int(controller.world.qos.preempt_mode[job.qos])


def evict(controller: PlainController, job: PlainSlurmJob) -> None:
    """Preempt a running job: it ends now, or is submitted again."""
    leave(controller, job, w.PREEMPTED, controller.now)
    if preempt_mode(controller, job) == w.PREEMPT_REQUEUE:
        job.state, job.start, job.end, job.held, job.by_backfill = w.PENDING, w.NONE, w.NONE, [], False
        job.submit, job.eligible = controller.now, controller.now + controller.settings.requeue_delay_s
        job.restarts += 1


def meet_capacity(controller: PlainController) -> None:
    """Adjust the number of nodes out of service to the capacity, as far as idle nodes allow."""
    world, out = controller.world, controller.out
    past = world.capacity.nodes[world.capacity.time_s <= controller.now]
    wanted = len(world.nodes) - int(past[-1]) if len(past) else 0
    while len(out) > max(wanted, 0):
        out.remove(min(out))
    idle = [node for node, rows in enumerate(controller.machine.running_on) if not rows and node not in out]
    while len(out) < wanted and idle:
        out.add(idle.pop())


def in_service(controller: PlainController) -> set[int]:
    """Return the nodes that are neither drained nor over the capacity."""
    outages, now = controller.world.outages, controller.now
    drained = (outages.kind == w.DRAIN) & (outages.begin_s <= now) & (outages.end_s > now)
    return set(range(len(controller.world.nodes))) - controller.out - nodes_in_any(outages.nodes[drained])


def nodes_in_any(rows: Bools) -> set[int]:
    """Return the nodes that are in any of the rows, shape (rows, nodes)."""
    return set(np.flatnonzero(rows.any(axis=0)).tolist())
