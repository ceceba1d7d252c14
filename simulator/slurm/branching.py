"""Slurm behind the interface of `simulator.cluster`: a declared world, with jobs that are submitted into it.

Extra jobs are given to the controller as a user's own would be: they wait in the queue, age, count in their limits, and
are planned by their limit like any other. docs/schedulers/slurm.md says what the controller does.

What is visible is what concerns the partition of the extra jobs: its nodes, the jobs that hold some of them, and the
pending jobs of partitions that share nodes with it. A node that several jobs share counts as held by the one of them
that may keep it longest, so that it comes free when it is whole again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator import cluster as interface
from simulator.blocks import as_block
from simulator.cluster import DAY_S, Built, Operations, Visible
from simulator.compiled import kernel, njit
from simulator.recent import ENDS, NODES, STARTS, TIME, WAIT
from simulator.slurm.compiled import kernel as clock
from simulator.slurm.compiled.bits import as_words, count_bits
from simulator.slurm.compiled.limits import over_limit, throttled
from simulator.slurm.compiled.priority import priority
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
    Bools,
    Int64s,
    Run,
    State,
    copy_state,
)
from simulator.slurm.inputs.jobs import flat
from simulator.slurm.inputs.prepare import Prepared, new_branch, prepared
from simulator.slurm.inputs.submitted import Submitter, user_limits, with_jobs
from simulator.slurm.world import NEVER, NONE, PLACEABLE, REASONS, RESERVATION, UNPLACEABLE, World
from simulator.workload import Workload
from traces.counted import counted
from traces.errors import InputError

MOST_NODES = 1 << 20  # of a flat pool: each node is known


class Seen(NamedTuple):
    """What concerns the extra jobs, and what limits their user (`simulator.slurm.inputs.submitted`)."""

    nodes: Int64s  # (words,) those of their partition
    competes: Bools  # (partitions,) whether it shares nodes with theirs
    user: int
    max_jobs: int
    max_nodes: int


class Cluster(NamedTuple):
    """The tables of a run and its working memory, and what is seen of it; blocks. Its branches are `State`s, too."""

    run: Run
    seen: Seen


def build(world: World, by: Submitter, *, extra: int, nodes: int, limit_s: int, threads: int) -> Built:
    """The jobs of a world, and extra ones of that submitter on whole nodes.

    Raises InputError where they could never start, with the reason.
    """
    whole = with_jobs(world, by, count=extra, nodes=nodes, limit_s=limit_s)
    unpinned = replace(whole.jobs, pinned_s=np.full(len(whole.jobs), NEVER))  # recorded starts mean nothing here
    whole = replace(whole, jobs=unpinned)
    ready = [prepared(whole, len(world.jobs)) for _ in range(threads)]
    for reason in ready[0].reason[len(world.jobs) :]:
        if reason != PLACEABLE:
            partition = world.partitions.names[by.partition]
            raise InputError(
                f"a job of {counted(nodes, 'whole node')} and {limit_s} s never starts in partition {partition!r}: "
                f"{REASONS[reason]}; give another --pair-nodes or --limit"
            )
    members = world.partitions.nodes
    competes = np.asarray((members & members[by.partition]).any(axis=1))
    seen = as_block(Seen(as_words(members[[by.partition]])[0], competes, by.user, *user_limits(world, by)))
    return Built(
        tuple(Cluster(_with_room(one, len(whole.jobs)), seen) for one in ready),
        len(world.jobs),
        int(members[by.partition].sum()),
        lambda rows, remembered: new_branch(ready[0], rows, remembered),
        by.user,
    )


def of_workload(workload: Workload, *, capacity: int, extra: int, nodes: int, limit_s: int, threads: int) -> Built:
    """The workload's jobs on a flat pool of `capacity` whole nodes under Slurm's defaults (`inputs.jobs.flat`)."""
    if capacity > MOST_NODES:
        raise InputError(f"scheduler 'slurm' knows each node: {capacity:,} are over {MOST_NODES:,}; use easy")
    by = Submitter(partition=0, qos=0, user=0, association=1)
    return build(flat(workload, capacity), by, extra=extra, nodes=nodes, limit_s=limit_s, threads=threads)


def _with_room(ready: Prepared, jobs: int) -> Run:
    """The run with working memory for as many jobs alive as there are: branches differ in their room."""
    run = ready.run
    scratch = run.scratch._replace(victims=np.empty(jobs + 1, np.int64))
    return as_block(Run(run.tables, run.jobs, run.knobs, scratch, run.out))


@kernel
def _advance(cluster: Cluster, branch: State, until_s: int) -> int:
    if clock.advance(cluster.run, branch, until_s, NONE) == clock.NO_ROOM:
        return interface.NO_ROOM
    return 0


@kernel
def _copy(cluster: Cluster, target: State, source: State) -> None:
    copy_state(target, source)


@kernel
def _submit(cluster: Cluster, branch: State, job: int, submit_s: int) -> None:
    clock.submit(cluster.run, branch, job, submit_s)


@kernel
def _start_of(cluster: Cluster, branch: State, job: int) -> int:
    return clock.advance(cluster.run, branch, NEVER, job)


@kernel
def _competes(cluster: Cluster, job: int) -> bool:
    """Whether row `job` may take a node of the extra jobs' partition."""
    run = cluster.run
    return bool(cluster.seen.competes[run.tables.shape_partition[run.jobs.shape[job]]])


@kernel
def _place_of(cluster: Cluster, branch: State, job: int, submit_s: int) -> int:
    """By the priority of a job that has just entered the queue; jobs that have not entered it are behind all."""
    run, queue = cluster.run, branch.queue
    key = (int(run.jobs.rank[job]) << 32) | priority(run, branch, job, 0)
    place, row = 0, 0
    while row < branch.scalars[QUEUE_ROWS] and queue[row, QUEUE_KEY] >= key:
        place += 1 if _competes(cluster, queue[row, QUEUE_JOB]) else 0
        row += 1
    return place


@njit
def _pending(cluster: Cluster, branch: State) -> tuple[Int64s, Int64s, Int64s]:
    """Rows of the pending jobs, when each was submitted, and whether something other than the queue keeps it; (k,).

    The queue in its order, then the jobs that have not entered it: dependencies, begin times, holds, requeues. A job of
    another user over a limit, or of an array that is throttled, is kept; for the submitter's own the limits are shown.
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
def _held_nodes(cluster: Cluster, branch: State) -> Int64s:
    """Nodes of the partition by slot of the running job that may keep them longest; (slots,)."""
    count, words = branch.scalars[RUNNING_ROWS], len(cluster.seen.nodes)
    nodes, left = np.zeros(count, np.int64), cluster.seen.nodes.copy()
    for i in range(count - 1, -1, -1):
        slot = branch.planned[i, 2]
        for word in range(words):
            nodes[slot] += count_bits(left[word] & branch.held[slot, word])
            left[word] &= ~branch.held[slot, word]
    return nodes


@njit
def _nodes_of_partition(cluster: Cluster, branch: State, now_s: int) -> tuple[int, int]:
    """(nodes of the partition, those of them in service: neither drained nor kept free by a reservation)."""
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
def _arrived(cluster: Cluster, branch: State, now_s: int) -> Int64s:
    """Rows of the jobs that arrived in the last DAY_S; (k,)."""
    jobs, last = cluster.run.jobs, branch.scalars[NEXT_ARRIVAL]
    first = np.searchsorted(jobs.submit_s[: cluster.run.knobs.arrivals], now_s - DAY_S)
    rows, count = np.empty(max(last - first, 0), np.int64), 0
    for job in range(first, last):
        if branch.phase[job] != UNPLACEABLE and _competes(cluster, job):
            rows[count] = job
            count += 1
    return rows[:count]


@njit
def _visible(cluster: Cluster, branch: State, now_s: int) -> Visible:
    jobs, recent, seen = cluster.run.jobs, branch.recent, cluster.seen
    pending, submit_s, held = _pending(cluster, branch)
    running, nodes = branch.running[: branch.scalars[RUNNING_ROWS]], _held_nodes(cluster, branch)
    shown = np.flatnonzero(nodes)  # of slots, whose order past ends have made
    capacity, usable = _nodes_of_partition(cluster, branch, now_s)
    arrived = _arrived(cluster, branch, now_s)
    started = recent.started[: min(recent.counts[STARTS], len(recent.started))]
    # Copies, for no array of a block keeps its memory alive.
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


interface.implement(Cluster, Operations(_advance, _copy, _submit, _start_of, _place_of, _visible))
