"""Slurm behind the interface of `simulator.cluster`: the jobs of a trace on whole nodes, under Slurm's rules.

Extra jobs are given to the controller as a user's own would be: they wait in the queue, age, and are planned by their
limit like any other. docs/schedulers/slurm.md says what the controller does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator import cluster as interface
from simulator.blocks import as_block
from simulator.cluster import DAY_S, NO_LIMIT, Built, Operations, Visible
from simulator.compiled import kernel, njit
from simulator.recent import ENDS, NODES, STARTS, TIME, WAIT
from simulator.slurm.compiled import kernel as clock
from simulator.slurm.compiled.state import (
    CAPACITY,
    DRAINED,
    NEXT_ARRIVAL,
    OUT,
    QUEUE_JOB,
    QUEUE_ROWS,
    QUEUE_SUBMIT,
    RUN_JOB,
    RUN_PLANNED,
    RUN_START,
    RUNNING_ROWS,
    Run,
    State,
    copy_state,
)
from simulator.slurm.inputs.jobs import flat
from simulator.slurm.inputs.prepare import Prepared, new_branch, prepared
from simulator.slurm.world import NEVER, NONE
from simulator.workload import Workload
from traces.errors import InputError

MOST_NODES = 1 << 20  # of a flat pool: each node is known


class Cluster(NamedTuple):
    """The tables of a run and its working memory, a block. Its branches are `State`s, blocks too."""

    run: Run


def build(
    workload: Workload, *, scheduler: str, capacity: int, extra: int, nodes: int, limit_s: int, threads: int
) -> Built:
    """The workload's jobs on a flat pool of `capacity` whole nodes under Slurm's defaults (`inputs.jobs.flat`)."""
    if capacity > MOST_NODES:
        raise InputError(f"scheduler {scheduler!r} knows each node: {capacity:,} are over {MOST_NODES:,}; use easy")
    last_s = workload.submit_s[-1:].max(initial=0)  # rows of jobs are in order of submission
    more = (np.full(extra, value, np.int64) for value in (NONE, last_s, nodes, limit_s, limit_s, NONE))
    names = Workload.__dataclass_fields__
    whole = Workload(*(np.append(getattr(workload, name), column) for name, column in zip(names, more, strict=True)))
    world, count = flat(whole, capacity), len(workload)
    ready = [prepared(world, count) for _ in range(threads)]
    return Built(
        tuple(Cluster(_with_room(one, len(whole))) for one in ready),
        count,
        capacity,
        lambda rows, remembered: new_branch(ready[0], rows, remembered),
    )


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
def _usable(branch: State) -> int:
    """Nodes in service."""
    nodes = len(branch.node)
    for n in range(len(branch.node)):
        nodes -= (branch.sets[OUT, n >> 6] | branch.sets[DRAINED, n >> 6]) >> (n & 63) & 1
    return min(nodes, int(branch.scalars[CAPACITY]))


@njit
def _visible(cluster: Cluster, branch: State, now_s: int) -> Visible:
    jobs, recent = cluster.run.jobs, branch.recent
    queue, running = branch.queue[: branch.scalars[QUEUE_ROWS]], branch.running[: branch.scalars[RUNNING_ROWS]]
    started = recent.started[: min(recent.counts[STARTS], len(recent.started))]
    last = branch.scalars[NEXT_ARRIVAL]
    first = np.searchsorted(jobs.submit_s[: cluster.run.knobs.arrivals], now_s - DAY_S)
    # Copies, for no array of a block keeps its memory alive. Running jobs are in an order that past ends have made.
    return Visible(
        int(branch.scalars[CAPACITY]),
        _usable(branch),
        jobs.nodes[queue[:, QUEUE_JOB]],
        jobs.limit_s[queue[:, QUEUE_JOB]],
        queue[:, QUEUE_SUBMIT].copy(),
        np.zeros(len(queue), np.int64),  # a flat pool holds nobody and limits no user
        np.zeros(len(queue), np.int64),
        jobs.nodes[running[:, RUN_JOB]],
        running[:, RUN_PLANNED] - running[:, RUN_START],
        running[:, RUN_START].copy(),
        np.zeros(len(running), np.int64),
        started[:, TIME].copy(),
        started[:, WAIT].copy(),
        started[:, NODES].copy(),
        recent.ended_use[: min(recent.counts[ENDS], len(recent.ended_use))].copy(),
        jobs.submit_s[first:last].copy(),
        jobs.nodes[first:last] * jobs.limit_s[first:last],
        NO_LIMIT,
        NO_LIMIT,
    )


interface.implement(Cluster, Operations(_advance, _copy, _submit, _start_of, _visible))
