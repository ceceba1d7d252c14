"""The clock of the `slurm` scheduler: advance a state, submit into it. Compiled; docs/schedulers/slurm.md defines it.

run, state = prepared(world)                       # simulator.slurm.inputs.prepare
advance(run, state, t - 1, NONE)                   # everything before t
copy_state(branch, state)
submit(run, branch, row, t)                          # "what if it is submitted at t"
start = advance(run, branch, NEVER, row)
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.marks import NO_ROOM as NO_ROOM
from simulator.slurm.compiled.backfill import backfill_pass
from simulator.slurm.compiled.fairtree import account_usage, rank_users
from simulator.slurm.compiled.moves import cancel, end_next, satisfy, start_pinned
from simulator.slurm.compiled.passes import main_pass
from simulator.slurm.compiled.placement import drain, nodes_changed
from simulator.slurm.compiled.state import (
    CANCEL,
    CAPACITY,
    ELIGIBLE,
    ENDED,
    FREE_FROM,
    HAPPENED,
    HELD,
    HELD_JOBS,
    INJECTED_JOB,
    INJECTED_LAST,
    INJECTED_SUBMIT,
    JOBS,
    LAST_BACKFILL,
    LAST_FULL,
    LAST_REQUESTED,
    NEXT_ARRIVAL,
    NEXT_CAPACITY,
    NEXT_OUTAGE,
    NEXT_SECOND,
    NEXT_TICK,
    NOW,
    OUT,
    OUT_COUNT,
    PIN,
    QUEUE_ROWS,
    REQUEST,
    RUNNING_ROWS,
    SATISFIED,
    SETTLED,
    TIMER_KIND,
    TIMERS,
    WATCHED,
    WATCHED_START,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.compiled.waiting import (
    enqueue,
    enter_if_ready,
    enter_later,
    pop_timer,
    push_timer,
    reprioritise,
    request_pass,
)
from simulator.slurm.world import DRAIN, FUTURE, NEVER, NONE


@kernel
def advance(run: SlurmRun, state: SlurmState, until_s: int, stop_job: int) -> int:
    """Simulate up to and including `until_s`, or until `stop_job` (a row, NONE, or ANY_EXTRA) starts.

    Returns the start of `stop_job`; NONE when `until_s` is reached or nothing more can happen; or NO_ROOM when there
    are more live jobs than rows. After NO_ROOM, give the state more room (`prepare.grown`) and call again; nothing is
    lost.
    """
    scalars = state.scalars
    scalars[WATCHED], scalars[WATCHED_START] = stop_job, NONE
    nodes_changed(run)  # another state may have used the working memory
    while True:
        instant = next_instant(run, state)
        if instant > until_s or instant == NEVER:
            if until_s != NEVER:
                scalars[NOW] = max(scalars[NOW], until_s)
            return NONE
        if not _has_room(run, state):
            return NO_ROOM
        # Repeat the second for ends alone: jobs that wait for them enter the queue in the next second.
        scalars[NEXT_SECOND] = 1 if instant == scalars[NOW] else 0
        scalars[NOW] = instant
        _take_outages(run, state)
        _take_ends(run, state)
        if not _take_arrivals(run, state):
            return NO_ROOM
        _take_timers(run, state)
        _calculate_priorities(run, state)
        _passes(run, state)
        if scalars[WATCHED_START] != NONE:
            return int(scalars[WATCHED_START])


@kernel
def submit(run: SlurmRun, state: SlurmState, job: int, submit_s: int) -> None:
    """Submit row `job` (one that does not arrive by itself) at `submit_s`, not before the state's NOW.

    The submission follows all others of that second. A state takes future submissions of one second at a time, whose
    rows follow one another.
    """
    if state.scalars[INJECTED_JOB] == NONE:
        state.scalars[INJECTED_JOB] = job
    state.scalars[INJECTED_LAST], state.scalars[INJECTED_SUBMIT] = job, submit_s
    state.extra_submit_s[job - run.knobs.arrivals] = submit_s


@kernel_inline
def _at_or_after(second: int, origin: int, period: int) -> int:
    """Return the first of origin, origin +- period, ... that is not before `second`."""
    return int(origin - (origin - second) // period * period)


@kernel
def next_instant(run: SlurmRun, state: SlurmState) -> int:
    """Return the next second in which anything can happen, or NEVER."""
    scalars, knobs, tables = state.scalars, run.knobs, run.tables
    instant = NEVER
    if scalars[RUNNING_ROWS] > 0:
        instant = int(state.releases[scalars[RUNNING_ROWS] - 1, 0])
    if scalars[NEXT_ARRIVAL] < knobs.arrivals:
        instant = min(instant, int(run.jobs.submit_s[scalars[NEXT_ARRIVAL]]))
    if scalars[INJECTED_JOB] != NONE:
        instant = min(instant, int(scalars[INJECTED_SUBMIT]))
    if scalars[TIMERS] > 0:
        instant = min(instant, int(state.timers[0, 0]))
    if scalars[NEXT_OUTAGE] < len(tables.outage_event):
        instant = min(instant, int(tables.outage_event[scalars[NEXT_OUTAGE], 0]))
    if scalars[NEXT_CAPACITY] < len(tables.capacity):
        instant = min(instant, int(tables.capacity[scalars[NEXT_CAPACITY], 0]))
    if instant == NEVER and (scalars[QUEUE_ROWS] == 0 or scalars[SETTLED] != 0):
        return NEVER
    now = int(scalars[NOW])
    instant = max(instant, now)
    if scalars[QUEUE_ROWS] > 0:
        passes_from = max(now, int(scalars[FREE_FROM]))
        instant = min(instant, max(passes_from, int(scalars[REQUEST])))
        full_from = passes_from + 1 if scalars[LAST_FULL] == passes_from else passes_from
        instant = min(instant, _at_or_after(full_from, knobs.origin_s, knobs.sched_interval_s))
        if knobs.backfill != 0:
            instant = min(instant, max(passes_from, int(scalars[LAST_BACKFILL]) + knobs.bf_interval_s))
    has_begun = scalars[NEXT_ARRIVAL] > 0 or scalars[LAST_REQUESTED] >= 0  # or periods since 1970 would be instants
    if scalars[QUEUE_ROWS] > 0 or (knobs.weight_fairshare != 0.0 and has_begun):
        if scalars[NEXT_TICK] < now:
            scalars[NEXT_TICK] = _at_or_after(now, knobs.origin_s, knobs.calc_period_s)
        instant = min(instant, int(scalars[NEXT_TICK]))
    return instant


@kernel_inline
def _has_room(run: SlurmRun, state: SlurmState) -> bool:
    """Whether the tables of the state have room for all events of the next second and one more submission."""
    scalars = state.scalars
    running = scalars[RUNNING_ROWS]
    return bool(
        scalars[HELD_JOBS] + scalars[QUEUE_ROWS] + running < len(state.queue)
        and scalars[TIMERS] + run.knobs.conditions + running + 4 < len(state.timers)
    )


@kernel
def _take_outages(run: SlurmRun, state: SlurmState) -> None:
    """Apply step 1: nodes leave or come back, and the capacity changes."""
    scalars, tables = state.scalars, run.tables
    now = scalars[NOW]
    while scalars[NEXT_OUTAGE] < len(tables.outage_event) and tables.outage_event[scalars[NEXT_OUTAGE], 0] <= now:
        begins, row = tables.outage_event[scalars[NEXT_OUTAGE], 1], tables.outage_event[scalars[NEXT_OUTAGE], 2]
        if tables.outage_kind[row] == DRAIN:
            nodes_changed(run)
            drain(state, tables.outage_nodes, row, 1 if begins else -1)
        if not begins:
            request_pass(run, state)
        scalars[NEXT_OUTAGE] += 1
        scalars[HAPPENED] = 1
    while scalars[NEXT_CAPACITY] < len(tables.capacity) and tables.capacity[scalars[NEXT_CAPACITY], 0] <= now:
        nodes = tables.capacity[scalars[NEXT_CAPACITY], 1]
        if nodes > scalars[CAPACITY]:
            request_pass(run, state)
        scalars[CAPACITY] = nodes
        scalars[NEXT_CAPACITY] += 1
        scalars[HAPPENED] = 1
        _settle_capacity(run, state)


@kernel
def _settle_capacity(run: SlurmRun, state: SlurmState) -> None:
    """Adjust the number of nodes out of service to the capacity, as far as idle nodes allow."""
    scalars, out = state.scalars, state.sets
    nodes = len(state.node)
    nodes_changed(run)
    wanted = nodes - scalars[CAPACITY]
    n = 0
    while scalars[OUT_COUNT] > wanted and n < nodes:
        if (out[OUT, n >> 6] >> (n & 63)) & 1:
            out[OUT, n >> 6] &= ~(1 << (n & 63))
            scalars[OUT_COUNT] -= 1
        n += 1
    n = nodes - 1
    while scalars[OUT_COUNT] < wanted and n >= 0:
        if state.node[n, JOBS] == 0 and not (out[OUT, n >> 6] >> (n & 63)) & 1:
            out[OUT, n >> 6] |= 1 << (n & 63)
            scalars[OUT_COUNT] += 1
        n -= 1


@kernel_part
def _take_ends(run: SlurmRun, state: SlurmState) -> None:
    """Apply step 2: ended jobs release their nodes."""
    scalars = state.scalars
    while scalars[RUNNING_ROWS] > 0 and state.releases[scalars[RUNNING_ROWS] - 1, 0] <= scalars[NOW]:
        end_next(run, state)
        scalars[HAPPENED], scalars[ENDED] = 1, 1
    if scalars[ENDED] != 0 and len(state.node) - scalars[CAPACITY] > scalars[OUT_COUNT]:
        _settle_capacity(run, state)


@kernel
def _take_arrivals(run: SlurmRun, state: SlurmState) -> bool:
    """Apply step 3, submissions. Returns False if there is no room for the next one."""
    scalars, jobs = state.scalars, run.jobs
    now = scalars[NOW]
    while scalars[NEXT_ARRIVAL] < run.knobs.arrivals and jobs.submit_s[scalars[NEXT_ARRIVAL]] <= now:
        job = int(scalars[NEXT_ARRIVAL])
        if state.phase[job] == FUTURE:  # unplaceable jobs have another phase
            if not _has_room(run, state):
                return False
            state.phase[job] = HELD
            scalars[HELD_JOBS] += 1
            if jobs.cancel_s[job] != NEVER:
                push_timer(state, max(now, jobs.cancel_s[job]), CANCEL, job)
            if jobs.pinned_s[job] < scalars[FREE_FROM]:
                push_timer(state, max(now, jobs.pinned_s[job]), PIN, job)
            if jobs.eligible_s[job] <= now:
                enter_later(state, job)
            elif jobs.eligible_s[job] != NEVER:
                push_timer(state, jobs.eligible_s[job], ELIGIBLE, job)
            scalars[HAPPENED] = 1
        scalars[NEXT_ARRIVAL] = job + 1
    while scalars[INJECTED_JOB] != NONE and scalars[INJECTED_SUBMIT] <= now:
        if not _has_room(run, state):
            return False
        job = int(scalars[INJECTED_JOB])
        scalars[HELD_JOBS] += 1
        enqueue(run, state, job, scalars[INJECTED_SUBMIT])
        scalars[INJECTED_JOB] = NONE if job == scalars[INJECTED_LAST] else job + 1
    return True


@kernel_part
def _take_timers(run: SlurmRun, state: SlurmState) -> None:
    """Apply step 3, timed events."""
    scalars = state.scalars
    while scalars[TIMERS] > 0 and state.timers[0, 0] <= scalars[NOW]:
        what = pop_timer(state)
        kind, job = what >> TIMER_KIND, what & ((1 << TIMER_KIND) - 1)
        if kind == ELIGIBLE:
            if state.phase[job] == HELD:
                scalars[HAPPENED] = 1
                enter_later(state, job)
        elif kind == SATISFIED:
            satisfy(run, state, job)
        elif kind == CANCEL:
            cancel(run, state, job)
        elif kind == PIN:
            if scalars[NOW] < scalars[FREE_FROM]:
                start_pinned(run, state, job)
        elif len(state.restarts) > 0 and state.restarts[job] > 0:
            if state.phase[job] == HELD:
                enqueue(run, state, job, scalars[NOW] - run.knobs.requeue_delay_s)
        else:
            enter_if_ready(run, state, job)


@kernel_part
def _calculate_priorities(run: SlurmRun, state: SlurmState) -> None:
    """Apply step 4 if it is due in this second."""
    scalars, knobs = state.scalars, run.knobs
    now = scalars[NOW]
    if scalars[NEXT_TICK] < now:
        scalars[NEXT_TICK] = _at_or_after(now, knobs.origin_s, knobs.calc_period_s)
    if scalars[NEXT_TICK] != now:
        return
    if knobs.weight_fairshare != 0.0:
        account_usage(run, state)
        rank_users(run, state)
    if scalars[QUEUE_ROWS] > 0:
        reprioritise(run, state)
        scalars[SETTLED] = 0
    scalars[NEXT_TICK] = now + knobs.calc_period_s


@kernel_part
def _passes(run: SlurmRun, state: SlurmState) -> None:
    """Apply steps 5 and 6: the main pass and the backfill pass, if due."""
    scalars, knobs = state.scalars, run.knobs
    now = scalars[NOW]
    if scalars[HAPPENED] != 0:
        scalars[SETTLED] = 0
    if now >= scalars[FREE_FROM]:
        scalars[NEXT_SECOND] = 1
        full = scalars[LAST_FULL] != now and _at_or_after(now, knobs.origin_s, knobs.sched_interval_s) == now
        if scalars[QUEUE_ROWS] > 0:
            if full or scalars[REQUEST] <= now:
                scalars[LAST_REQUESTED], scalars[REQUEST] = now, NEVER
                scalars[LAST_FULL] = now if full else scalars[LAST_FULL]
                main_pass(run, state, full)
                if full and scalars[RUNNING_ROWS] == 0:
                    scalars[SETTLED] = 1
            elif scalars[ENDED] != 0:
                main_pass(run, state, False)
        if (
            knobs.backfill != 0
            and now >= scalars[LAST_BACKFILL] + knobs.bf_interval_s
            and (scalars[QUEUE_ROWS] > 0 or scalars[HAPPENED] != 0)
        ):
            if scalars[QUEUE_ROWS] > 0:
                backfill_pass(run, state)
            scalars[LAST_BACKFILL] = now
    scalars[HAPPENED], scalars[ENDED] = 0, 0
