"""Prepare a declared world for the compiled scheduler: check it, find unplaceable jobs, build tables and a state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.blocks import as_block
from simulator.recent import new_recent
from simulator.slurm import world as w
from simulator.slurm.compiled.bits import as_words
from simulator.slurm.compiled.fairtree import rank_users
from simulator.slurm.compiled.priority import static_priority
from simulator.slurm.compiled.state import (
    CAPACITY,
    EMPTY,
    FREE_FROM,
    INJECTED_JOB,
    LAST_BACKFILL,
    LAST_FULL,
    LAST_REQUESTED,
    LAST_USAGE,
    LONG_AGO,
    NEVER_WAITS,
    NEXT_TICK,
    NODE_COLUMNS,
    NOW,
    QUEUE_COLUMNS,
    REQUEST,
    RUN_COLUMNS,
    SCALARS,
    SETS,
    WATCHED,
    WATCHED_START,
    WORDS_ROWS,
    Out,
    SlurmJobColumns,
    SlurmKnobs,
    SlurmRun,
    SlurmScratch,
    SlurmState,
    Tables,
    copy_state,
)
from simulator.slurm.inputs.pools import limit_pools
from simulator.slurm.inputs.unplaceable import Shapes, request, shapes_of, unplaceable
from simulator.slurm.world import FUTURE, NEVER, NONE, UNPLACEABLE
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError

_REMEMBERED = 1024  # cached look-ahead results of a backfill pass; a power of 2
_FIRST_ROWS = 1024  # room for live jobs; doubled when needed


class Prepared(NamedTuple):
    """A run and its state, both blocks (`simulator.blocks`), and the reason why each job can never start."""

    run: SlurmRun
    state: SlurmState
    reason: Int64s  # (jobs,) why a job can never start


def prepared(world: w.SlurmWorld, arrivals: int | None = None, free_from: int = 0) -> Prepared:
    """Build the tables and the empty cluster of a world. Rows from `arrivals` on do not arrive by themselves.

    Before second `free_from` there is no pass, and only pinned jobs start; from then on pins have no effect.
    Raises InputError for impossible values: negative times, unknown rows, jobs out of order, circular preemption. A job
    that can never start is not an error: it is UNPLACEABLE, with a reason.
    """
    _check(world)
    jobs, settings = world.jobs, world.settings
    static = static_priority(world)  # first, because it needs the most memory
    shapes = shapes_of(world)
    class_of_job, pool_first, pool_ids, pool_limit = limit_pools(world)
    pools = (pool_first, pool_ids, pool_limit)
    reason = unplaceable(world, shapes, class_of_job, pools, jobs.pinned_s < free_from)
    placeable = reason == w.PLACEABLE
    child_first, child, waits = _dependencies(world, placeable)
    group, group_next, group_head, singleton = _groups(world, placeable, waits)
    classes = _preemption_classes(world)
    whole = bool(shapes.exclusive.all()) and bool((jobs.pinned_s == NEVER).all())
    knobs = _knobs(
        settings,
        len(jobs) if arrivals is None else arrivals,
        len(world.dependencies.job),
        bool(classes[0].any()),
        whole,
    )
    columns = _columns(world, shapes.of_job, class_of_job, static, placeable)
    tables = _tables(world, shapes, pools, (child_first, child), (group, group_next, singleton), classes)
    placement_first = np.concatenate([[0], np.cumsum(jobs.nodes)])
    none = np.full(len(jobs), NONE, np.int64)
    out = Out(none, none.copy(), np.zeros(len(jobs), bool), placement_first,
              np.full(int(placement_first[-1]), NONE, np.int32))  # fmt: skip
    run = SlurmRun(tables, columns, knobs, _scratch(world, knobs, tables), out)
    state = _new_state(run, min(len(jobs), _FIRST_ROWS) + 1, len(group_head))
    state.phase[:] = np.where(placeable, FUTURE, UNPLACEABLE)
    state.waits[:] = waits
    state.group_head[:] = group_head
    state.scalars[FREE_FROM] = free_from
    ready = Prepared(as_block(run), as_block(state), reason)
    if len(state.factor):
        rank_users(ready.run, ready.state)
    return ready


def grown(ready: Prepared) -> Prepared:
    """Return the same run and state with twice the room for live jobs."""
    run, rows = ready.run, 2 * len(ready.state.queue)
    state = new_branch(ready, rows, len(ready.state.recent.started))
    scratch = run.scratch._replace(victims=np.empty((rows, 2), np.int64))
    return Prepared(as_block(SlurmRun(run.tables, run.jobs, run.knobs, scratch, run.out)), state, ready.reason)


def new_branch(ready: Prepared, rows: int, remembered: int) -> SlurmState:
    """Return a copy of the prepared state, a block, with room for `rows` live jobs.

    It keeps the last `remembered` starts and ends: as many as the prepared state, or none.
    """
    state = as_block(_new_state(ready.run, rows, len(ready.state.group_head), remembered))
    copy_state(state, ready.state)
    return state


def _columns(
    world: w.SlurmWorld, shape: Int64s, class_of_job: Int64s, static: NDArray[np.float64], placeable: NDArray[np.bool_]
) -> SlurmJobColumns:
    """Return the jobs' columns. A column of the world is not copied if its layout suits the compiled code."""
    jobs, partitions = world.jobs, world.partitions
    partition = np.where(placeable, jobs.partition, 0)
    by_partition = world.settings.preempt_by_partition
    rank = np.zeros(len(jobs), np.int64) if by_partition else _preemption_levels(world.qos)[jobs.qos] << 16
    rank |= partitions.priority_tier[partition]
    return SlurmJobColumns(
        submit_s=_column(jobs.submit_s), eligible_s=_column(jobs.eligible_s), cancel_s=_column(jobs.cancel_s),
        run_s=_column(jobs.run_s), limit_s=_column(jobs.limit_s), failed=np.ascontiguousarray(jobs.failed, bool),
        nodes=_column(jobs.nodes), shape=_column(shape), rank=rank.astype(np.int32), static=static,
        pools=_column(class_of_job), user=_column(jobs.user), qos=_column(jobs.qos),
        preempt_class=_column(partition if by_partition else jobs.qos),
        association=_column(jobs.association), charge=charges(world, partition), array=_column(jobs.array),
        any_dependency=np.ascontiguousarray(jobs.any_dependency, bool), pinned_s=_column(jobs.pinned_s),
    )  # fmt: skip


def charges(world: w.SlurmWorld, partition: Int64s) -> Int64s:
    """What each job is charged per second, in thousandths of a billing unit, (jobs,). partition: (jobs,) rows."""
    jobs = world.jobs
    billing = np.zeros(len(jobs))
    for tres in range(w.TRES):
        billing += world.partitions.billing[partition, tres] * request(jobs, tres)
    billing *= world.qos.usage_factor[jobs.qos]
    billing *= 1000
    return np.round(billing).astype(np.int64)


def _column(values: Int64s) -> Int64s:
    return np.ascontiguousarray(values, np.int64)


def _check(world: w.SlurmWorld) -> None:
    jobs, settings = world.jobs, world.settings
    for name, lowest in (
        ("submit_s", 0), ("run_s", 0), ("limit_s", 1), ("nodes", 1), ("cpus_per_node", 0), ("memory_per_node_mb", 0),
        ("gpus_per_node", 0), ("user", 0), ("qos", 0), ("association", 0),
    ):  # fmt: skip
        values = getattr(jobs, name)
        if (bad := np.flatnonzero(values < lowest)).size:
            raise InputError(
                f"job row {bad[0]} has {name} {values[bad[0]]}, but the minimum is {lowest} "
                f"({counted(bad.size, 'such job')}): leave such jobs out or correct the trace"
            )
    for name, rows in (("qos", len(world.qos)), ("association", len(world.associations))):
        values = getattr(jobs, name)
        if (bad := np.flatnonzero(values >= rows)).size:
            raise InputError(
                f"job row {bad[0]} has {name} {values[bad[0]]}, but the world has {counted(rows, 'row')}, from 0: "
                "correct the job or add the row"
            )
    if (bad := np.flatnonzero(np.diff(jobs.submit_s) < 0)).size:
        raise InputError(
            f"job row {bad[0] + 1} was submitted before job row {bad[0]}: sort the jobs by (submit_s, job id)"
        )
    for name in ("sched_interval_s", "bf_interval_s", "bf_resolution_s", "calc_period_s", "max_age_s", "bf_window_s"):
        if getattr(settings, name) < 1:
            raise InputError(f"setting {name} is {getattr(settings, name)} s: give at least 1 s")
    pinned = np.diff(world.pinned_first)
    if (bad := np.flatnonzero((pinned != 0) & (pinned != jobs.nodes))).size:
        raise InputError(
            f"job row {bad[0]} asks for {counted(jobs.nodes[bad[0]], 'node')} but is pinned to {pinned[bad[0]]}: "
            "make the two equal"
        )


def _preemption_classes(world: w.SlurmWorld) -> tuple[NDArray[np.bool_], Int64s, Int64s]:
    """Return which class of jobs may preempt which, how each is preempted, and the priority by which it gives way."""
    qos, partitions = world.qos, world.partitions
    if world.settings.preempt_by_partition:
        tier, mode = partitions.priority_tier, partitions.preempt_mode
        return (tier[:, None] > tier[None, :]) & (mode != w.PREEMPT_OFF)[None, :], mode, tier
    return qos.preempts, qos.preempt_mode, np.minimum(qos.priority, 0xFFFF)


def _preemption_levels(qos: w.SlurmQos) -> Int64s:
    """Return each QOS's level: 0 if it preempts none, else one above the highest level that it preempts."""
    level = np.zeros(len(qos), np.int64)
    for _ in range(len(qos) + 1):
        above = np.where(qos.preempts.any(axis=1), (qos.preempts * (level + 1)).max(axis=1, initial=0), 0)
        if (above == level).all():
            return level
        level = above
    raise InputError(f"the QOS {', '.join(qos.names)} preempt one another in a circle: remove one Preempt entry")


def _dependencies(world: w.SlurmWorld, placeable: NDArray[np.bool_]) -> tuple[Int64s, Int64s, NDArray[np.int32]]:
    """Return children by parent, shapes (jobs + 1,) and (dependencies, 3), and each job's number of open conditions."""
    edges, count = world.dependencies, len(world.jobs)
    if not len(edges.job):
        return np.zeros(1, np.int64), np.zeros((0, 3), np.int64), np.zeros(0, np.int32)
    single = edges.kind == w.SINGLETON
    waits = np.bincount(edges.job[~single], minlength=count).astype(np.int32)
    waits[edges.job[single]] += 1  # once per job, even if given repeatedly
    order = np.flatnonzero(~single)[np.argsort(edges.parent[~single], kind="stable")]
    child_first = np.concatenate([[0], np.cumsum(np.bincount(edges.parent[order], minlength=count))])
    child = np.column_stack([edges.job[order], edges.kind[order], edges.delay_s[order]]).astype(np.int64)
    # An unplaceable parent counts as ended from the beginning; AFTER and AFTEROK are never satisfied by it.
    for row in np.flatnonzero(~single):
        if not placeable[edges.parent[row]]:
            met = edges.kind[row] in (w.AFTERANY, w.AFTERNOTOK)
            _settle(waits, int(edges.job[row]), bool(world.jobs.any_dependency[edges.job[row]]), met)
    return child_first.astype(np.int64), child, waits


def _settle(waits: NDArray[np.int32], job: int, any_dependency: bool, met: bool) -> None:
    """Apply `moves.satisfy` or `moves._fail` before the run."""
    if waits[job] == 0 or waits[job] >= NEVER_WAITS:
        return
    if met:
        waits[job] = 0 if any_dependency else waits[job] - 1
    elif any_dependency and waits[job] > 1:
        waits[job] -= 1
    else:
        waits[job] = NEVER_WAITS


def _groups(
    world: w.SlurmWorld, placeable: NDArray[np.bool_], waits: NDArray[np.int32]
) -> tuple[Int64s, Int64s, Int64s, NDArray[np.bool_]]:
    """Link the jobs of one user and name for SINGLETON: return group, next row, first rows, and who is a SINGLETON."""
    jobs, edges = world.jobs, world.dependencies
    waiting = np.unique(edges.job[edges.kind == w.SINGLETON])
    if not waiting.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
    singleton = np.zeros(len(jobs), bool)
    singleton[waiting] = True
    _, key = np.unique(np.column_stack([jobs.user, jobs.name]), axis=0, return_inverse=True)
    wanted = np.unique(key[waiting])
    group = np.full(len(jobs), NONE, np.int64)
    following = np.full(len(jobs), NONE, np.int64)
    heads = np.full(len(wanted), NONE, np.int64)
    for number, value in enumerate(wanted):
        members = np.flatnonzero((key == value) & placeable)
        if not members.size:
            continue
        group[members] = number
        following[members[:-1]] = members[1:]
        heads[number] = members[0]
        if singleton[members[0]]:
            _settle(waits, int(members[0]), bool(jobs.any_dependency[members[0]]), True)
    return group, following, heads, singleton


def _knobs(settings: w.SlurmSettings, arrivals: int, conditions: int, preemption: bool, whole: bool) -> SlurmKnobs:
    decay = 1.0
    if settings.decay_half_life_s > 0:
        decay = (1 - 0.693 / settings.decay_half_life_s) ** settings.calc_period_s
    return SlurmKnobs(
        weight_age=float(settings.weight_age), weight_fairshare=float(settings.weight_fairshare),
        max_age_s=float(settings.max_age_s), calc_period_s=settings.calc_period_s, decay=decay,
        default_queue_depth=settings.default_queue_depth, sched_interval_s=settings.sched_interval_s,
        batch_sched_delay_s=settings.batch_sched_delay_s, backfill=int(settings.backfill),
        bf_interval_s=settings.bf_interval_s, bf_window_s=settings.bf_window_s,
        bf_resolution_s=settings.bf_resolution_s, bf_max_job_test=settings.bf_max_job_test,
        bf_max_job_part=settings.bf_max_job_part, bf_max_job_user=settings.bf_max_job_user,
        bf_max_job_start=settings.bf_max_job_start, bf_max_job_array_resv=settings.bf_max_job_array_resv,
        bf_job_part_count_reserve=settings.bf_job_part_count_reserve,
        bf_min_age_reserve_s=settings.bf_min_age_reserve_s, bf_min_prio_reserve=settings.bf_min_prio_reserve,
        end_grace_s=settings.over_time_limit_s + settings.kill_wait_s, completing_s=settings.completing_s,
        requeue_delay_s=max(1, settings.requeue_delay_s),  # a requeue by a pass enters the queue in the next second
        origin_s=settings.origin_s, arrivals=arrivals,
        conditions=conditions, preemption=int(preemption), youngest_first=int(settings.preempt_youngest_first),
        strict_order=int(settings.preempt_strict_order), reorder_count=settings.preempt_reorder_count,
        whole_nodes=int(whole),
    )  # fmt: skip


def _tables(
    world: w.SlurmWorld,
    shapes: Shapes,
    pools: tuple[Int64s, Int64s, Int64s],
    children: tuple[Int64s, Int64s],
    groups: tuple[Int64s, Int64s, NDArray[np.bool_]],
    classes: tuple[NDArray[np.bool_], Int64s, Int64s],
) -> Tables:
    nodes, outages, tree = world.nodes, world.outages, world.associations
    rows = np.arange(len(outages.kind))
    events = np.concatenate([
        np.column_stack([outages.begin_s, np.ones_like(rows), rows]),
        np.column_stack([outages.end_s, np.zeros_like(rows), rows]),
    ]).astype(np.int64).reshape(-1, 3)  # fmt: skip
    changes = np.concatenate([[False], np.diff(nodes.weight) != 0])[None]
    below = np.argsort(tree.parent[1:], kind="stable") + 1
    counts = np.bincount(tree.parent[1:], minlength=len(tree))
    return Tables(
        node_size=np.column_stack([nodes.cpus, nodes.memory_mb, nodes.gpus]).astype(np.int64),
        node_weight=_column(nodes.weight), weight_changes=as_words(changes)[0],
        partition_nodes=as_words(world.partitions.nodes),
        least_loaded=np.ascontiguousarray(world.partitions.least_loaded, bool),
        shape_partition=shapes.partition, shape_share=shapes.share, shape_exclusive=shapes.exclusive,
        shape_nodes=as_words(shapes.nodes), pool_first=pools[0], pool_ids=pools[1], pool_limit=pools[2],
        throttle=_column(world.array_throttle), outage_kind=_column(outages.kind),
        outage_begin=_column(outages.begin_s), outage_end=_column(outages.end_s),
        outage_announced=_column(outages.announced_s), outage_nodes=as_words(outages.nodes),
        outage_event=np.ascontiguousarray(events[np.lexsort((events[:, 2], events[:, 1], events[:, 0]))]),
        capacity=np.column_stack([world.capacity.time_s, world.capacity.nodes]).astype(np.int64).reshape(-1, 2),
        child_first=children[0], child=children[1], group=groups[0], group_next=groups[1], singleton=groups[2],
        parent=_column(tree.parent), below_first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        below=_column(below), shares=_column(tree.shares), leaf=tree.user != NONE,
        qos_exempt=_column(world.qos.preempt_exempt_s), preempt_priority=_column(classes[2]),
        preempt_mode=_column(classes[1]), preempts=np.ascontiguousarray(classes[0], bool),
        pinned_first=_column(world.pinned_first), pinned_nodes=_column(world.pinned_nodes),
    )  # fmt: skip


def _scratch(world: w.SlurmWorld, knobs: SlurmKnobs, tables: Tables) -> SlurmScratch:
    nodes, words = len(world.nodes), tables.partition_nodes.shape[1]
    slots = max(2, knobs.bf_max_job_test) + 3
    users = int(world.jobs.user.max(initial=0)) + 1
    rows = min(len(world.jobs), _FIRST_ROWS) + 1
    return SlurmScratch(
        node=np.zeros((nodes, NODE_COLUMNS), np.int64), words=np.zeros((WORDS_ROWS, words), np.int64),
        runs=np.zeros((nodes + 1, 4), np.int64), slots=np.zeros(9, np.int64),
        slot_begin=np.zeros(slots + 1, np.int64), slot_nodes=np.zeros((words, slots), np.int64),
        slot_and=np.zeros((words, slots), np.int64),
        part_count=np.zeros((len(world.partitions), 3), np.int64),
        user_count=np.zeros(users, np.int64), array_count=np.zeros((len(world.array_throttle), 2), np.int64),
        idle=np.zeros_like(tables.shape_nodes), idle_nodes=np.zeros(len(tables.shape_partition), np.int64),
        stamp=np.zeros(2, np.int64), idle_stamp=np.zeros(len(tables.shape_partition), np.int64),
        refused=np.zeros((len(tables.shape_partition), 3), np.int64),
        ready_stamp=np.zeros(len(tables.shape_partition), np.int64),
        ready=np.zeros((len(tables.shape_partition), nodes), np.int32),
        ready_order=np.zeros((len(tables.shape_partition), nodes), np.int32),
        ready_nodes=np.zeros(len(tables.shape_partition), np.int64),
        memory=np.zeros((_REMEMBERED, 2 + words), np.int64), reserved_from=np.zeros(nodes, np.int64),
        order=np.zeros((len(world.associations), 4), np.int64), keys=np.zeros(len(world.associations)),
        victims=np.zeros((rows, 2), np.int64),
    )  # fmt: skip


def _new_state(run: SlurmRun, rows: int, groups: int, remembered: int = 0) -> SlurmState:
    """Return an empty cluster with room for `rows` live jobs."""
    tables, knobs = run.tables, run.knobs
    jobs, nodes, words = len(run.jobs.submit_s), len(tables.node_weight), tables.partition_nodes.shape[1]
    fair = knobs.weight_fairshare != 0.0
    associations = len(tables.parent)
    scalars = np.zeros(SCALARS, np.int64)
    scalars[NOW] = -1
    scalars[CAPACITY] = nodes
    scalars[REQUEST] = NEVER
    scalars[[LAST_REQUESTED, LAST_BACKFILL, LAST_FULL, NEXT_TICK]] = LONG_AGO
    scalars[[FREE_FROM, LAST_USAGE]] = 0
    scalars[[WATCHED, WATCHED_START, INJECTED_JOB]] = NONE
    node = np.zeros((nodes, NODE_COLUMNS), np.int64)
    node[:, :3] = tables.node_size
    sets = np.zeros((SETS, words), np.int64)
    sets[EMPTY] = as_words(np.ones((1, nodes), bool))[0]
    return SlurmState(
        scalars=scalars, queue=np.zeros((rows, QUEUE_COLUMNS), np.int64),
        running=np.zeros((rows, RUN_COLUMNS), np.int64),
        held=np.zeros((rows, words), np.int64), releases=np.zeros((rows, 3), np.int64),
        planned=np.zeros((rows, 3), np.int64), timers=np.zeros((5 * rows + knobs.conditions + 16, 2), np.int64),
        node=node, sets=sets, pool_used=np.zeros((len(tables.pool_limit), 5), np.int64),
        array_running=np.zeros(len(tables.throttle), np.int64), phase=np.zeros(jobs, np.int8),
        waits=np.zeros(jobs if len(tables.child_first) > 1 else 0, np.int32), group_head=np.zeros(groups, np.int64),
        usage=np.zeros(associations if fair else 0), fresh=np.zeros(associations if fair else 0, np.int64),
        factor=np.zeros(associations if fair else 0),
        reservation=np.zeros(len(tables.outage_kind), np.int64),
        restarts=np.zeros(jobs if knobs.preemption else 0, np.int8),
        extra_submit_s=np.zeros(jobs - knobs.arrivals, np.int64), recent=new_recent(remembered),
    )  # fmt: skip
