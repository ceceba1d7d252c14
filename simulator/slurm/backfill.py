"""The backfill loop's pass: jobs in the order of the queue reserve whole nodes ahead, or start in the gaps. Compiled.

Step numbers are those of docs/schedulers/slurm.md, "Backfill pass".
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.bits import lowest_bit
from simulator.slurm.moves import compact_queue, over_limit, start, throttled
from simulator.slurm.passes import clear_counts, keep_off_reservations, know_reservations, reserves
from simulator.slurm.placement import choose, copy_nodes, count, holds, in_service, vacate
from simulator.slurm.preemption import choose_by_preemption
from simulator.slurm.state import (
    BASE,
    CHOSEN,
    NONE,
    NOW,
    QUEUE_JOB,
    QUEUE_ROWS,
    RUN_JOB,
    RUNNING_ROWS,
    SERVICE,
    USABLE,
    Run,
    State,
)

_TAKEN_UP, _RESERVING = 1, 2  # columns of Scratch.part_count
_REJECTED, _PLANNED = 0, 1  # columns of Scratch.array_count
_BEGIN, _END, _NEXT = 0, 1, 2  # columns of Scratch.slot
_FIRST_WINDOW_S = 30  # select/cons_tres looks at the ends of running jobs in groups that grow from 30 s on

_NEXT_JOB, _STARTED, _RESERVED, _END_PASS = 0, 1, 2, 3  # what became of a job


@kernel_inline
def _may_start(run: Run, state: State, row: int) -> bool:
    """Whether nothing but reservations of jobs stands against a start of the job in row `row` of the queue now.

    Free resources and room under limits only shrink in a pass without preemption, so what is False stays so.
    """
    job = state.queue[row, QUEUE_JOB]
    if over_limit(run, state, job) or throttled(run, state, job, 0):
        return False
    scratch, shape = run.scratch, run.jobs.shape[job]
    if scratch.shape_holds[shape, 0] != 1:
        held = 0
        for w in range(scratch.words.shape[1]):
            bits = run.tables.shape_nodes[shape, w] & scratch.words[SERVICE, w]
            while bits != 0:
                held += 1 if holds(run.tables, state.node, (w << 6) + lowest_bit(bits), shape) else 0
                bits &= bits - 1
        scratch.shape_holds[shape, 0], scratch.shape_holds[shape, 1] = 1, held
    return bool(scratch.shape_holds[shape, 1] >= run.jobs.nodes[job])


@kernel_inline
def _last_that_may_start(run: Run, state: State, from_row: int, to_row: int) -> int:
    """The last row of the queue in [from_row, to_row] whose job may start, else from_row - 1."""
    for s in range(len(run.scratch.shape_holds)):
        run.scratch.shape_holds[s, 0] = 0
    row = to_row
    while row >= from_row and not _may_start(run, state, row):
        row -= 1
    return row


@kernel
def backfill_pass(run: Run, state: State) -> None:
    """One pass over the queue. It ends early behind the last job that could start: plans are not kept for the next."""
    scratch, knobs, queue = run.scratch, run.knobs, state.queue
    rows = int(state.scalars[QUEUE_ROWS])
    in_service(run, state, SERVICE)
    last = rows - 1
    if knobs.preemption == 0:
        last = _last_that_may_start(run, state, 0, last)
        if last < 0:
            return
    clear_counts(run)
    know_reservations(run, state)
    now = int(state.scalars[NOW])
    scratch.slot[0, _BEGIN], scratch.slot[0, _END], scratch.slot[0, _NEXT] = now, now + knobs.bf_window_s, NONE
    for w in range(scratch.words.shape[1]):
        scratch.slot_nodes[0, w] = scratch.words[SERVICE, w]
    slots = 1
    tested = 0
    started = 0
    row = 0
    while row <= last and tested < knobs.bf_max_job_test:
        job = int(queue[row, QUEUE_JOB])
        array = int(run.jobs.array[job])
        if _is_skipped(run, state, job, array):
            row += 1
            continue
        partition = int(run.tables.shape_partition[run.jobs.shape[job]])
        reserving = reserves(run, state, row) and (
            knobs.bf_job_part_count_reserve == 0
            or scratch.part_count[partition, _RESERVING] < knobs.bf_job_part_count_reserve
        )
        outcome, slots, was_tested = _plan(run, state, job, reserving, slots)
        tested += was_tested
        if outcome == _STARTED:
            queue[row, QUEUE_JOB] = NONE
            started += 1
            if started == knobs.bf_max_job_start:
                break
            if knobs.preemption == 0:
                last = _last_that_may_start(run, state, row + 1, last)
        elif outcome == _RESERVED:
            scratch.part_count[partition, _RESERVING] += 1
            if array != NONE:
                scratch.array_count[array, _PLANNED] += 1
                if scratch.array_count[array, _PLANNED] >= knobs.bf_max_job_array_resv:
                    scratch.array_count[array, _REJECTED] = 1
        elif outcome == _END_PASS:
            break
        elif array != NONE:
            scratch.array_count[array, _REJECTED] = 1
        row += 1
    if started > 0:
        compact_queue(state)


@kernel_inline
def _is_skipped(run: Run, state: State, job: int, array: int) -> bool:
    """Step 2; a job that is not skipped counts as taken up."""
    scratch, knobs = run.scratch, run.knobs
    if array != NONE and scratch.array_count[array, _REJECTED] != 0:
        return True
    planned = scratch.array_count[array, _PLANNED] if array != NONE else 0
    partition = run.tables.shape_partition[run.jobs.shape[job]]
    if (
        over_limit(run, state, job)
        or throttled(run, state, job, planned)
        or (knobs.bf_max_job_part > 0 and scratch.part_count[partition, _TAKEN_UP] >= knobs.bf_max_job_part)
        or (knobs.bf_max_job_user > 0 and scratch.user_count[run.jobs.user[job]] >= knobs.bf_max_job_user)
    ):
        if array != NONE:
            scratch.array_count[array, _REJECTED] = 1
        return True
    scratch.part_count[partition, _TAKEN_UP] += 1
    if knobs.bf_max_job_user > 0:
        scratch.user_count[run.jobs.user[job]] += 1
    return False


@kernel_inline
def _plan(run: Run, state: State, job: int, reserving: bool, slots: int) -> tuple[int, int, int]:
    """Steps 4.a to 4.f for row `job`: (what became of it, slots now, 1 if it was tested)."""
    knobs, words = run.knobs, run.scratch.words
    now, wanted, shape = int(state.scalars[NOW]), int(run.jobs.nodes[job]), int(run.jobs.shape[job])
    length, resolution = int(run.jobs.limit_s[job]), knobs.bf_resolution_s
    partition = int(run.tables.shape_partition[shape])
    tested = 0
    attempt = now
    while attempt <= now + knobs.bf_window_s:
        end = attempt + length
        for w in range(words.shape[1]):
            words[BASE, w] = run.tables.partition_nodes[partition, w] & words[SERVICE, w]
        reserved_until = keep_off_reservations(run, state, BASE, attempt, end, partition)
        later = _usable(run, attempt, end)
        if reserved_until < now + knobs.bf_window_s and (later == NONE or reserved_until < later):
            later = reserved_until
        begin = NONE
        if count(words, USABLE) >= wanted:
            tested = 1
            if choose(run, state.node, USABLE, CHOSEN, shape, wanted) or (
                attempt == now and knobs.preemption != 0 and choose_by_preemption(run, state, USABLE, job)
            ):
                begin = now
            elif reserving:
                begin = _look_ahead(run, state, shape, wanted)
        if begin == NONE:
            if later == NONE or not reserving:
                return _NEXT_JOB, slots, tested
            attempt = later
            continue
        begin = max(begin, attempt)
        if begin == now:
            start(run, state, job, True)
            return _STARTED, slots, tested
        reserve_from = begin // resolution * resolution
        reserve_to = (begin + length) // resolution * resolution
        if _overlaps(run, reserve_from, reserve_to):
            attempt = begin + (resolution if begin == attempt else 0)
            continue
        if not reserving:
            return _NEXT_JOB, slots, tested
        if later != NONE and begin > later:
            attempt = later
            continue
        if begin > now + knobs.bf_window_s:
            return _NEXT_JOB, slots, tested
        if slots >= max(2, knobs.bf_max_job_test):
            return _END_PASS, slots, tested
        reserve_from = max(reserve_from, now)
        slots = _reserve(run, reserve_from, max(reserve_to, reserve_from + resolution), slots)
        return _RESERVED, slots, tested
    return _NEXT_JOB, slots, tested


@kernel_inline
def _usable(run: Run, attempt: int, end: int) -> int:
    """Step 4.b: row USABLE from row BASE and the slots; returns `later`, the end of a slot that more nodes follow."""
    slot, nodes, words = run.scratch.slot, run.scratch.slot_nodes, run.scratch.words
    for w in range(words.shape[1]):
        words[USABLE, w] = words[BASE, w]
    later = NONE
    j = 0
    while j != NONE:
        following = slot[j, _NEXT]
        if slot[j, _END] > attempt:
            if following != NONE and later == NONE:
                for w in range(words.shape[1]):
                    if words[BASE, w] & nodes[following, w] & ~(words[USABLE, w] & nodes[j, w]):
                        later = int(slot[j, _END])
            if slot[j, _BEGIN] > end:
                break
            for w in range(words.shape[1]):
                words[USABLE, w] &= nodes[j, w]
        j = following
    return later


@kernel
def _look_ahead(run: Run, state: State, shape: int, wanted: int) -> int:
    """When `wanted` usable nodes will hold the share, by the expected ends of running jobs, into row CHOSEN; or NONE.

    Step 4.d, as `_will_run_test()` of select/cons_tres. Nothing is tried while too few usable nodes hold the share.
    """
    scratch, planned, words, tables = run.scratch, state.planned, run.scratch.words, run.tables
    node = scratch.node
    for w in range(words.shape[1]):
        words[CHOSEN, w] = words[USABLE, w] & tables.shape_nodes[shape, w]
    if count(words, CHOSEN) < wanted:
        return NONE
    copy_nodes(run, state)
    holding = 0
    for w in range(words.shape[1]):
        bits = words[CHOSEN, w]
        while bits != 0:
            holding += 1 if holds(tables, node, (w << 6) + lowest_bit(bits), shape) else 0
            bits &= bits - 1
    now, running = int(state.scalars[NOW]), int(state.scalars[RUNNING_ROWS])
    window, origin = _FIRST_WINDOW_S, NONE
    i = 0
    while i < running:
        last_end = NONE
        while i < running:
            slot = planned[i, 2]
            end = int(planned[i, 0])
            i += 1
            touches = False
            for w in range(words.shape[1]):
                bits = state.held[slot, w] & words[USABLE, w]
                while bits != 0:
                    touches = True
                    n = (w << 6) + lowest_bit(bits)
                    able = ((tables.shape_nodes[shape, w] >> (n & 63)) & 1) != 0
                    held = able and holds(tables, node, n, shape)
                    vacate(run, node, n, run.jobs.shape[state.running[slot, RUN_JOB]])
                    if able and not held and holds(tables, node, n, shape):
                        holding += 1
                    bits &= bits - 1
            if not touches:
                continue
            last_end = end
            if origin == NONE:
                origin = (end // _FIRST_WINDOW_S + 1) * _FIRST_WINDOW_S
            if i < running and planned[i, 0] > origin + window:
                break
        if last_end == NONE:
            return NONE
        window *= 2
        while i < running and planned[i, 0] > origin + window:
            window *= 2
        if holding >= wanted and choose(run, node, USABLE, CHOSEN, shape, wanted):
            return last_end if last_end > now else max(now + 1, last_end + run.knobs.end_grace_s)
    return NONE


@kernel_inline
def _overlaps(run: Run, begin: int, end: int) -> bool:
    """Whether a slot within [begin, end) lacks a node of row CHOSEN."""
    slot, nodes, words = run.scratch.slot, run.scratch.slot_nodes, run.scratch.words
    j = 0
    while j != NONE:
        if slot[j, _END] > begin and slot[j, _BEGIN] < end:
            for w in range(words.shape[1]):
                if words[CHOSEN, w] & ~nodes[j, w]:
                    return True
        j = int(slot[j, _NEXT])
    return False


@kernel_inline
def _reserve(run: Run, begin: int, end: int, slots: int) -> int:
    """Take the nodes of row CHOSEN out of the slots within [begin, end), cut there; returns the number of slots."""
    slot, nodes, words = run.scratch.slot, run.scratch.slot_nodes, run.scratch.words
    j = 0
    while j != NONE:
        for cut in (begin, end):
            if slot[j, _BEGIN] < cut < slot[j, _END]:
                slot[slots, _BEGIN], slot[slots, _END], slot[slots, _NEXT] = cut, slot[j, _END], slot[j, _NEXT]
                slot[j, _END], slot[j, _NEXT] = cut, slots
                for w in range(words.shape[1]):
                    nodes[slots, w] = nodes[j, w]
                slots += 1
        if slot[j, _BEGIN] >= begin and slot[j, _END] <= end:
            for w in range(words.shape[1]):
                nodes[j, w] &= ~words[CHOSEN, w]
        j = int(slot[j, _NEXT])
    return slots
