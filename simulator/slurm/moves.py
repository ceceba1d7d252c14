"""What happens to one job: it enters the queue, starts, ends, and lets others go. Compiled; the clock is elsewhere."""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.bits import lowest_bit
from simulator.slurm.placement import add, choose, in_service, occupy, vacate
from simulator.slurm.priority import priority
from simulator.slurm.state import (
    AVAILABLE,
    CANCELLED,
    CHOSEN,
    COMPLETED,
    ELIGIBLE,
    ENTER,
    FAILED,
    HAPPENED,
    HELD,
    HELD_JOBS,
    LAST_REQUESTED,
    LAST_USAGE,
    NEVER,
    NEVER_WAITS,
    NEXT_SECOND,
    NONE,
    NOW,
    PREEMPTED,
    QUEUE_ACCRUE,
    QUEUE_COLUMNS,
    QUEUE_JOB,
    QUEUE_KEY,
    QUEUE_ROWS,
    QUEUE_SUBMIT,
    QUEUED,
    REQUEST,
    RUN_COLUMNS,
    RUN_JOB,
    RUN_PLANNED,
    RUN_RELEASE,
    RUN_START,
    RUNNING,
    RUNNING_ROWS,
    SATISFIED,
    TIMEOUT,
    TIMERS,
    UNPLACEABLE,
    WATCHED,
    WATCHED_START,
    Int64s,
    Run,
    State,
)

_AFTER, _AFTERANY, _AFTEROK = 0, 1, 2  # world.AFTER ...; a child's kind is never SINGLETON
_KIND = 40  # bits of a timer below its kind


@kernel
def push_timer(state: State, second: int, kind: int, job: int) -> None:
    """Set a timer; they are taken by (second, kind, row)."""
    timers = state.timers
    what = (kind << _KIND) | job
    i = state.scalars[TIMERS]
    state.scalars[TIMERS] += 1
    while i > 0:
        above = (i - 1) >> 1
        if timers[above, 0] < second or (timers[above, 0] == second and timers[above, 1] <= what):
            break
        timers[i, 0], timers[i, 1] = timers[above, 0], timers[above, 1]
        i = above
    timers[i, 0], timers[i, 1] = second, what


@kernel
def pop_timer(state: State) -> int:
    """Take the first timer off the heap; returns kind << 40 | job."""
    timers = state.timers
    what = timers[0, 1]
    rows = state.scalars[TIMERS] - 1
    state.scalars[TIMERS] = rows
    second, moved = timers[rows, 0], timers[rows, 1]
    i = 0
    while True:
        below = 2 * i + 1
        if below >= rows:
            break
        if below + 1 < rows and (
            timers[below + 1, 0] < timers[below, 0]
            or (timers[below + 1, 0] == timers[below, 0] and timers[below + 1, 1] < timers[below, 1])
        ):
            below += 1
        if second < timers[below, 0] or (second == timers[below, 0] and moved <= timers[below, 1]):
            break
        timers[i, 0], timers[i, 1] = timers[below, 0], timers[below, 1]
        i = below
    timers[i, 0], timers[i, 1] = second, moved
    return int(what)


@kernel
def request_pass(run: Run, state: State) -> None:
    """Ask for a main pass, at most one every `batch_sched_delay_s`."""
    scalars = state.scalars
    if scalars[REQUEST] == NEVER:
        scalars[REQUEST] = max(scalars[NOW], scalars[LAST_REQUESTED] + run.knobs.batch_sched_delay_s)


@kernel
def enqueue(run: Run, state: State, job: int, submit_s: int) -> None:
    """Row `job` enters the queue now, which asks for a pass; its age counts from here."""
    scalars, queue = state.scalars, state.queue
    key = (int(run.jobs.rank[job]) << 32) | priority(run, state, job, 0)
    state.phase[job] = QUEUED
    scalars[HELD_JOBS] -= 1
    i = scalars[QUEUE_ROWS]
    while i > 0 and _before(key, submit_s, job, queue, i - 1):
        for column in range(QUEUE_COLUMNS):
            queue[i, column] = queue[i - 1, column]
        i -= 1
    queue[i, QUEUE_JOB], queue[i, QUEUE_KEY], queue[i, QUEUE_SUBMIT] = job, key, submit_s
    queue[i, QUEUE_ACCRUE] = scalars[NOW]
    scalars[QUEUE_ROWS] += 1
    scalars[HAPPENED] = 1
    request_pass(run, state)


@kernel_inline
def _before(key: int, submit_s: int, job: int, queue: Int64s, i: int) -> bool:
    if queue[i, QUEUE_KEY] != key:
        return bool(key > queue[i, QUEUE_KEY])
    if queue[i, QUEUE_SUBMIT] != submit_s:
        return bool(submit_s < queue[i, QUEUE_SUBMIT])
    return bool(job < queue[i, QUEUE_JOB])


@kernel
def reprioritise(run: Run, state: State) -> None:
    """Calculate the priorities of the whole queue anew and sort it: nearly sorted already, so by insertion."""
    scalars, queue = state.scalars, state.queue
    now = scalars[NOW]
    for row in range(scalars[QUEUE_ROWS]):
        job, submit_s, accrue = queue[row, QUEUE_JOB], queue[row, QUEUE_SUBMIT], queue[row, QUEUE_ACCRUE]
        key = (int(run.jobs.rank[job]) << 32) | priority(run, state, job, now - accrue)
        i = row
        while i > 0 and _before(key, submit_s, job, queue, i - 1):
            for column in range(QUEUE_COLUMNS):
                queue[i, column] = queue[i - 1, column]
            i -= 1
        queue[i, QUEUE_JOB], queue[i, QUEUE_KEY] = job, key
        queue[i, QUEUE_SUBMIT], queue[i, QUEUE_ACCRUE] = submit_s, accrue


@kernel
def leave_queue(state: State, job: int) -> None:
    """Take row `job` out of the queue."""
    scalars, queue = state.scalars, state.queue
    i = 0
    while queue[i, QUEUE_JOB] != job:
        i += 1
    for row in range(i, scalars[QUEUE_ROWS] - 1):
        for column in range(QUEUE_COLUMNS):
            queue[row, column] = queue[row + 1, column]
    scalars[QUEUE_ROWS] -= 1


@kernel
def compact_queue(state: State) -> None:
    """Drop the rows of the queue whose job was set to NONE because it started."""
    scalars, queue = state.scalars, state.queue
    kept = 0
    for row in range(scalars[QUEUE_ROWS]):
        if queue[row, QUEUE_JOB] != NONE:
            if kept != row:
                for column in range(QUEUE_COLUMNS):
                    queue[kept, column] = queue[row, column]
            kept += 1
    scalars[QUEUE_ROWS] = kept


@kernel
def enter_if_ready(run: Run, state: State, job: int) -> None:
    """Put a submitted job into the queue if nothing holds it any more."""
    if state.phase[job] != HELD or (len(state.waits) > 0 and state.waits[job] != 0):
        return
    if run.jobs.eligible_s[job] <= state.scalars[NOW]:
        enqueue(run, state, job, run.jobs.submit_s[job])


@kernel
def enter_later(state: State, job: int) -> None:
    """Look at row `job` when all else of this second has happened; in or behind a pass, in the next second."""
    push_timer(state, state.scalars[NOW] + state.scalars[NEXT_SECOND], ENTER, job)


@kernel_inline
def over_limit(run: Run, state: State, job: int) -> bool:
    """Whether one more start would take a QOS or association over a limit."""
    tables, used = run.tables, state.pool_used
    limits = run.jobs.pools[job]
    if limits == NONE:
        return False
    for i in range(tables.pool_first[limits], tables.pool_first[limits + 1]):
        p = tables.pool_ids[i]
        if used[p, 0] + 1 > tables.pool_limit[p, 0]:
            return True
        for t in range(4):
            if used[p, t + 1] + _request(run, job, t) > tables.pool_limit[p, t + 1]:
                return True
    return False


@kernel_inline
def _request(run: Run, job: int, tres: int) -> int:
    """What row `job` asks for in all of a TRES: CPU, MEMORY, NODE or GPU."""
    nodes = int(run.jobs.nodes[job])
    if tres == 2:
        return nodes
    return nodes * int(run.tables.shape_share[run.jobs.shape[job], 2 if tres == 3 else tres])


@kernel_inline
def _count(run: Run, state: State, job: int, change: int) -> None:
    tables = run.tables
    limits = run.jobs.pools[job]
    if limits != NONE:
        for i in range(tables.pool_first[limits], tables.pool_first[limits + 1]):
            p = tables.pool_ids[i]
            state.pool_used[p, 0] += change
            for t in range(4):
                state.pool_used[p, t + 1] += change * _request(run, job, t)
    if run.jobs.array[job] != NONE:
        state.array_running[run.jobs.array[job]] += change


@kernel_inline
def throttled(run: Run, state: State, job: int, planned: int) -> bool:
    """Whether the array of row `job` already runs, with `planned` more, as many tasks as it may."""
    array = run.jobs.array[job]
    if array == NONE or run.tables.throttle[array] == 0:
        return False
    return bool(state.array_running[array] + planned >= run.tables.throttle[array])


@kernel
def start(run: Run, state: State, job: int, by_backfill: bool) -> None:
    """Row `job` starts now on the nodes in row CHOSEN of Scratch.words; the caller takes it out of the queue."""
    scalars, words, shape = state.scalars, run.scratch.words, run.jobs.shape[job]
    now = scalars[NOW]
    slot = scalars[RUNNING_ROWS]
    first = run.out.placement_first[job]
    for w in range(words.shape[1]):
        state.held[slot, w] = words[CHOSEN, w]
        bits = words[CHOSEN, w]
        while bits != 0:
            n = (w << 6) + lowest_bit(bits)
            bits &= bits - 1
            occupy(run, state.node, n, shape)
            run.out.placement[first] = n
            first += 1
    state.phase[job] = RUNNING
    run.out.start_s[job], run.out.end_s[job], run.out.by_backfill[job] = now, NONE, by_backfill
    if job == scalars[WATCHED]:
        scalars[WATCHED_START] = now
    _count(run, state, job, 1)
    length = min(run.jobs.run_s[job], run.jobs.limit_s[job] + run.knobs.end_grace_s) + run.knobs.completing_s
    state.running[slot, RUN_JOB], state.running[slot, RUN_START] = job, now
    state.running[slot, RUN_PLANNED], state.running[slot, RUN_RELEASE] = now + run.jobs.limit_s[job], now + length
    _insert(state.planned, slot, now + run.jobs.limit_s[job], job, slot, 1)
    _insert(state.releases, slot, now + length, job, slot, -1)
    scalars[RUNNING_ROWS] = slot + 1
    if len(run.tables.child) > 0 and (len(state.restarts) == 0 or state.restarts[job] == 0):
        for i in range(run.tables.child_first[job], run.tables.child_first[job + 1]):
            if run.tables.child[i, 1] == _AFTER:
                if run.tables.child[i, 2] == 0:
                    satisfy(run, state, run.tables.child[i, 0])
                else:
                    push_timer(state, now + run.tables.child[i, 2], SATISFIED, run.tables.child[i, 0])


@kernel_inline
def _insert(rows: Int64s, used: int, second: int, job: int, slot: int, sign: int) -> None:
    """Insert (second, job, slot) into rows 0 .. used - 1, rising for `sign` 1, falling for -1."""
    i = used
    while i > 0 and (
        sign * rows[i - 1, 0] > sign * second or (rows[i - 1, 0] == second and sign * rows[i - 1, 1] > sign * job)
    ):
        rows[i, 0], rows[i, 1], rows[i, 2] = rows[i - 1, 0], rows[i - 1, 1], rows[i - 1, 2]
        i -= 1
    rows[i, 0], rows[i, 1], rows[i, 2] = second, job, slot


@kernel_inline
def _remove(rows: Int64s, used: int, slot: int, moved: int) -> None:
    """Remove the entry of `slot` from rows 0 .. used - 1; what is in slot `moved` goes to `slot`."""
    k = 0
    while rows[k, 2] != slot:
        k += 1
    for i in range(k, used - 1):
        rows[i, 0], rows[i, 1], rows[i, 2] = rows[i + 1, 0], rows[i + 1, 1], rows[i + 1, 2]
    for i in range(used - 1):
        if rows[i, 2] == moved:
            rows[i, 2] = slot
            break


@kernel
def vacate_slot(run: Run, state: State, slot: int) -> int:
    """Take the job of slot `slot` off its nodes, limits and lists, and account for its usage; returns its row."""
    scalars, running = state.scalars, state.running
    job = int(running[slot, RUN_JOB])
    shape = run.jobs.shape[job]
    for w in range(state.held.shape[1]):
        bits = state.held[slot, w]
        while bits != 0:
            vacate(run, state.node, (w << 6) + lowest_bit(bits), shape)
            bits &= bits - 1
    _count(run, state, job, -1)
    if len(state.fresh) > 0:
        since = max(running[slot, RUN_START], scalars[LAST_USAGE])
        state.fresh[run.jobs.association[job]] += run.jobs.charge[job] * (scalars[NOW] - since)
    last = scalars[RUNNING_ROWS] - 1
    _remove(state.planned, last + 1, slot, last)
    _remove(state.releases, last + 1, slot, last)
    for column in range(RUN_COLUMNS):
        running[slot, column] = running[last, column]
    for w in range(state.held.shape[1]):
        state.held[slot, w] = state.held[last, w]
    scalars[RUNNING_ROWS] = last
    return job


@kernel
def end_next(run: Run, state: State) -> None:
    """The running job that is next to come free leaves its nodes, and those that waited for it may go on."""
    slot = state.releases[state.scalars[RUNNING_ROWS] - 1, 2]
    run_s, limit_s = run.jobs.run_s[state.running[slot, RUN_JOB]], run.jobs.limit_s[state.running[slot, RUN_JOB]]
    started = state.running[slot, RUN_START]
    job = vacate_slot(run, state, slot)
    run.out.end_s[job] = started + min(run_s, limit_s + run.knobs.end_grace_s)
    if run_s > limit_s:
        state.phase[job] = TIMEOUT
    else:
        state.phase[job] = FAILED if run.jobs.failed[job] else COMPLETED
    finish(run, state, job)


@kernel
def finish(run: Run, state: State, job: int) -> None:
    """Tell those that wait for row `job` that it has ended, in the phase that it now has."""
    tables = run.tables
    if len(tables.child) > 0:
        for i in range(tables.child_first[job], tables.child_first[job + 1]):
            child, kind = tables.child[i, 0], tables.child[i, 1]
            if kind == _AFTER:
                if state.phase[job] == CANCELLED:
                    satisfy(run, state, child)
            elif kind == _AFTERANY or (kind == _AFTEROK) == (state.phase[job] == COMPLETED):
                satisfy(run, state, child)
            else:
                _fail(run, state, child)
    if len(tables.group) > 0 and tables.group[job] != NONE:
        group = tables.group[job]
        head = state.group_head[group]
        if head == job:
            while head != NONE and COMPLETED <= state.phase[head] <= UNPLACEABLE:
                head = tables.group_next[head]
            state.group_head[group] = head
            if head != NONE and tables.singleton[head]:
                satisfy(run, state, head)


@kernel
def satisfy(run: Run, state: State, job: int) -> None:
    """One condition of row `job` is met."""
    if state.waits[job] == 0 or state.waits[job] >= NEVER_WAITS:
        return
    state.waits[job] = 0 if run.jobs.any_dependency[job] else state.waits[job] - 1
    if state.waits[job] == 0:
        enter_later(state, job)


@kernel_inline
def _fail(run: Run, state: State, job: int) -> None:
    """One condition of row `job` can never be met."""
    if state.waits[job] == 0 or state.waits[job] >= NEVER_WAITS:
        return
    if run.jobs.any_dependency[job] and state.waits[job] > 1:
        state.waits[job] -= 1
    else:
        state.waits[job] = NEVER_WAITS


@kernel
def cancel(run: Run, state: State, job: int) -> None:
    """Row `job` leaves before it starts, if it has not started."""
    if state.phase[job] == QUEUED:
        leave_queue(state, job)
    elif state.phase[job] == HELD:
        state.scalars[HELD_JOBS] -= 1
    else:
        return
    state.phase[job] = CANCELLED
    state.scalars[HAPPENED] = 1
    run.out.end_s[job] = state.scalars[NOW]
    finish(run, state, job)


@kernel
def start_pinned(run: Run, state: State, job: int) -> None:
    """Row `job` starts now on its recorded nodes, whatever stands against it; without any, on those that it fits."""
    tables, words = run.tables, run.scratch.words
    if state.phase[job] == QUEUED:
        leave_queue(state, job)
    elif state.phase[job] == HELD:
        state.scalars[HELD_JOBS] -= 1
    else:
        return
    if tables.pinned_first[job] == tables.pinned_first[job + 1]:
        in_service(run, state, AVAILABLE)
        if not choose(run, state.node, AVAILABLE, CHOSEN, run.jobs.shape[job], run.jobs.nodes[job]):
            for w in range(words.shape[1]):
                words[CHOSEN, w] = 0
            taken = 0  # nothing fits: the first of its nodes, over what they have
            for n in range(len(state.node)):
                if taken < run.jobs.nodes[job] and (tables.shape_nodes[run.jobs.shape[job], n >> 6] >> (n & 63)) & 1:
                    add(words, CHOSEN, n)
                    taken += 1
    else:
        for w in range(words.shape[1]):
            words[CHOSEN, w] = 0
        for i in range(tables.pinned_first[job], tables.pinned_first[job + 1]):
            add(words, CHOSEN, tables.pinned_nodes[i])
    state.scalars[HAPPENED] = 1
    start(run, state, job, False)


@kernel
def preempt_slot(run: Run, state: State, slot: int, requeue: bool) -> None:
    """The job of slot `slot` ends now for another; with `requeue` it is submitted again."""
    now = state.scalars[NOW]
    job = vacate_slot(run, state, slot)
    if requeue:
        run.out.start_s[job], run.out.end_s[job] = NONE, NONE
        for i in range(run.out.placement_first[job], run.out.placement_first[job + 1]):
            run.out.placement[i] = NONE
        state.restarts[job] += 1
        state.phase[job] = HELD
        state.scalars[HELD_JOBS] += 1
        push_timer(state, now + run.knobs.requeue_delay_s, ELIGIBLE, job)
    else:
        run.out.end_s[job] = now
        state.phase[job] = PREEMPTED
        finish(run, state, job)
