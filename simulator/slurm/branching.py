"""Slurm as a world of `simulator.cluster`: a declared world and extra jobs that are submitted into it.

The controller treats extra jobs like any user's jobs: they wait in the queue, age, count towards limits, and are
planned by their time limit. docs/schedulers/slurm.md defines the controller.

Visible is everything that concerns the partition of the extra jobs: its nodes, the jobs that hold some of them, and the
pending jobs of partitions that share nodes with it. A node that several jobs share counts as held by the job that may
keep it longest, so it becomes free only when all of it is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from simulator import cluster as interface
from simulator.blocks import as_block
from simulator.cluster import Built, Operations, Visible
from simulator.compiled import kernel, njit
from simulator.recent import ENDS, NODES, STARTS, TIME, WAIT
from simulator.slurm.compiled import kernel as clock
from simulator.slurm.compiled.bits import as_words, count_bits
from simulator.slurm.compiled.limits import over_limit, throttled
from simulator.slurm.compiled.moves import withdraw
from simulator.slurm.compiled.priority import priority, static_priority
from simulator.slurm.compiled.state import (
    DRAINED,
    HELD,
    HELD_JOBS,
    NEXT_ARRIVAL,
    OUT,
    QUEUE_JOB,
    QUEUE_KEY,
    QUEUE_ROWS,
    QUEUE_SUBMIT,
    RUN_JOB,
    RUN_PLANNED,
    RUN_START,
    RUNNING_ROWS,
    SlurmRun,
    SlurmState,
    copy_state,
)
from simulator.slurm.inputs.jobs import flat
from simulator.slurm.inputs.prepare import Prepared, charges, new_branch, prepared
from simulator.slurm.inputs.submitted import Submitter, user_limits, with_jobs
from simulator.slurm.world import NEVER, NONE, PLACEABLE, REASONS, RESERVATION, UNPLACEABLE, SlurmWorld
from simulator.workload import Workload
from traces.arrays import Bools, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.units import DAY_S

MOST_NODES = 1 << 20  # of a flat pool: the scheduler keeps a record of each node


class SubmitterView(NamedTuple):
    """The partition of the extra jobs and the limits of their user (`simulator.slurm.inputs.submitted`)."""

    nodes: Int64s  # (words,) nodes of their partition
    competes: Bools  # (partitions,) whether a partition shares nodes with theirs
    user: int
    max_jobs: int
    max_nodes: int


class BranchableSlurm(NamedTuple):
    """The tables of a run with working memory, and the submitter's view. All blocks; its branches are `SlurmState`s."""

    run: SlurmRun
    seen: SubmitterView


def build(world: SlurmWorld, submitter: Submitter, *, extra: int, nodes: int, limit_s: int, threads: int) -> Built:
    """Build a world of the jobs of `world` and `extra` jobs of `submitter` on whole nodes.

    Raises InputError, with the reason, if the extra jobs can never start.
    """
    whole = with_jobs(world, submitter, count=extra, nodes=nodes, limit_s=limit_s)
    unpinned = replace(whole.jobs, pinned_s=np.full(len(whole.jobs), NEVER))  # recorded starts do not apply here
    whole = replace(whole, jobs=unpinned)
    ready = [prepared(whole, len(world.jobs)) for _ in range(threads)]
    for reason in ready[0].reason[len(world.jobs) :]:
        if reason != PLACEABLE:
            partition = world.partitions.names[submitter.partition]
            raise InputError(
                f"a job of {counted(nodes, 'whole node')} and {limit_s} s never starts in partition {partition!r}: "
                f"{REASONS[reason]}; choose another --pair-nodes or --limit"
            )
    members = world.partitions.nodes
    competes = np.asarray((members & members[submitter.partition]).any(axis=1))
    seen = as_block(
        SubmitterView(
            as_words(members[[submitter.partition]])[0], competes, submitter.user, *user_limits(world, submitter)
        )
    )
    return Built(
        tuple(BranchableSlurm(_with_room(one, len(whole.jobs)), seen) for one in ready),
        len(world.jobs),
        int(members[submitter.partition].sum()),
        lambda rows, remembered: new_branch(ready[0], rows, remembered),
        _resizer(whole),
        submitter.user,
    )


def _resizer(world: SlurmWorld) -> Callable[[BranchableSlurm, int, int], None]:
    """Return `Built.resize` of a world whose last job is an extra one."""

    @cache
    def priced(nodes: int) -> tuple[float, int]:
        """Return the priority without age and fair share, and the charge, of an extra job of that many nodes."""
        alike = replace(world, jobs=replace(world.jobs, nodes=np.full(len(world.jobs), nodes)))
        return float(static_priority(alike)[-1]), int(charges(alike, alike.jobs.partition)[-1])

    def resize(cluster: BranchableSlurm, job: int, nodes: int) -> None:
        jobs = cluster.run.jobs
        jobs.nodes[job], (jobs.static[job], jobs.charge[job]) = nodes, priced(nodes)

    return resize


def of_workload(workload: Workload, *, capacity: int, extra: int, nodes: int, limit_s: int, threads: int) -> Built:
    """Build a flat pool of `capacity` whole nodes for a workload, with Slurm's defaults (`inputs.jobs.flat`)."""
    if capacity > MOST_NODES:
        raise InputError(
            f"{counted(capacity, 'node', 'is')} too many for scheduler 'slurm', which records each: use at most "
            f"{MOST_NODES:,} nodes, or scheduler 'easy'"
        )
    submitter = Submitter(partition=0, qos=0, user=0, association=1)
    return build(flat(workload, capacity), submitter, extra=extra, nodes=nodes, limit_s=limit_s, threads=threads)


def _with_room(ready: Prepared, jobs: int) -> SlurmRun:
    """Return the run with working memory for all `jobs` at once, enough for branches with any room."""
    run = ready.run
    scratch = run.scratch._replace(victims=np.empty((jobs + 1, 2), np.int64))
    return as_block(SlurmRun(run.tables, run.jobs, run.knobs, scratch, run.out))


@kernel
def _advance(cluster: BranchableSlurm, branch: SlurmState, until_s: int) -> int:
    if clock.advance(cluster.run, branch, until_s, NONE) == clock.NO_ROOM:
        return interface.NO_ROOM
    return 0


@kernel
def _copy(cluster: BranchableSlurm, target: SlurmState, source: SlurmState) -> None:
    copy_state(target, source)


@kernel
def _submit(cluster: BranchableSlurm, branch: SlurmState, job: int, submit_s: int) -> None:
    clock.submit(cluster.run, branch, job, submit_s)


@kernel
def _start_of(cluster: BranchableSlurm, branch: SlurmState, job: int) -> int:
    return clock.advance(cluster.run, branch, NEVER, job)


@kernel
def _withdraw(cluster: BranchableSlurm, branch: SlurmState, job: int, now_s: int) -> None:
    withdraw(cluster.run, branch, job, now_s)


@kernel
def _relimit(cluster: BranchableSlurm, branch: SlurmState, job: int, limit_s: int) -> None:
    cluster.run.jobs.limit_s[job] = cluster.run.jobs.run_s[job] = limit_s


@kernel
def _competes(cluster: BranchableSlurm, job: int) -> bool:
    """Whether row `job` may take a node of the extra jobs' partition."""
    run = cluster.run
    return bool(cluster.seen.competes[run.tables.shape_partition[run.jobs.shape[job]]])


@kernel
def _place_of(cluster: BranchableSlurm, branch: SlurmState, job: int, submit_s: int) -> int:
    """Rank the job by its priority on entering the queue; jobs that have not entered the queue are behind all."""
    run, queue = cluster.run, branch.queue
    key = (int(run.jobs.rank[job]) << 32) | priority(run, branch, job, 0)
    place, row = 0, 0
    while row < branch.scalars[QUEUE_ROWS] and queue[row, QUEUE_KEY] >= key:
        place += 1 if _competes(cluster, queue[row, QUEUE_JOB]) else 0
        row += 1
    return place


@njit
def _pending(cluster: BranchableSlurm, branch: SlurmState) -> tuple[Int64s, Int64s, Int64s]:
    """Return the row of each pending job, its submission, and whether it is held; each of shape (k,).

    The queue comes first, in its order. Then come the jobs that have not entered it because of a dependency, a begin
    time, a hold or a requeue. A job counts as held if another user's limit or an array throttle keeps it from starting.
    For the submitter's own jobs the limits are visible instead.
    """
    run, scalars, arrivals = cluster.run, branch.scalars, cluster.run.knobs.arrivals
    room = scalars[QUEUE_ROWS] + scalars[HELD_JOBS]
    rows, submit_s, held = np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(room, np.int64)
    count = 0
    for i in range(scalars[QUEUE_ROWS]):
        job = branch.queue[i, QUEUE_JOB]
        if _competes(cluster, job):
            limited = run.jobs.user[job] != cluster.seen.user and over_limit(run, branch, job)
            rows[count], submit_s[count] = job, branch.queue[i, QUEUE_SUBMIT]
            held[count] = 1 if limited or throttled(run, branch, job) else 0
            count += 1
    if scalars[HELD_JOBS] > 0:
        for job in range(len(branch.phase)):
            if branch.phase[job] == HELD and _competes(cluster, job):
                extra = job - arrivals
                rows[count], held[count] = job, 1
                submit_s[count] = run.jobs.submit_s[job] if extra < 0 else branch.extra_submit_s[extra]
                count += 1
    return rows[:count], submit_s[:count], held[:count]


@njit
def _held_nodes(cluster: BranchableSlurm, branch: SlurmState) -> Int64s:
    """Count the nodes of the partition by the slot of the running job that may keep them longest, shape (slots,)."""
    count, words = branch.scalars[RUNNING_ROWS], len(cluster.seen.nodes)
    nodes, left = np.zeros(count, np.int64), cluster.seen.nodes.copy()
    for i in range(count - 1, -1, -1):
        slot = branch.planned[i, 2]
        for word in range(words):
            nodes[slot] += count_bits(left[word] & branch.held[slot, word])
            left[word] &= ~branch.held[slot, word]
    return nodes


@njit
def _nodes_of_partition(cluster: BranchableSlurm, branch: SlurmState, now_s: int) -> tuple[int, int]:
    """Count the nodes of the partition, and those in service: neither drained nor kept free by a reservation."""
    tables, sets = cluster.run.tables, branch.sets
    present = cluster.seen.nodes & ~sets[OUT]
    usable = present & ~sets[DRAINED]
    for row in range(len(tables.outage_kind)):
        if tables.outage_kind[row] == RESERVATION and tables.outage_begin[row] <= now_s < tables.outage_end[row]:
            usable &= ~tables.outage_nodes[row]
    count, of_these = 0, 0
    for word in range(len(present)):
        count += count_bits(present[word])
        of_these += count_bits(usable[word])
    return count, of_these


@njit
def _arrived(cluster: BranchableSlurm, branch: SlurmState, now_s: int) -> Int64s:
    """Return the rows of the jobs that arrived in the last DAY_S, shape (k,)."""
    jobs, last = cluster.run.jobs, branch.scalars[NEXT_ARRIVAL]
    first = np.searchsorted(jobs.submit_s[: cluster.run.knobs.arrivals], now_s - DAY_S)
    rows, count = np.empty(max(last - first, 0), np.int64), 0
    for job in range(first, last):
        if branch.phase[job] != UNPLACEABLE and _competes(cluster, job):
            rows[count] = job
            count += 1
    return rows[:count]


@njit
def _visible(cluster: BranchableSlurm, branch: SlurmState, now_s: int) -> Visible:
    jobs, recent, seen = cluster.run.jobs, branch.recent, cluster.seen
    pending, submit_s, held = _pending(cluster, branch)
    running, nodes = branch.running[: branch.scalars[RUNNING_ROWS]], _held_nodes(cluster, branch)
    shown = np.flatnonzero(nodes)  # of slots, whose order past ends have made
    capacity, usable = _nodes_of_partition(cluster, branch, now_s)
    arrived = _arrived(cluster, branch, now_s)
    started = recent.started[: min(recent.counts[STARTS], len(recent.started))]
    # Copies, because an array of a block does not keep its memory alive.
    return Visible(
        capacity,
        usable,
        jobs.nodes[pending],
        jobs.limit_s[pending],
        submit_s,
        held,
        jobs.user[pending],
        nodes[shown],
        running[:, RUN_PLANNED][shown] - running[:, RUN_START][shown],
        running[:, RUN_START][shown],
        jobs.user[running[:, RUN_JOB][shown]],
        started[:, TIME].copy(),
        started[:, WAIT].copy(),
        started[:, NODES].copy(),
        recent.ended_use[: min(recent.counts[ENDS], len(recent.ended_use))].copy(),
        jobs.submit_s[arrived],
        jobs.nodes[arrived] * jobs.limit_s[arrived],
        seen.max_jobs,
        seen.max_nodes,
    )


interface.implement(
    BranchableSlurm, Operations(_advance, _copy, _submit, _start_of, _place_of, _visible, _withdraw, _relimit)
)
