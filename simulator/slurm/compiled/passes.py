"""The main pass over the queue, and the tests that both passes make before a job may start. Compiled."""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.slurm.compiled.limits import over_limit, throttled
from simulator.slurm.compiled.moves import start
from simulator.slurm.compiled.placement import count, hold_now, in_service, pick
from simulator.slurm.compiled.preemption import candidates, choose_by_preemption
from simulator.slurm.compiled.state import (
    AVAILABLE,
    BLOCKED,
    CHOSEN,
    MET,
    NOW,
    QUEUE_ACCRUE,
    QUEUE_JOB,
    QUEUE_KEY,
    QUEUE_ROWS,
    REJECTED,
    REMOVED,
    RESERVATIONS,
    RESERVATIONS_AT,
    SERVICE,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.compiled.waiting import compact_queue
from simulator.slurm.world import NEVER, NONE, RESERVATION

_LOW_WORD = (1 << 32) - 1  # of a queue's key: the priority


@kernel
def know_reservations(run: SlurmRun, state: SlurmState) -> None:
    """List the announced reservations that have not ended, and set when the list changes next."""
    scalars, tables = state.scalars, run.tables
    now = scalars[NOW]
    if now < scalars[RESERVATIONS_AT]:
        return
    known = 0
    change = NEVER
    for row in range(len(tables.outage_kind)):
        if tables.outage_kind[row] != RESERVATION or tables.outage_end[row] <= now:
            continue
        if tables.outage_announced[row] > now:
            change = min(change, tables.outage_announced[row])
        else:
            state.reservation[known] = row
            known += 1
            change = min(change, tables.outage_end[row])
    scalars[RESERVATIONS], scalars[RESERVATIONS_AT] = known, change


@kernel
def keep_off_reservations(run: SlurmRun, state: SlurmState, row: int, begin_s: int, end_s: int, partition: int) -> int:
    """Remove nodes reserved within [begin_s, end_s) from row `row` of `SlurmScratch.words`.

    Returns the earliest end among those reservations that hold a node of the partition, NEVER if there is none.
    """
    tables, words = run.tables, run.scratch.words
    first_end = NEVER
    for i in range(state.scalars[RESERVATIONS]):
        outage = state.reservation[i]
        if tables.outage_begin[outage] >= end_s or tables.outage_end[outage] <= begin_s:
            continue
        for w in range(words.shape[1]):
            words[row, w] &= ~tables.outage_nodes[outage, w]
            if tables.outage_nodes[outage, w] & tables.partition_nodes[partition, w]:
                first_end = min(first_end, int(tables.outage_end[outage]))
    return first_end


@kernel_inline
def reserves(run: SlurmRun, state: SlurmState, row: int) -> bool:
    """Whether the job in row `row` of the queue has enough age and priority to reserve nodes."""
    knobs, queue = run.knobs, state.queue
    return bool(
        state.scalars[NOW] - queue[row, QUEUE_ACCRUE] >= knobs.bf_min_age_reserve_s
        and (queue[row, QUEUE_KEY] & _LOW_WORD) >= knobs.bf_min_prio_reserve
    )


@kernel
def clear_counts(run: SlurmRun) -> None:
    """Reset the counts of a pass: no partition is blocked, no array rejected, no job considered."""
    scratch = run.scratch
    for p in range(len(scratch.part_count)):
        for column in range(3):
            scratch.part_count[p, column] = 0
    for a in range(len(scratch.array_count)):
        scratch.array_count[a, 0], scratch.array_count[a, 1] = 0, 0
    if run.knobs.bf_max_job_user > 0:
        for u in range(len(scratch.user_count)):
            scratch.user_count[u] = 0


@kernel
def main_pass(run: SlurmRun, state: SlurmState, full: bool) -> None:
    """Start jobs in queue order; a job that must wait for busy nodes blocks its partition and its nodes.

    Follows slurmctld's `_schedule()`: a limited pass tests `default_queue_depth` + 1 jobs, a full pass tests all.
    """
    scratch, queue, words = run.scratch, state.queue, run.scratch.words
    clear_counts(run)
    know_reservations(run, state)
    in_service(run, state, SERVICE)
    for w in range(words.shape[1]):
        words[REMOVED, w] = 0
    blocked = 0
    tested = 0
    started = False
    for row in range(state.scalars[QUEUE_ROWS]):
        job = int(queue[row, QUEUE_JOB])
        array = int(run.jobs.array[job])
        if array == NONE or scratch.array_count[array, MET] == 0:
            tested += 1
            if not full and tested > run.knobs.default_queue_depth + 1:
                break
        if array != NONE:
            scratch.array_count[array, MET] = 1
        partition = int(run.tables.shape_partition[run.jobs.shape[job]])
        if scratch.part_count[partition, BLOCKED] != 0 or (array != NONE and scratch.array_count[array, REJECTED] != 0):
            continue
        limited = over_limit(run, state, job) or throttled(run, state, job)
        for w in range(words.shape[1]):
            words[AVAILABLE, w] = run.tables.partition_nodes[partition, w] & words[SERVICE, w] & ~words[REMOVED, w]
        too_few = count(words, AVAILABLE) < run.jobs.nodes[job]  # whatever they hold
        if not limited and not too_few and _find_nodes(run, state, job, partition):
            queue[row, QUEUE_JOB] = NONE
            start(run, state, job, False)
            started = True
            continue
        if array != NONE:
            scratch.array_count[array, REJECTED] = 1
        waits = count(words, AVAILABLE) >= run.jobs.nodes[job] and reserves(run, state, row)
        if not limited and (too_few or waits):
            scratch.part_count[partition, BLOCKED] = 1
            for w in range(words.shape[1]):
                words[REMOVED, w] |= run.tables.partition_nodes[partition, w]
            blocked += 1
            if blocked == len(scratch.part_count):
                break
    if started:
        compact_queue(state)


@kernel_part
def _find_nodes(run: SlurmRun, state: SlurmState, job: int, partition: int) -> bool:
    """Fill row AVAILABLE with the nodes that the job may use; return whether enough hold its share.

    If so, row CHOSEN holds them. Jobs that it may preempt are ended if that makes enough room.
    """
    words, shape, wanted = run.scratch.words, int(run.jobs.shape[job]), int(run.jobs.nodes[job])
    for w in range(words.shape[1]):
        words[AVAILABLE, w] = run.tables.shape_nodes[shape, w] & words[SERVICE, w] & ~words[REMOVED, w]
    if state.scalars[RESERVATIONS] > 0:
        now = state.scalars[NOW]
        keep_off_reservations(run, state, AVAILABLE, now, now + run.jobs.limit_s[job], partition)
    if hold_now(run, state, shape, AVAILABLE, wanted) and pick(run, state.node, CHOSEN, shape, wanted):
        return True
    if run.knobs.preemption == 0:
        return False
    return choose_by_preemption(run, state, AVAILABLE, job, candidates(run, state, job))
