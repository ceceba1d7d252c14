"""The backfill loop's pass: jobs in the order of the queue reserve whole nodes ahead, or start in the gaps. Compiled.

Step numbers are those of docs/schedulers/slurm.md, "Backfill pass".
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.bits import count_bits, lowest_bit
from simulator.slurm.limits import over_limit, throttled
from simulator.slurm.moves import start
from simulator.slurm.passes import clear_counts, keep_off_reservations, know_reservations, reserves
from simulator.slurm.placement import copy_nodes, count, holds, in_service, pick, share_of, vacate
from simulator.slurm.preemption import choose_by_preemption
from simulator.slurm.slots import CUTS, USED, first_slot_after, overlaps, reserve, usable
from simulator.slurm.state import (
    BASE,
    CHOSEN,
    HOLDING,
    NEVER,
    NONE,
    NOW,
    QUEUE_JOB,
    QUEUE_ROWS,
    RESERVATIONS,
    RUN_JOB,
    RUNNING_ROWS,
    SERVICE,
    USABLE,
    Run,
    State,
)
from simulator.slurm.waiting import compact_queue

_TAKEN_UP, _RESERVING = 1, 2  # columns of Scratch.part_count
_REJECTED, _PLANNED = 0, 1  # columns of Scratch.array_count
_STAMP, _SHAPE, _WANTED, _WHEN = 0, 1, 2, 3  # columns of Scratch.memory
_LOW_BITS, _ODD = (1 << 31) - 1, 0x5851F42D  # of a hash that stays below 1 << 62
_FIRST_WINDOW_S = 30  # select/cons_tres looks at the ends of running jobs in groups that grow from 30 s on

_NEVER_READY = (1 << 31) - 1  # in Scratch.ready
_NEXT_JOB, _STARTED, _RESERVED, _END_PASS = 0, 1, 2, 3  # what became of a job


@kernel_inline
def _forget(run: Run) -> None:
    """A pass begins or a job has started: what was remembered of the nodes no longer holds."""
    scratch = run.scratch
    scratch.stamp[0] += 1
    for shape in range(len(scratch.known)):
        scratch.known[shape] = False


@kernel
def _that_hold(run: Run, state: State, shape: int, row: int) -> int:
    """Number of nodes in row `row` of Scratch.words that hold a share of `shape` now."""
    scratch = run.scratch
    idle = scratch.idle
    if not scratch.known[shape]:
        scratch.known[shape] = True
        share = share_of(run.tables, shape)
        for w in range(idle.shape[1]):
            bits = run.tables.shape_nodes[shape, w] & scratch.words[SERVICE, w]
            found = 0
            while bits != 0:
                if holds(state.node, (w << 6) + lowest_bit(bits), share):
                    found |= bits & -bits
                bits &= bits - 1
            idle[shape, w] = found
    total = 0
    for w in range(idle.shape[1]):
        total += count_bits(idle[shape, w] & scratch.words[row, w])
    return total


@kernel
def _may_start(run: Run, state: State, row: int) -> bool:
    """Whether the job in row `row` of the queue could start now, by limits, idle nodes and the slots so far.

    All of these only shrink in a pass without preemption, so what is False stays so.
    """
    job = state.queue[row, QUEUE_JOB]
    if over_limit(run, state, job) or throttled(run, state, job):
        return False
    shape, wanted = int(run.jobs.shape[job]), run.jobs.nodes[job]
    if _that_hold(run, state, shape, SERVICE) < wanted:
        return False
    now = int(state.scalars[NOW])
    end = now + int(run.jobs.limit_s[job])
    _base(run, state, shape, now, end)
    usable(run, first_slot_after(run, 0, now), end)
    return bool(_that_hold(run, state, shape, USABLE) >= wanted)


@kernel_inline
def _last_that_may_start(run: Run, state: State, from_row: int, to_row: int) -> int:
    """The last row of the queue in [from_row, to_row] whose job may start, else from_row - 1."""
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
    clear_counts(run)
    know_reservations(run, state)
    _forget(run)
    now, resolution = int(state.scalars[NOW]), knobs.bf_resolution_s
    scratch.slots[USED], scratch.slots[CUTS] = 1, 1
    scratch.slot_begin[0] = now // resolution * resolution
    scratch.slot_begin[1] = (now + knobs.bf_window_s) // resolution * resolution
    for w in range(scratch.words.shape[1]):
        scratch.slot_nodes[w, 0] = scratch.words[SERVICE, w]
    last = rows - 1
    if knobs.preemption == 0:
        last = _last_that_may_start(run, state, 0, last)
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
        outcome, was_tested = _plan(run, state, job, reserving)
        tested += was_tested
        if outcome == _STARTED:
            queue[row, QUEUE_JOB] = NONE
            started += 1
            if started == knobs.bf_max_job_start:
                break
            _forget(run)
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
        if knobs.preemption == 0 and outcome != _NEXT_JOB:
            last = _last_that_may_start(run, state, row + 1, last)
        row += 1
    if started > 0:
        compact_queue(state)


@kernel_inline
def _is_skipped(run: Run, state: State, job: int, array: int) -> bool:
    """Step 2; a job that is not skipped counts as taken up."""
    scratch, knobs = run.scratch, run.knobs
    if array != NONE and scratch.array_count[array, _REJECTED] != 0:
        return True
    partition = run.tables.shape_partition[run.jobs.shape[job]]
    if (
        over_limit(run, state, job)
        or throttled(run, state, job)
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
def _plan(run: Run, state: State, job: int, reserving: bool) -> tuple[int, int]:
    """Steps 4.a to 4.f for row `job`: (what became of it, 1 if it was tested)."""
    knobs, words, scratch = run.knobs, run.scratch.words, run.scratch
    now, wanted, shape = int(state.scalars[NOW]), int(run.jobs.nodes[job]), int(run.jobs.shape[job])
    length, resolution = int(run.jobs.limit_s[job]), knobs.bf_resolution_s
    tested = 0
    attempt = now
    first = 0
    while attempt <= now + knobs.bf_window_s:
        end = attempt + length
        reserved_until = _base(run, state, shape, attempt, end)
        first = first_slot_after(run, first, attempt)
        later = usable(run, first, end)
        if reserved_until < now + knobs.bf_window_s and (later == NONE or reserved_until < later):
            later = reserved_until
        begin = NONE
        if count(words, USABLE) >= wanted:
            tested = 1
            if _that_hold(run, state, shape, USABLE) >= wanted:
                for w in range(words.shape[1]):
                    words[HOLDING, w] = words[USABLE, w] & scratch.idle[shape, w]
                pick(run, state.node, CHOSEN, shape, wanted)
                begin = now
            elif attempt == now and knobs.preemption != 0 and choose_by_preemption(run, state, USABLE, job):
                begin = now
            elif reserving:
                begin = _remembered(run, state, shape, wanted)
        if begin == NONE:
            if later == NONE or not reserving:
                return _NEXT_JOB, tested
            attempt = later
            continue
        begin = max(begin, attempt)
        if begin == now:
            start(run, state, job, True)
            return _STARTED, tested
        if not reserving:
            return _NEXT_JOB, tested
        if later != NONE and begin > later:
            attempt = later
            continue
        if begin > now + knobs.bf_window_s:
            return _NEXT_JOB, tested
        reserve_from = begin // resolution * resolution
        reserve_to = (begin + length) // resolution * resolution
        if overlaps(run, 0 if reserve_from < attempt else first, reserve_from, reserve_to):
            attempt = begin + (resolution if begin == attempt else 0)
            continue
        if scratch.slots[CUTS] >= max(2, knobs.bf_max_job_test):
            return _END_PASS, tested
        reserve(run, reserve_from, max(reserve_to, reserve_from + resolution))
        return _RESERVED, tested
    return _NEXT_JOB, tested


@kernel_inline
def _base(run: Run, state: State, shape: int, begin: int, end: int) -> int:
    """Row BASE: nodes of the partition in service that no known reservation holds; see `keep_off_reservations`."""
    words, partition = run.scratch.words, int(run.tables.shape_partition[shape])
    for w in range(words.shape[1]):
        words[BASE, w] = run.tables.partition_nodes[partition, w] & words[SERVICE, w]
    if state.scalars[RESERVATIONS] == 0:
        return NEVER
    return keep_off_reservations(run, state, BASE, begin, end, partition)


@kernel
def _remembered(run: Run, state: State, shape: int, wanted: int) -> int:
    """`_look_ahead`, which depends on the shape, the number and the usable nodes alone until a job starts."""
    scratch, words = run.scratch, run.scratch.words
    memory, nodes = scratch.memory, scratch.memory_nodes
    mixed = shape * 64 + wanted
    for w in range(words.shape[1]):
        word = words[USABLE, w]
        mixed = ((mixed ^ word ^ (word >> 31)) & _LOW_BITS) * _ODD
        mixed ^= mixed >> 29
    at = mixed & (len(memory) - 1)
    same = memory[at, _STAMP] == scratch.stamp[0] and memory[at, _SHAPE] == shape and memory[at, _WANTED] == wanted
    if same:
        for w in range(words.shape[1]):
            same = same and nodes[at, 0, w] == words[USABLE, w]
    if same:
        for w in range(words.shape[1]):
            words[CHOSEN, w] = nodes[at, 1, w]
        return int(memory[at, _WHEN])
    when = _look_ahead(run, state, shape, wanted)
    memory[at, _STAMP], memory[at, _SHAPE] = scratch.stamp[0], shape
    memory[at, _WANTED], memory[at, _WHEN] = wanted, when
    for w in range(words.shape[1]):
        nodes[at, 0, w], nodes[at, 1, w] = words[USABLE, w], words[CHOSEN, w]
    return when


@kernel_inline
def _count_ends(run: Run, state: State, shape: int) -> None:
    """Fill row `shape` of Scratch.ready: how many running jobs must have ended before each node holds the share."""
    scratch, node, able = run.scratch, run.scratch.node, run.tables.shape_nodes
    ready, share = scratch.ready, share_of(run.tables, shape)
    scratch.ready_stamp[shape] = scratch.stamp[0]
    copy_nodes(run, state)
    for n in range(len(node)):
        ready[shape, n] = 0 if holds(node, n, share) else _NEVER_READY
    for i in range(state.scalars[RUNNING_ROWS]):
        slot = state.planned[i, 2]
        of_job = run.jobs.shape[state.running[slot, RUN_JOB]]
        for w in range(able.shape[1]):
            bits = state.held[slot, w]
            while bits != 0:
                n = (w << 6) + lowest_bit(bits)
                bits &= bits - 1
                vacate(run, node, n, of_job)
                if ready[shape, n] == _NEVER_READY and holds(node, n, share):
                    ready[shape, n] = i + 1


@kernel_inline
def _ready_after(run: Run, shape: int, ended: int) -> int:
    """Fill row HOLDING with the usable nodes that hold the share once `ended` running jobs have; their number."""
    words, able, ready = run.scratch.words, run.tables.shape_nodes, run.scratch.ready
    total = 0
    for w in range(words.shape[1]):
        bits = words[USABLE, w] & able[shape, w]
        found = 0
        while bits != 0:
            if ready[shape, (w << 6) + lowest_bit(bits)] <= ended:
                found |= bits & -bits
                total += 1
            bits &= bits - 1
        words[HOLDING, w] = found
    return total


@kernel
def _look_ahead(run: Run, state: State, shape: int, wanted: int) -> int:
    """When `wanted` usable nodes will hold the share, by the expected ends of running jobs, into row CHOSEN; or NONE.

    Step 4.d, as `_will_run_test()` of select/cons_tres. Nothing is placed while too few usable nodes hold the share.
    """
    scratch, planned, words, held = run.scratch, state.planned, run.scratch.words, state.held
    now, running = int(state.scalars[NOW]), int(state.scalars[RUNNING_ROWS])
    if scratch.ready_stamp[shape] != scratch.stamp[0]:
        _count_ends(run, state, shape)
    if _ready_after(run, shape, running) < wanted:
        return NONE
    window, origin = _FIRST_WINDOW_S, NONE
    i = 0
    while i < running:
        last_end = NONE
        while i < running:
            slot, end = planned[i, 2], int(planned[i, 0])
            i += 1
            touches = False
            for w in range(words.shape[1]):
                touches = touches or (held[slot, w] & words[USABLE, w]) != 0
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
        if _ready_after(run, shape, i) >= wanted:
            if run.tables.least_loaded[run.tables.shape_partition[shape]]:
                _let_end(run, state, i)
            pick(run, scratch.node, CHOSEN, shape, wanted)
            return last_end if last_end > now else max(now + 1, last_end + run.knobs.end_grace_s)
    return NONE


@kernel_inline
def _let_end(run: Run, state: State, ended: int) -> None:
    """Copy the nodes to Scratch.node and take the first `ended` running jobs off."""
    copy_nodes(run, state)
    for i in range(ended):
        slot = state.planned[i, 2]
        for w in range(state.held.shape[1]):
            bits = state.held[slot, w]
            while bits != 0:
                vacate(run, run.scratch.node, (w << 6) + lowest_bit(bits), run.jobs.shape[state.running[slot, RUN_JOB]])
                bits &= bits - 1
