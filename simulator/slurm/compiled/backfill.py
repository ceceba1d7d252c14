"""The backfill loop's pass: jobs in the order of the queue reserve whole nodes ahead, or start in the gaps. Compiled.

Step numbers are those of docs/schedulers/slurm.md, "Backfill pass".
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.compiled.ahead import begin_attempts, next_attempt, place_ahead, remembered
from simulator.slurm.compiled.candidates import (
    fit_now,
    last_in_the_way,
    last_that_may_start,
    only_nodes_count,
    take_base,
)
from simulator.slurm.compiled.limits import over_limit, throttled
from simulator.slurm.compiled.moves import start
from simulator.slurm.compiled.passes import clear_counts, know_reservations, reserves
from simulator.slurm.compiled.placement import count, hold_now, in_service, pick
from simulator.slurm.compiled.preemption import choose_by_preemption
from simulator.slurm.compiled.slots import ATTEMPT, CUTS, FIRST, READY, TESTED, USED, overlaps, reserve
from simulator.slurm.compiled.state import (
    CHOSEN,
    NOW,
    ON_PASS,
    QUEUE_JOB,
    QUEUE_ROWS,
    REJECTED,
    RESERVATIONS,
    RESERVED,
    RESERVING,
    SERVICE,
    TAKEN_UP,
    USABLE,
    Run,
    State,
)
from simulator.slurm.compiled.waiting import compact_queue
from simulator.slurm.world import NONE

_NEXT_JOB, _STARTED, _RESERVED, _END_PASS = 0, 1, 2, 3  # what became of a job


@kernel
def backfill_pass(run: Run, state: State) -> None:
    """One pass over the queue, of which only what starts remains: it plans no more jobs than that depends on.

    It ends behind the last row that may start (`last`). Once at most one other may (`rival`; the one before is `third`)
    and none of the rest can take their nodes (`in_the_way` is the last that might), it skips to them: the first starts,
    and whatever that does to the second, no start depends on the plans passed over. All four only move to the front.
    """
    scratch, knobs, queue = run.scratch, run.knobs, state.queue
    _begin_pass(run, state)
    changed = True
    last = int(state.scalars[QUEUE_ROWS]) - 1
    rival, third, in_the_way = last, last, last
    tested = 0
    started = 0
    row = 0
    while row <= last and tested < knobs.bf_max_job_test:
        if knobs.preemption == 0 and changed:
            last = last_that_may_start(run, state, row, last)
            if last < row:
                break
        if knobs.preemption == 0 and last > row and (changed or row - 1 == third or row - 1 == in_the_way):
            was_rival, rival = rival, last_that_may_start(run, state, row, min(rival, last - 1))
            if rival < was_rival < last:
                in_the_way = max(in_the_way, was_rival)
            third = last_that_may_start(run, state, row, min(third, rival - 1))
            if third < row and only_nodes_count(run, state, row, rival, last, tested):
                in_the_way = last_in_the_way(run, state, row, min(in_the_way, last - 1), rival, last)
                if in_the_way < row:
                    row = rival if rival >= row else last
        job = int(queue[row, QUEUE_JOB])
        array = int(run.jobs.array[job])
        if _is_skipped(run, state, job, array):
            changed = False
            row += 1
            continue
        partition = int(run.tables.shape_partition[run.jobs.shape[job]])
        reserving = reserves(run, state, row) and (
            knobs.bf_job_part_count_reserve == 0
            or scratch.part_count[partition, RESERVING] < knobs.bf_job_part_count_reserve
        )
        outcome = _plan(run, state, job, reserving)
        tested += scratch.slots[TESTED]
        if outcome == _STARTED:
            queue[row, QUEUE_JOB] = NONE
            started += 1
            if started == knobs.bf_max_job_start:
                break
        elif outcome == _RESERVED:
            scratch.part_count[partition, RESERVING] += 1
            if array != NONE:
                scratch.array_count[array, RESERVED] += 1
                if scratch.array_count[array, RESERVED] >= knobs.bf_max_job_array_resv:
                    scratch.array_count[array, REJECTED] = 1
        elif outcome == _END_PASS:
            break
        elif array != NONE:
            scratch.array_count[array, REJECTED] = 1
        changed = outcome != _NEXT_JOB
        row += 1
    if started > 0:
        compact_queue(state)


@kernel_inline
def _begin_pass(run: Run, state: State) -> None:
    """One slot with all nodes in service, nothing counted, nothing known."""
    scratch, now, resolution = run.scratch, int(state.scalars[NOW]), run.knobs.bf_resolution_s
    in_service(run, state, SERVICE)
    clear_counts(run)
    know_reservations(run, state)
    scratch.stamp[ON_PASS] += 1
    scratch.slots[USED], scratch.slots[CUTS] = 1, 1
    scratch.slot_begin[0] = now // resolution * resolution
    scratch.slot_begin[1] = (now + run.knobs.bf_window_s) // resolution * resolution
    for w in range(scratch.words.shape[1]):
        scratch.slot_nodes[w, 0] = scratch.words[SERVICE, w]


@kernel_inline
def _is_skipped(run: Run, state: State, job: int, array: int) -> bool:
    """Step 2; a job that is not skipped counts as taken up."""
    scratch, knobs = run.scratch, run.knobs
    if array != NONE and scratch.array_count[array, REJECTED] != 0:
        return True
    partition = run.tables.shape_partition[run.jobs.shape[job]]
    if (
        over_limit(run, state, job)
        or throttled(run, state, job)
        or (knobs.bf_max_job_part > 0 and scratch.part_count[partition, TAKEN_UP] >= knobs.bf_max_job_part)
        or (knobs.bf_max_job_user > 0 and scratch.user_count[run.jobs.user[job]] >= knobs.bf_max_job_user)
    ):
        if array != NONE:
            scratch.array_count[array, REJECTED] = 1
        return True
    scratch.part_count[partition, TAKEN_UP] += 1
    if knobs.bf_max_job_user > 0:
        scratch.user_count[run.jobs.user[job]] += 1
    return False


@kernel_inline
def _plan(run: Run, state: State, job: int, reserving: bool) -> int:
    """Steps 4.a to 4.f for row `job`: what became of it; slots[TESTED] is 1 if it was tested."""
    knobs, words, slots = run.knobs, run.scratch.words, run.scratch.slots
    now, wanted, shape = int(state.scalars[NOW]), int(run.jobs.nodes[job]), int(run.jobs.shape[job])
    length, resolution = int(run.jobs.limit_s[job]), knobs.bf_resolution_s
    if fit_now(run, state, shape, wanted, length):
        slots[TESTED] = 1
        pick(run, state.node, CHOSEN, shape, wanted)
        start(run, state, job, True)
        return _STARTED
    begin_attempts(run, state, shape)
    # With reservations the base changes, and a job that may preempt may start at once where too few nodes are ready.
    patient = reserving and state.scalars[RESERVATIONS] == 0 and knobs.preemption == 0
    attempt = now
    while attempt <= now + knobs.bf_window_s:
        reserved_until = take_base(run, state, shape, attempt, attempt + length)
        later = next_attempt(run, state, job, attempt, patient)
        attempt = int(slots[ATTEMPT])
        if reserved_until < now + knobs.bf_window_s and (later == NONE or reserved_until < later):
            later = reserved_until
        begin, last = NONE, NONE
        if hold_now(run, state, shape, USABLE, wanted):
            begin = now
        elif (
            attempt == now
            and knobs.preemption != 0
            and count(words, USABLE) >= wanted
            and choose_by_preemption(run, state, USABLE, job)
        ):
            start(run, state, job, True)
            return _STARTED
        elif reserving and slots[READY] >= wanted:
            last = remembered(run, state, shape, wanted)
            begin = int(state.planned[last, 0])
            if begin <= now:
                begin = max(now + 1, begin + knobs.end_grace_s)
        if begin == NONE or (later != NONE and begin > later):
            if later == NONE or not reserving:
                return _NEXT_JOB
            attempt = later
            continue
        if begin > now:
            place_ahead(run, state, shape, wanted, last)
        else:
            pick(run, state.node, CHOSEN, shape, wanted)
        begin = max(begin, attempt)
        if begin == now:
            start(run, state, job, True)
            return _STARTED
        if not reserving or begin > now + knobs.bf_window_s:
            return _NEXT_JOB
        reserve_from = begin // resolution * resolution
        reserve_to = (begin + length) // resolution * resolution
        if overlaps(run, 0 if reserve_from < attempt else int(slots[FIRST]), reserve_from, reserve_to):
            attempt = begin + (resolution if begin == attempt else 0)
            continue
        if slots[CUTS] >= max(2, knobs.bf_max_job_test):
            return _END_PASS
        reserve(run, reserve_from, max(reserve_to, reserve_from + resolution))
        return _RESERVED
    return _NEXT_JOB
