"""Find the jobs that can still start in a backfill pass, and those that can prevent them: skip other plans. Compiled.

A *candidate* is a waiting job that could start now: no limit holds it, enough nodes hold its share, and no reservation
made so far in this pass needs them before its time limit. During a pass the idle nodes decrease and the reservations
increase. So without preemption a job that is no candidate at some point cannot become one later. An *obstacle* is a
waiting job that is no candidate but whose reservation might take a node from one. Other jobs do not matter: no
reservation outlives its pass, so a plan that keeps no candidate from starting has no effect.

Example: 64 nodes of 4 GPUs, time 0, 500 jobs waiting. On n7 and n9 one GPU is idle, and the jobs there are expected to
end at 7,200; no other GPU is idle. The jobs in rows 310 (limit 600 s) and 470 (limit 1,200 s) of the queue ask for one
GPU, all others for 4 GPUs per node. Rows behind 470 are never planned, since none of them can start. The jobs ahead
that need whole nodes can reserve n7 and n9 only from 7,200 on, long after both candidates end. So none of them is an
obstacle, and the pass goes from row 0 to row 310 and on to row 470 without the other 498 plans. A job in row 100 that
asks for one GPU on each of three nodes would be an obstacle: it could not start, but might reserve n7 from now on.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.slurm.compiled.ahead import NEVER_READY, count_ends_needed
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
    SlurmRun,
    SlurmState,
)
from simulator.slurm.world import NEVER, NONE

_STAMP, _WANTED, _LENGTH = 0, 1, 2  # columns of SlurmScratch.refused


@kernel
def fill_base(run: SlurmRun, state: SlurmState, shape: int, begin: int, end: int) -> int:
    """Apply step 4.b: fill row BASE with the partition's nodes in service and free of known reservations.

    Known reservations of [begin, end), such as maintenance, are announced by the world. Returns the result of
    `keep_off_reservations`.
    """
    words, partition = run.scratch.words, int(run.tables.shape_partition[shape])
    for w in range(words.shape[1]):
        words[BASE, w] = run.tables.partition_nodes[partition, w] & words[SERVICE, w]
    if state.scalars[RESERVATIONS] == 0:
        return NEVER
    return int(keep_off_reservations(run, state, BASE, begin, end, partition))


@kernel
def is_candidate(run: SlurmRun, state: SlurmState, row: int) -> bool:
    """Whether the job in row `row` of the queue could start now, by limits, idle nodes and current slots."""
    job = state.queue[row, QUEUE_JOB]
    if over_limit(run, state, job) or throttled(run, state, job):
        return False
    shape, wanted, length = run.jobs.shape[job], run.jobs.nodes[job], run.jobs.limit_s[job]
    stamp, refused = run.scratch.stamp[ON_PASS], run.scratch.refused
    if refused[shape, _STAMP] == stamp and wanted >= refused[shape, _WANTED] and length >= refused[shape, _LENGTH]:
        return False
    if fits_now(run, state, shape, wanted, length):
        return True
    refused[shape, _STAMP], refused[shape, _WANTED], refused[shape, _LENGTH] = stamp, wanted, length
    return False


@kernel
def fits_now(run: SlurmRun, state: SlurmState, shape: int, wanted: int, length: int) -> bool:
    """Whether a share of `shape` could start now for `length` s on `wanted` nodes; fills row HOLDING with them."""
    if find_idle(run, state, shape) < wanted:
        return False
    now = int(state.scalars[NOW])
    fill_base(run, state, shape, now, now + length)
    usable(run, now + length, first_slot_after(run, 0, now))
    return hold_now(run, state, shape, USABLE, wanted)


@kernel
def last_candidate(run: SlurmRun, state: SlurmState, from_row: int, to_row: int) -> int:
    """Return the last row of the queue in [from_row, to_row] whose job may start, else from_row - 1."""
    row = to_row
    while row >= from_row and not is_candidate(run, state, row):
        row -= 1
    return row


@kernel_part
def only_nodes_matter(run: SlurmRun, state: SlurmState, row: int, second: int, last: int, tested: int) -> bool:
    """Whether jobs from `row` on can prevent a start in rows `second` and `last` only by reserving nodes.

    That is, no counter (jobs tested, slots made, jobs of a partition, a user or an array) can reach a limit that would
    end the pass before `last` or skip one of the two.
    """
    knobs, array = run.knobs, run.jobs.array
    return bool(
        knobs.bf_max_job_part == 0
        and knobs.bf_max_job_user == 0
        and (second < row or array[state.queue[second, QUEUE_JOB]] == NONE)
        and array[state.queue[last, QUEUE_JOB]] == NONE
        and tested + (last - row) < knobs.bf_max_job_test
        and run.scratch.slots[CUTS] + 2 * (last - row) < max(2, knobs.bf_max_job_test)
    )


@kernel
def last_obstacle(run: SlurmRun, state: SlurmState, from_row: int, to_row: int, second: int, last: int) -> int:
    """Return the last row in [from_row, to_row] whose job is an obstacle to the candidates `second` and `last`.

    These two are the only candidates, or only `last` if `second` is before `from_row`. Returns from_row - 1 for no
    obstacle. A node matters if one of the two could start on it, until that job's time limit. A waiting job reserves a
    node no earlier than the jobs on it are expected to make room for its share, and it must leave the node before the
    next reservation of the node.
    """
    words, now = run.scratch.words, int(state.scalars[NOW])
    job = state.queue[last, QUEUE_JOB]
    length = int(run.jobs.limit_s[job])
    fits_now(run, state, run.jobs.shape[job], run.jobs.nodes[job], length)
    if second >= from_row:
        for w in range(words.shape[1]):
            words[AVAILABLE, w] = words[HOLDING, w]
        job = state.queue[second, QUEUE_JOB]
        fits_now(run, state, run.jobs.shape[job], run.jobs.nodes[job], run.jobs.limit_s[job])
        length = max(length, int(run.jobs.limit_s[job]))
        for w in range(words.shape[1]):
            words[HOLDING, w] |= words[AVAILABLE, w]
    end = now + length
    _find_reserved_from(run, now)
    row = to_row
    while row >= from_row:
        job = state.queue[row, QUEUE_JOB]
        if (
            row != second
            and reserves(run, state, row)
            and not over_limit(run, state, job)
            and not throttled(run, state, job)
            and _is_obstacle(run, state, job, end)
        ):
            break
        row -= 1
    return row


@kernel_part
def _find_reserved_from(run: SlurmRun, now: int) -> None:
    """Fill `SlurmScratch.reserved_from` with the first reservation of each node of row HOLDING, s; NEVER for none."""
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
            scratch.reserved_from[n] = scratch.slot_begin[j] if j < scratch.slots[USED] else NEVER
            bits ^= bit


@kernel_part
def _is_obstacle(run: SlurmRun, state: SlurmState, job: int, end: int) -> bool:
    """Whether `job` might reserve a node of row HOLDING from `end` or an earlier second on, and fit before the next."""
    scratch, words, resolution = run.scratch, run.scratch.words, run.knobs.bf_resolution_s
    now, shape, length = int(state.scalars[NOW]), run.jobs.shape[job], int(run.jobs.limit_s[job])
    for w in range(words.shape[1]):
        bits = words[HOLDING, w] & run.tables.shape_nodes[shape, w]
        while bits != 0:
            n = (w << 6) + lowest_bit(bits)
            bits &= bits - 1
            if (now + length) // resolution * resolution > scratch.reserved_from[n]:
                continue
            if run.knobs.whole_nodes != 0:  # the node is empty, so the job could use it now
                return True
            count_ends_needed(run, state, shape)
            ended = scratch.ready[shape, n]
            if ended == NEVER_READY:
                continue
            begin = now if ended == 0 else max(now, int(state.planned[ended - 1, 0]))
            if (
                begin // resolution * resolution <= end
                and (begin + length) // resolution * resolution <= scratch.reserved_from[n]
            ):
                return True
    return False
