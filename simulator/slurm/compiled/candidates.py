"""Which jobs of the queue can still start in a backfill pass, and what can still keep them from it. Compiled.

Plans serve but to find what starts now: no reservation outlives its pass. Without preemption, idle nodes and slots
only lose nodes in the course of a pass, so a job that cannot start at one point of it cannot later.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.compiled.ahead import NEVER_READY, count_ends
from simulator.slurm.compiled.bits import lowest_bit
from simulator.slurm.compiled.limits import over_limit, throttled
from simulator.slurm.compiled.passes import keep_off_reservations, reserves
from simulator.slurm.compiled.placement import find_idle, hold_now
from simulator.slurm.compiled.slots import CUTS, USED, first_slot_after, usable
from simulator.slurm.compiled.state import (
    AVAILABLE,
    BASE,
    HOLDING,
    NOW,
    ON_PASS,
    QUEUE_JOB,
    RESERVATIONS,
    SERVICE,
    USABLE,
    Run,
    State,
)
from simulator.slurm.world import NEVER, NONE

_STAMP, _WANTED, _LENGTH = 0, 1, 2  # columns of Scratch.refused


@kernel
def take_base(run: Run, state: State, shape: int, begin: int, end: int) -> int:
    """Row BASE: nodes of the partition in service that no known reservation holds; see `keep_off_reservations`."""
    words, partition = run.scratch.words, int(run.tables.shape_partition[shape])
    for w in range(words.shape[1]):
        words[BASE, w] = run.tables.partition_nodes[partition, w] & words[SERVICE, w]
    if state.scalars[RESERVATIONS] == 0:
        return NEVER
    return int(keep_off_reservations(run, state, BASE, begin, end, partition))


@kernel
def may_start(run: Run, state: State, row: int) -> bool:
    """Whether the job in row `row` of the queue could start now, by limits, idle nodes and the slots so far."""
    job = state.queue[row, QUEUE_JOB]
    if over_limit(run, state, job) or throttled(run, state, job):
        return False
    shape, wanted, length = run.jobs.shape[job], run.jobs.nodes[job], run.jobs.limit_s[job]
    stamp, refused = run.scratch.stamp[ON_PASS], run.scratch.refused
    if refused[shape, _STAMP] == stamp and wanted >= refused[shape, _WANTED] and length >= refused[shape, _LENGTH]:
        return False
    if fit_now(run, state, shape, wanted, length):
        return True
    refused[shape, _STAMP], refused[shape, _WANTED], refused[shape, _LENGTH] = stamp, wanted, length
    return False


@kernel
def fit_now(run: Run, state: State, shape: int, wanted: int, length: int) -> bool:
    """Whether a share of `shape` could start now for `length` seconds on `wanted` nodes; they are in row HOLDING."""
    if find_idle(run, state, shape) < wanted:
        return False
    now = int(state.scalars[NOW])
    take_base(run, state, shape, now, now + length)
    usable(run, now + length, first_slot_after(run, 0, now))
    return hold_now(run, state, shape, USABLE, wanted)


@kernel
def last_that_may_start(run: Run, state: State, from_row: int, to_row: int) -> int:
    """The last row of the queue in [from_row, to_row] whose job may start, else from_row - 1."""
    row = to_row
    while row >= from_row and not may_start(run, state, row):
        row -= 1
    return row


@kernel_inline
def only_nodes_count(run: Run, state: State, row: int, rival: int, last: int, tested: int) -> bool:
    """Whether rows from `row` on can keep those of `rival` and `last` from a start by nothing but by taking nodes.

    That is, no count of theirs can reach a limit that would end the pass before `last` or leave one of the two out.
    """
    knobs, array = run.knobs, run.jobs.array
    return bool(
        knobs.bf_max_job_part == 0
        and knobs.bf_max_job_user == 0
        and (rival < row or array[state.queue[rival, QUEUE_JOB]] == NONE)
        and array[state.queue[last, QUEUE_JOB]] == NONE
        and tested + (last - row) < knobs.bf_max_job_test
        and run.scratch.slots[CUTS] + 2 * (last - row) < max(2, knobs.bf_max_job_test)
    )


@kernel
def last_in_the_way(run: Run, state: State, from_row: int, to_row: int, rival: int, last: int) -> int:
    """The last row in [from_row, to_row] that might take a node from row `rival` or `last`; else from_row - 1.

    None but these two may start; there may be no `rival` from `from_row` on. A node matters on which one of them could
    start, until its end. A job that waits reserves a node no earlier than it is ready for the job, and must leave it
    before the next reservation of it.
    """
    words, now = run.scratch.words, int(state.scalars[NOW])
    job = state.queue[last, QUEUE_JOB]
    length = int(run.jobs.limit_s[job])
    fit_now(run, state, run.jobs.shape[job], run.jobs.nodes[job], length)
    if rival >= from_row:
        for w in range(words.shape[1]):
            words[AVAILABLE, w] = words[HOLDING, w]
        job = state.queue[rival, QUEUE_JOB]
        fit_now(run, state, run.jobs.shape[job], run.jobs.nodes[job], run.jobs.limit_s[job])
        length = max(length, int(run.jobs.limit_s[job]))
        for w in range(words.shape[1]):
            words[HOLDING, w] |= words[AVAILABLE, w]
    end = now + length
    _find_kept(run, now)
    row = to_row
    while row >= from_row:
        job = state.queue[row, QUEUE_JOB]
        if (
            row != rival
            and reserves(run, state, row)
            and not over_limit(run, state, job)
            and not throttled(run, state, job)
            and _in_the_way(run, state, job, end)
        ):
            break
        row -= 1
    return row


@kernel_inline
def _find_kept(run: Run, now: int) -> None:
    """Fill Scratch.kept_from with the first second from `now` on from which a slot lacks each node of row HOLDING."""
    scratch, words = run.scratch, run.scratch.words
    first = first_slot_after(run, 0, now)
    for w in range(words.shape[1]):
        bits = words[HOLDING, w]
        while bits != 0:
            bit = bits & -bits
            j = first
            while j < scratch.slots[USED] and scratch.slot_nodes[w, j] & bit:
                j += 1
            n = (w << 6) + lowest_bit(bits)
            scratch.kept_from[n] = scratch.slot_begin[j] if j < scratch.slots[USED] else NEVER
            bits ^= bit


@kernel_inline
def _in_the_way(run: Run, state: State, job: int, end: int) -> bool:
    """Whether `job` might reserve a node of row HOLDING from a second up to `end` on, before it is kept for another."""
    scratch, words, resolution = run.scratch, run.scratch.words, run.knobs.bf_resolution_s
    now, shape, length = int(state.scalars[NOW]), run.jobs.shape[job], int(run.jobs.limit_s[job])
    for w in range(words.shape[1]):
        bits = words[HOLDING, w] & run.tables.shape_nodes[shape, w]
        while bits != 0:
            n = (w << 6) + lowest_bit(bits)
            bits &= bits - 1
            if (now + length) // resolution * resolution > scratch.kept_from[n]:
                continue
            if run.knobs.whole_nodes != 0:  # it is empty
                return True
            count_ends(run, state, shape)
            ended = scratch.ready[shape, n]
            if ended == NEVER_READY:
                continue
            begin = now if ended == 0 else max(now, int(state.planned[ended - 1, 0]))
            if (
                begin // resolution * resolution <= end
                and (begin + length) // resolution * resolution <= scratch.kept_from[n]
            ):
                return True
    return False
