"""The transitions of one job: it starts, ends, and releases jobs that depend on it. Compiled; knows no clock."""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.marks import ANY_EXTRA
from simulator.recent import remember_end, remember_start
from simulator.slurm.compiled.bits import lowest_bit
from simulator.slurm.compiled.limits import count_in
from simulator.slurm.compiled.placement import add, choose, in_service, nodes_changed, occupy, vacate
from simulator.slurm.compiled.state import (
    AVAILABLE,
    CANCEL,
    CHOSEN,
    ELIGIBLE,
    EMPTY,
    HAPPENED,
    HELD,
    HELD_JOBS,
    JOBS,
    LAST_USAGE,
    NEVER_WAITS,
    NOW,
    QUEUED,
    RUN_COLUMNS,
    RUN_JOB,
    RUN_PLANNED,
    RUN_RELEASE,
    RUN_START,
    RUNNING_ROWS,
    SATISFIED,
    WATCHED,
    WATCHED_START,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.compiled.waiting import enter_later, leave_queue, push_timer
from simulator.slurm.world import (
    AFTER,
    AFTERANY,
    AFTEROK,
    CANCELLED,
    COMPLETED,
    FAILED,
    NONE,
    PREEMPTED,
    RUNNING,
    TIMEOUT,
    UNPLACEABLE,
)
from traces.arrays import Int64s


@kernel
def start(run: SlurmRun, state: SlurmState, job: int, by_backfill: bool) -> None:
    """Start row `job` now on the nodes in row CHOSEN of `SlurmScratch.words`; the caller removes it from the queue."""
    scalars, words, shape = state.scalars, run.scratch.words, run.jobs.shape[job]
    now = scalars[NOW]
    slot = scalars[RUNNING_ROWS]
    first = run.out.placement_first[job]
    nodes_changed(run)
    for w in range(words.shape[1]):
        state.held[slot, w] = words[CHOSEN, w]
        state.sets[EMPTY, w] &= ~words[CHOSEN, w]
        bits = words[CHOSEN, w]
        while bits != 0:
            n = (w << 6) + lowest_bit(bits)
            bits &= bits - 1
            occupy(run, state.node, n, shape)
            run.out.placement[first] = n
            first += 1
    state.phase[job] = RUNNING
    run.out.start_s[job], run.out.end_s[job], run.out.by_backfill[job] = now, NONE, by_backfill
    if job == scalars[WATCHED] or (scalars[WATCHED] == ANY_EXTRA and job >= run.knobs.arrivals):
        scalars[WATCHED_START] = now
    count_in(run, state, job, 1)
    extra = job - run.knobs.arrivals
    submit_s = run.jobs.submit_s[job] if extra < 0 else state.extra_submit_s[extra]
    remember_start(state.recent, job, submit_s, now, run.jobs.nodes[job])
    length = min(run.jobs.run_s[job], run.jobs.limit_s[job] + run.knobs.end_grace_s) + run.knobs.completing_s
    state.running[slot, RUN_JOB], state.running[slot, RUN_START] = job, now
    state.running[slot, RUN_PLANNED], state.running[slot, RUN_RELEASE] = now + run.jobs.limit_s[job], now + length
    _insert(state.planned, slot, now + run.jobs.limit_s[job], job, slot, 1)
    _insert(state.releases, slot, now + length, job, slot, -1)
    scalars[RUNNING_ROWS] = slot + 1
    if len(run.tables.child) > 0 and (len(state.restarts) == 0 or state.restarts[job] == 0):
        for i in range(run.tables.child_first[job], run.tables.child_first[job + 1]):
            if run.tables.child[i, 1] == AFTER:
                if run.tables.child[i, 2] == 0:
                    satisfy(run, state, run.tables.child[i, 0])
                else:
                    push_timer(state, now + run.tables.child[i, 2], SATISFIED, run.tables.child[i, 0])


@kernel_inline
def _remember_end(run: SlurmRun, state: SlurmState, job: int, started_s: int) -> None:
    """Remember the end of row `job`, which ran from `started_s` to its end in `Out`."""
    end_s = run.out.end_s[job]
    remember_end(state.recent, job, end_s, end_s - started_s, run.jobs.limit_s[job])


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
    """Remove the entry of `slot` from rows 0 .. used - 1 and renumber the entry of slot `moved` to `slot`."""
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
def vacate_slot(run: SlurmRun, state: SlurmState, slot: int) -> int:
    """Remove the job of slot `slot` from its nodes, limits and lists, and charge its usage; return its row."""
    scalars, running = state.scalars, state.running
    job = int(running[slot, RUN_JOB])
    shape = run.jobs.shape[job]
    nodes_changed(run)
    for w in range(state.held.shape[1]):
        bits = state.held[slot, w]
        while bits != 0:
            n = (w << 6) + lowest_bit(bits)
            vacate(run, state.node, n, shape)
            if state.node[n, JOBS] == 0:
                state.sets[EMPTY, w] |= bits & -bits
            bits &= bits - 1
    count_in(run, state, job, -1)
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
def end_next(run: SlurmRun, state: SlurmState) -> None:
    """Release the nodes of the next job to end, and let the jobs that depend on it continue."""
    slot = state.releases[state.scalars[RUNNING_ROWS] - 1, 2]
    run_s, limit_s = run.jobs.run_s[state.running[slot, RUN_JOB]], run.jobs.limit_s[state.running[slot, RUN_JOB]]
    started = state.running[slot, RUN_START]
    job = vacate_slot(run, state, slot)
    run.out.end_s[job] = started + min(run_s, limit_s + run.knobs.end_grace_s)
    _remember_end(run, state, job, started)
    if run_s > limit_s:
        state.phase[job] = TIMEOUT
    else:
        state.phase[job] = FAILED if run.jobs.failed[job] else COMPLETED
    finish(run, state, job)


@kernel
def finish(run: SlurmRun, state: SlurmState, job: int) -> None:
    """Update the jobs that depend on row `job`, which has ended in its current phase."""
    tables = run.tables
    if len(tables.child) > 0:
        for i in range(tables.child_first[job], tables.child_first[job + 1]):
            child, kind = tables.child[i, 0], tables.child[i, 1]
            if kind == AFTER:
                if state.phase[job] == CANCELLED:
                    satisfy(run, state, child)
            elif kind == AFTERANY or (kind == AFTEROK) == (state.phase[job] == COMPLETED):
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
def satisfy(run: SlurmRun, state: SlurmState, job: int) -> None:
    """Mark one condition of row `job` as met."""
    if state.waits[job] == 0 or state.waits[job] >= NEVER_WAITS:
        return
    state.waits[job] = 0 if run.jobs.any_dependency[job] else state.waits[job] - 1
    if state.waits[job] == 0:
        enter_later(state, job)


@kernel_part
def _fail(run: SlurmRun, state: SlurmState, job: int) -> None:
    """Mark one condition of row `job` as never met."""
    if state.waits[job] == 0 or state.waits[job] >= NEVER_WAITS:
        return
    if run.jobs.any_dependency[job] and state.waits[job] > 1:
        state.waits[job] -= 1
    else:
        state.waits[job] = NEVER_WAITS


@kernel
def cancel(run: SlurmRun, state: SlurmState, job: int) -> None:
    """Cancel row `job` unless it has started."""
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
def withdraw(run: SlurmRun, state: SlurmState, job: int, now_s: int) -> None:
    """Cancel row `job` at `now_s` if it waits; if it runs, let it end then.

    The state has advanced to the second before `now_s`. Of a row that runs, the run time in the tables changes.
    """
    if state.phase[job] != RUNNING:
        push_timer(state, now_s, CANCEL, job)
        return
    rows, running = state.scalars[RUNNING_ROWS], state.running
    for slot in range(rows):
        if running[slot, RUN_JOB] == job:
            run.jobs.run_s[job] = min(run.jobs.run_s[job], now_s - running[slot, RUN_START])
            release_s = running[slot, RUN_START] + run.jobs.run_s[job] + run.knobs.completing_s
            running[slot, RUN_RELEASE] = release_s
            _remove(state.releases, rows, slot, slot)
            _insert(state.releases, rows - 1, release_s, job, slot, -1)


@kernel
def start_pinned(run: SlurmRun, state: SlurmState, job: int) -> None:
    """Start row `job` now on its recorded nodes, ignoring all rules; without recorded nodes, on nodes that it fits."""
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
            taken = 0  # no node fits: use the first nodes of its partition, beyond their capacity
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
def preempt_slot(run: SlurmRun, state: SlurmState, slot: int, requeue: bool) -> None:
    """Preempt the job of slot `slot` now; with `requeue` it is submitted again."""
    now, started = state.scalars[NOW], state.running[slot, RUN_START]
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
        _remember_end(run, state, job, started)
        state.phase[job] = PREEMPTED
        finish(run, state, job)
