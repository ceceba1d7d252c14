"""The data of the compiled `slurm` scheduler: the tables of a run, which never change, and a state.

Rows and columns, all int64 (`words` are sets of nodes, `simulator.slurm.compiled.bits`):

    queue[i, QUEUE_JOB | QUEUE_KEY | QUEUE_SUBMIT | QUEUE_ACCRUE]  in order: falling key, rising (submit, job)
    running[r, RUN_JOB | RUN_START | RUN_PLANNED | RUN_RELEASE]    slot r of a running job; RUN_PLANNED: start + limit;
                                                                   RUN_RELEASE: true release of its nodes (hidden from
                                                                   all policies)
    held[r]                                                        words: nodes of slot r
    releases[i, 0 | 1 | 2]                                         (RUN_RELEASE, job, slot), falling: the next is last
    planned[i, 0 | 1 | 2]                                          (RUN_PLANNED, job, slot), rising
    timers[i, 0 | 1]                                               heap of (second, kind << 40 | job)
    node[n, IDLE_CPUS | IDLE_MEMORY | IDLE_GPUS | JOBS | DRAINS]   an exclusive job counts EXCLUSIVE in JOBS
    sets[OUT | DRAINED | EMPTY]                                    words: out of service for capacity, drained, no job
    pool_used[p, 0..4]                                             running jobs and TRES of a pool of limits

Compiled code takes `SlurmRun` and `SlurmState` as blocks (`simulator.blocks`), by address.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simulator.blocks  # noqa: F401 - compiled code depends on it to read a SlurmRun or SlurmState
from simulator.compiled import kernel
from simulator.recent import RecentJobs, copy_recent
from simulator.slurm.world import PENDING, STATES
from traces.arrays import Bools, Float64s, Int8s, Int32s, Int64s

LONG_AGO = -(1 << 60)
NO_CAP = 1 << 60  # the value of a missing limit

QUEUE_JOB, QUEUE_KEY, QUEUE_SUBMIT, QUEUE_ACCRUE = 0, 1, 2, 3
QUEUE_COLUMNS = 4
RUN_JOB, RUN_START, RUN_PLANNED, RUN_RELEASE = 0, 1, 2, 3
RUN_COLUMNS = 4
IDLE_CPUS, IDLE_MEMORY, IDLE_GPUS, JOBS, DRAINS = 0, 1, 2, 3, 4
NODE_COLUMNS = 5
EXCLUSIVE = 1 << 30

OUT, DRAINED, EMPTY = 0, 1, 2  # rows of SlurmState.sets
SETS = 3

ELIGIBLE, SATISFIED, CANCEL, PIN, ENTER = 0, 1, 2, 3, 4  # kinds of timer, in the order in which they are taken
TIMER_KIND = 40  # bits of a timer below its kind

# Phases of a job in SlurmState.phase: those of world.STATES, with PENDING split in two.
HELD = PENDING  # waits for its conditions
QUEUED = len(STATES)  # in the queue

# Entries of SlurmState.scalars.
(
    NOW,
    NEXT_ARRIVAL,
    QUEUE_ROWS,
    HELD_JOBS,
    RUNNING_ROWS,
    TIMERS,
    NEXT_OUTAGE,
    NEXT_CAPACITY,
    CAPACITY,
    OUT_COUNT,
    REQUEST,
    LAST_REQUESTED,
    LAST_BACKFILL,
    NEXT_TICK,
    FREE_FROM,
    HAPPENED,
    ENDED,
    WATCHED,
    WATCHED_START,
    RESERVATIONS,
    RESERVATIONS_AT,
    INJECTED_JOB,
    INJECTED_LAST,
    INJECTED_SUBMIT,
    LAST_USAGE,
    NEXT_SECOND,
    LAST_FULL,
    SETTLED,
) = range(28)
SCALARS = 28


class SlurmKnobs(NamedTuple):
    """`world.SlurmSettings` and sizes for the kernel: integers, except the weights."""

    weight_age: float
    weight_fairshare: float
    max_age_s: float
    calc_period_s: int
    decay: float  # factor on usage per calculation period
    default_queue_depth: int
    sched_interval_s: int
    batch_sched_delay_s: int
    backfill: int
    bf_interval_s: int
    bf_window_s: int
    bf_resolution_s: int
    bf_max_job_test: int
    bf_max_job_part: int
    bf_max_job_user: int
    bf_max_job_start: int
    bf_max_job_array_resv: int
    bf_job_part_count_reserve: int
    bf_min_age_reserve_s: int
    bf_min_prio_reserve: int
    end_grace_s: int  # over_time_limit_s + kill_wait_s
    completing_s: int
    requeue_delay_s: int
    origin_s: int
    arrivals: int  # number of rows that arrive by themselves; later rows only through `submit`
    conditions: int  # number of dependencies, each of which may set a timer once
    preemption: int  # 1 if some class may preempt another
    youngest_first: int
    strict_order: int
    reorder_count: int
    whole_nodes: int  # 1 if two jobs never share a node: every job is exclusive, and none is pinned


class Tables(NamedTuple):
    """The nodes and rules of a run. A `shape` is a distinct request per node in a partition, one row each."""

    node_size: Int64s  # (nodes, 3) CPUs, MB, GPUs
    node_weight: Int64s  # (nodes,)
    weight_changes: Int64s  # (words,) nodes whose weight differs from that of the node before
    partition_nodes: Int64s  # (partitions, words)
    least_loaded: Bools  # (partitions,)
    shape_partition: Int64s  # (shapes,)
    shape_share: Int64s  # (shapes, 3) CPUs, MB, GPUs per node
    shape_exclusive: Bools  # (shapes,)
    shape_nodes: Int64s  # (shapes, words) nodes that hold the share when idle
    pool_first: Int64s  # (classes + 1,) pools of class c: rows pool_first[c] .. pool_first[c + 1] - 1 of pool_ids
    pool_ids: Int64s
    pool_limit: Int64s  # (pools, 5) running jobs, CPU, MEMORY, NODE, GPU
    throttle: Int64s  # (arrays,)
    outage_kind: Int64s
    outage_begin: Int64s
    outage_end: Int64s
    outage_announced: Int64s
    outage_nodes: Int64s  # (outages, words)
    outage_event: Int64s  # (2 * outages, 3) second, 1 begins or 0 ends, row; sorted
    capacity: Int64s  # (changes, 2) second, nodes
    child_first: Int64s  # (jobs + 1,) or (1,) without dependencies
    child: Int64s  # (dependencies, 3) job, kind, delay
    group: Int64s  # (jobs,) or empty: group of jobs of one user and name that a SINGLETON waits for, or NONE
    group_next: Int64s  # (jobs,) or empty: next row of its group
    singleton: Bools  # (jobs,) or empty
    parent: Int64s  # (associations,) a parent comes before its children
    below_first: (
        Int64s  # (associations + 1,) children of row a: rows below_first[a] .. below_first[a + 1] - 1 of `below`
    )
    below: Int64s  # (associations - 1,)
    shares: Int64s  # (associations,)
    leaf: Bools  # (associations,) whether it belongs to a user
    qos_exempt: Int64s
    preempt_priority: Int64s  # (classes,) QOS, or partitions; a lower one gives way first
    preempt_mode: Int64s  # (classes,)
    preempts: Bools  # (classes, classes)
    pinned_first: Int64s
    pinned_nodes: Int64s


class SlurmJobColumns(NamedTuple):
    """The columns of the jobs, one row per job by (submit, job id); int64 unless noted."""

    submit_s: Int64s
    eligible_s: Int64s
    cancel_s: Int64s
    run_s: Int64s
    limit_s: Int64s
    failed: Bools
    nodes: Int64s
    shape: Int64s
    rank: Int32s  # preemption level << 16 | partition tier
    static: Float64s  # priority without age and fair share
    pools: Int64s  # class of limits, NONE for none
    user: Int64s
    qos: Int64s
    preempt_class: Int64s  # row of its QOS or of its partition
    association: Int64s
    charge: Int64s  # thousandths of a billing unit per second
    array: Int64s
    any_dependency: Bools
    pinned_s: Int64s


class SlurmState(NamedTuple):
    """The state of a run; the module's docstring explains rows and columns."""

    scalars: Int64s  # (SCALARS,)
    queue: Int64s
    running: Int64s
    held: Int64s
    releases: Int64s
    planned: Int64s
    timers: Int64s
    node: Int64s
    sets: Int64s
    pool_used: Int64s
    array_running: Int64s
    phase: Int8s  # (jobs,)
    waits: Int32s  # (jobs,) conditions outstanding, or empty; NEVER_WAITS: never satisfied
    group_head: Int64s  # (groups,) first row of a group that has not ended
    usage: Float64s  # (associations,) decayed usage
    fresh: Int64s  # (associations,) usage since the last calculation
    factor: Float64s  # (associations,) fair-share factor
    reservation: Int64s  # rows of outages that are known reservations, RESERVATIONS of them
    restarts: Int8s  # (jobs,) if preemption may requeue, else empty
    extra_submit_s: Int64s  # (jobs beyond SlurmKnobs.arrivals,) submission of each, if submitted
    recent: RecentJobs  # the latest starts and ends


NEVER_WAITS = 1 << 30


class SlurmScratch(NamedTuple):
    """Working memory of a pass; has no meaning between calls, so states that advance in turn may share it."""

    node: Int64s  # (nodes, NODE_COLUMNS) copy for looking ahead
    words: Int64s  # (WORDS_ROWS, words)
    runs: Int64s  # (nodes + 1, 4) placement: first, last, number, weight
    slots: Int64s  # (9,) `simulator.slurm.compiled.slots`
    slot_begin: Int64s  # (most slots + 1,)
    slot_nodes: Int64s  # (words, most slots)
    slot_and: Int64s  # (words, most slots)
    part_count: Int64s  # (partitions, 3) whether blocked; jobs considered; jobs with a reservation
    user_count: Int64s  # (users,) jobs considered
    array_count: Int64s  # (arrays, 2) whether rejected; whether met, or the number of reservations
    idle: Int64s  # (shapes, words) nodes that hold the share now
    idle_nodes: Int64s  # (shapes,) their number
    stamp: Int64s  # (2,) current stamp of `idle`, `ready` and `memory` (ON_NODES), and of `refused` (ON_PASS)
    idle_stamp: Int64s  # (shapes,)
    refused: Int64s  # (shapes, 3) stamp; a number of nodes that cannot start now, and a length of time
    ready_stamp: Int64s  # (shapes,)
    ready: Int32s  # (shapes, nodes) running jobs that must end before a node holds the share, by expected end
    ready_order: Int32s  # (shapes, nodes) the nodes that will hold the share, in this order
    ready_nodes: Int64s  # (shapes,) their number
    memory: Int64s  # (a power of 2, 2 + words) stamp, shape, number of nodes; row of `planned`; usable nodes
    reserved_from: Int64s  # (nodes,) the second from which the node is first reserved in this pass
    order: Int64s  # (associations, 4) fair tree
    keys: Float64s  # (associations,) fair tree
    victims: Int64s  # (running rows, 2) preemption


class Out(NamedTuple):
    """The results of each job; written but never read, so branches may share it as working memory."""

    start_s: Int64s
    end_s: Int64s
    by_backfill: Bools
    placement_first: Int64s
    placement: Int32s


ON_NODES, ON_PASS = 0, 1  # entries of SlurmScratch.stamp
BLOCKED, TAKEN_UP, RESERVING = 0, 1, 2  # columns of SlurmScratch.part_count: main pass; backfill pass, twice
REJECTED, MET, RESERVED = 0, 1, 1  # columns of SlurmScratch.array_count: both passes; main pass; backfill pass

# Rows of SlurmScratch.words.
SERVICE, REMOVED, AVAILABLE, CHOSEN, BASE, USABLE, HOLDING, EARLY, NEWER = range(9)
WORDS_ROWS = 9


class SlurmRun(NamedTuple):
    """All inputs of a compiled function other than the state."""

    tables: Tables
    jobs: SlurmJobColumns
    knobs: SlurmKnobs
    scratch: SlurmScratch
    out: Out


@kernel
def copy_state(target: SlurmState, source: SlurmState) -> None:
    """Make `target`, with at least the room that `source` uses, equal to `source`.

    Cost: the live jobs, the nodes, and one byte per job of the trace.
    """
    for i in range(SCALARS):
        target.scalars[i] = source.scalars[i]
    running = source.scalars[RUNNING_ROWS]
    _copy_rows(target.queue, source.queue, source.scalars[QUEUE_ROWS])
    _copy_rows(target.timers, source.timers, source.scalars[TIMERS])
    _copy_rows(target.running, source.running, running)
    _copy_rows(target.held, source.held, running)
    _copy_rows(target.releases, source.releases, running)
    _copy_rows(target.planned, source.planned, running)
    _copy_rows(target.node, source.node, len(source.node))
    _copy_rows(target.sets, source.sets, SETS)
    _copy_rows(target.pool_used, source.pool_used, len(source.pool_used))
    _copy_cells(target.array_running, source.array_running)
    _copy_cells(target.phase, source.phase)
    _copy_cells(target.waits, source.waits)
    _copy_cells(target.group_head, source.group_head)
    _copy_cells(target.usage, source.usage)
    _copy_cells(target.fresh, source.fresh)
    _copy_cells(target.factor, source.factor)
    _copy_cells(target.reservation, source.reservation)
    _copy_cells(target.restarts, source.restarts)
    _copy_cells(target.extra_submit_s, source.extra_submit_s)
    copy_recent(target.recent, source.recent)


@kernel
def _copy_rows(target: Int64s, source: Int64s, rows: int) -> None:
    for i in range(rows):
        for column in range(source.shape[1]):
            target[i, column] = source[i, column]


@kernel
def _copy_cells(target: NDArray[np.generic], source: NDArray[np.generic]) -> None:
    for i in range(len(source)):
        target[i] = source[i]
