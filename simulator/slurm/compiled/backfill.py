"""The backfill pass: start jobs that delay no planned start of a job ahead of them in the queue. Compiled.

docs/schedulers/slurm.md, "Backfill pass", defines the pass; step numbers refer to that page. Jobs are taken in queue
order. A job starts if it fits on nodes that are idle now and free of reservations until its time limit. For any other
job, running jobs are assumed to end at their time limits (`ahead`). At the first second with enough nodes, these nodes
are reserved for the job for the length of its time limit (`slots`). Jobs later in the queue may use them only outside
of that time. No reservation outlives the pass; each pass makes all of them again.

Example: four nodes, allocated whole, time 0, `bf_resolution` 10 s. A runs on n1 and n2 and is expected to end at 100, B
on n3 at 40; n4 is idle. Waiting in this order, with limits: C (2 nodes, 60 s), D (1 node, 50 s), E (1 node, 30 s).

    C  too few idle nodes; n3 joins n4 at 40          reserves n3 and n4 over [40, 100)
    D  fits on n4, but until 50, which C reserved     reserves n1, expected at 100, over [100, 150)
    E  fits on n4 and ends at 30, before C needs it   starts

The only results of a pass are starts, so it makes only the plans that a start depends on. It stops after the last job
that may still start (E above: no node is idle for any job behind it). It skips ahead to jobs that may start if no plan
in between matters (`candidates`).
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.slurm.compiled.ahead import begin_attempts, last_awaited, next_attempt, place_ahead
from simulator.slurm.compiled.candidates import (
    fill_base,
    fits_now,
    last_candidate,
    last_obstacle,
    only_nodes_matter,
)
from simulator.slurm.compiled.limits import over_limit, throttled
from simulator.slurm.compiled.moves import start
from simulator.slurm.compiled.passes import clear_counts, know_reservations, reserves
from simulator.slurm.compiled.placement import count, hold_now, in_service, pick
from simulator.slurm.compiled.preemption import begin_when_ended, candidates, choose_by_preemption, choose_without
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
    SlurmRun,
    SlurmState,
)
from simulator.slurm.compiled.waiting import compact_queue
from simulator.slurm.world import NONE

_NEXT_JOB, _STARTED, _RESERVED, _END_PASS, _OVERLAPS = 0, 1, 2, 3, 4  # outcomes for a job or a reservation


@kernel
def backfill_pass(run: SlurmRun, state: SlurmState) -> None:
    """Make one pass over the queue: start jobs, and discard the plans of the other jobs at the end.

    Rows `last`, `second` and `third` are the last three rows of the queue whose jobs may start. `obstacle` is the last
    row whose job may keep one of them from starting (`candidates`). During a pass none of the four moves back.
    """
    queue = state.queue
    _begin_pass(run, state)
    last = int(state.scalars[QUEUE_ROWS]) - 1
    second, third, obstacle = last, last, last
    changed = True  # whether a job has started or reserved nodes since the last search for candidates
    tested = 0
    started = 0
    row = 0
    while row <= last and tested < run.knobs.bf_max_job_test:
        if run.knobs.preemption == 0:
            if changed:
                last = last_candidate(run, state, row, last)
                if last < row:
                    break
            if last > row and (changed or row - 1 == third or row - 1 == obstacle):
                row, second, third, obstacle = _skip(run, state, row, last, second, third, obstacle, tested)
        job = int(queue[row, QUEUE_JOB])
        array = int(run.jobs.array[job])
        if _is_skipped(run, state, job, array):
            changed = False
            row += 1
            continue
        outcome = _plan(run, state, job, _may_reserve(run, state, row, job))
        tested += run.scratch.slots[TESTED]
        changed = outcome != _NEXT_JOB
        if outcome == _STARTED:
            queue[row, QUEUE_JOB] = NONE
            started += 1
            if started == run.knobs.bf_max_job_start:
                break
        elif outcome == _END_PASS:
            break
        else:
            _count(run, job, array, outcome)
        row += 1
    if started > 0:
        compact_queue(state)


@kernel_part
def _skip(
    run: SlurmRun, state: SlurmState, row: int, last: int, second: int, third: int, obstacle: int, tested: int
) -> tuple[int, int, int, int]:
    """Return the row at which the pass continues, `row` or later, and the new `second`, `third` and `obstacle`.

    If one or two candidates are left and no job ahead can keep them from their nodes, the first of them is next: no
    start depends on the skipped plans. A former candidate may have become an obstacle.
    """
    was_second, second = second, last_candidate(run, state, row, min(second, last - 1))
    if second < was_second < last:
        obstacle = max(obstacle, was_second)
    third = last_candidate(run, state, row, min(third, second - 1))
    if third < row and only_nodes_matter(run, state, row, second, last, tested):
        obstacle = last_obstacle(run, state, row, min(obstacle, last - 1), second, last)
        if obstacle < row:
            row = second if second >= row else last
    return row, second, third, obstacle


@kernel_part
def _may_reserve(run: SlurmRun, state: SlurmState, row: int, job: int) -> bool:
    """Step 3: whether the job in row `row` of the queue may reserve nodes."""
    most = run.knobs.bf_job_part_count_reserve
    partition = run.tables.shape_partition[run.jobs.shape[job]]
    return bool(reserves(run, state, row) and (most == 0 or run.scratch.part_count[partition, RESERVING] < most))


@kernel_part
def _count(run: SlurmRun, job: int, array: int, outcome: int) -> None:
    """Record the outcome of a job that did not start: count its reservation, or skip the later tasks of its array."""
    counts = run.scratch.array_count
    if outcome == _RESERVED:
        run.scratch.part_count[run.tables.shape_partition[run.jobs.shape[job]], RESERVING] += 1
        if array != NONE:
            counts[array, RESERVED] += 1
            if counts[array, RESERVED] >= run.knobs.bf_max_job_array_resv:
                counts[array, REJECTED] = 1
    elif array != NONE:
        counts[array, REJECTED] = 1


@kernel_part
def _begin_pass(run: SlurmRun, state: SlurmState) -> None:
    """Set up the working memory of a pass: one slot with all nodes in service, and all counters at zero."""
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


@kernel_part
def _is_skipped(run: SlurmRun, state: SlurmState, job: int, array: int) -> bool:
    """Apply step 2: return whether the job is skipped, else count it as considered."""
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


@kernel_part
def _plan(run: SlurmRun, state: SlurmState, job: int, reserving: bool) -> int:
    """Apply step 4 to row `job` and return its outcome; slots[TESTED] is 1 if it was tested.

    Over 50 lines: one loop over the seconds at which a start is attempted, and each exit is a step of the page.
    """
    knobs, slots = run.knobs, run.scratch.slots
    now, wanted, shape = int(state.scalars[NOW]), int(run.jobs.nodes[job]), int(run.jobs.shape[job])
    length = int(run.jobs.limit_s[job])
    window_end = now + knobs.bf_window_s
    if fits_now(run, state, shape, wanted, length):
        slots[TESTED] = 1
        pick(run, state.node, CHOSEN, shape, wanted)
        start(run, state, job, True)
        return _STARTED
    begin_attempts(run, state, shape)
    # With reservations the base changes. A job that may preempt may start at once even if too few nodes are ready.
    skip_hopeless = reserving and state.scalars[RESERVATIONS] == 0 and knobs.preemption == 0
    victims = candidates(run, state, job) if knobs.preemption != 0 else 0
    attempt = now
    while attempt <= window_end:
        reserved_until = fill_base(run, state, shape, attempt, attempt + length)
        later = next_attempt(run, state, job, attempt, skip_hopeless)
        attempt = int(slots[ATTEMPT])
        if reserved_until < window_end and (later == NONE or reserved_until < later):
            later = reserved_until
        begin, last = NONE, NONE
        holds_now = hold_now(run, state, shape, USABLE, wanted)
        if holds_now:
            begin = now
        elif victims > 0:
            if count(run.scratch.words, USABLE) >= wanted:
                if choose_without(run, state, USABLE, job, victims):
                    begin = now
                elif reserving:
                    begin = begin_when_ended(run, state, job, victims)
            if begin == attempt == now and choose_by_preemption(run, state, USABLE, job, victims):
                start(run, state, job, True)
                return _STARTED
        elif reserving and slots[READY] >= wanted:
            last = last_awaited(run, state, shape, wanted)
            begin = int(state.planned[last, 0])
            if begin <= now:
                begin = max(now + 1, begin + knobs.end_grace_s)
        if begin == NONE or (later != NONE and begin > later):
            if later == NONE or not reserving:
                return _NEXT_JOB
            attempt = later
            continue
        if victims > 0 and not holds_now:
            pass  # row CHOSEN holds the nodes
        elif begin > now:
            place_ahead(run, state, shape, wanted, last)
        else:
            pick(run, state.node, CHOSEN, shape, wanted)
        begin = max(begin, attempt)
        if begin == now:
            start(run, state, job, True)
            return _STARTED
        if not reserving or begin > window_end:
            return _NEXT_JOB
        outcome = _reserve(run, begin, length, attempt)
        if outcome != _OVERLAPS:
            return outcome
        attempt = begin + (knobs.bf_resolution_s if begin == attempt else 0)
    return _NEXT_JOB


@kernel_part
def _reserve(run: SlurmRun, begin: int, length: int, attempt: int) -> int:
    """Reserve the nodes of row CHOSEN for `length` seconds from `begin`, rounded down to slots; return the outcome."""
    resolution, slots = run.knobs.bf_resolution_s, run.scratch.slots
    first = begin // resolution * resolution
    end = (begin + length) // resolution * resolution
    if overlaps(run, 0 if first < attempt else int(slots[FIRST]), first, end):
        return _OVERLAPS
    if slots[CUTS] >= max(2, run.knobs.bf_max_job_test):
        return _END_PASS
    reserve(run, first, max(end, first + resolution))
    return _RESERVED
