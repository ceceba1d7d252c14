"""One scheduling pass of each scheduler: which pending jobs start at this instant. Compiled; the clock is elsewhere.

`knobs`, `jobs` and `state` are those of `simulator.flat.state`; each pass starts jobs through `start_pending`. A job
that outlived its estimate is expected to end now.
"""

from __future__ import annotations

from simulator.compiled import kernel_inline
from simulator.flat.state import (
    FREE,
    MIRAGE_SLOTS,
    NOW,
    QUEUE_ESTIMATE,
    QUEUE_HEAD,
    QUEUE_SIZE,
    QUEUE_TAIL,
    RELEASE_SIZE,
    RELEASE_TIME,
    RUNNING,
    Int64s,
    Jobs,
    Knobs,
    State,
    start_pending,
)

MIRAGE_SLOT_S = 600  # bf_resolution
MIRAGE_MAX_TESTED = 3000  # bf_max_job_test

_TIME, _UNITS = 0, 1  # columns of the conservative profile in State.scratch


@kernel_inline
def in_order(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """Start from the head of the queue until the first job that does not fit."""
    scalars, queue = state.scalars, state.queue
    while scalars[QUEUE_HEAD] < scalars[QUEUE_TAIL] and queue[scalars[QUEUE_HEAD], QUEUE_SIZE] <= scalars[FREE]:
        start_pending(jobs, knobs, state, starts, scalars[QUEUE_HEAD])


@kernel_inline
def easy(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """EASY backfill (Lifka 1995): one reservation, for the head, made anew at each pass.

    The shadow time is the first instant at which enough running jobs are expected to have ended for the head; the
    spare units are those idle then beyond the head's need, counting every job expected to end by then. In queue order
    a candidate starts if it fits now and either is expected to end by the shadow time (<=) or fits in what is left of
    the spare.
    """
    in_order(jobs, knobs, state, starts)
    scalars, queue, releases = state.scalars, state.queue, state.releases
    head, tail, now = scalars[QUEUE_HEAD], scalars[QUEUE_TAIL], scalars[NOW]
    if tail - head < 2 or scalars[FREE] == 0:
        return
    available = scalars[FREE] - queue[head, QUEUE_SIZE]
    shadow = now
    i = scalars[RUNNING] - 1
    while i >= 0 and (available < 0 or releases[i, RELEASE_TIME] <= shadow):
        shadow = max(shadow, releases[i, RELEASE_TIME])
        available += releases[i, RELEASE_SIZE]
        i -= 1
    spare = available
    for position in range(head + 1, tail):
        size = queue[position, QUEUE_SIZE]
        if size > scalars[FREE]:
            continue
        if now + queue[position, QUEUE_ESTIMATE] > shadow:
            if size > spare:
                continue
            spare -= size
        start_pending(jobs, knobs, state, starts, position)
        if scalars[FREE] == 0:
            return


@kernel_inline
def conservative(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """Conservative backfill: every pending job, in queue order, gets the earliest place that delays none before it.

    The profile of idle units over time is rebuilt at every pass, with no memory of earlier guarantees. A job whose
    place is now starts if the units are really idle; units of a job that outlived its estimate are not, and a place
    now that waits for them is held like any other.
    """
    scalars, queue, profile = state.scalars, state.queue, state.scratch
    head, tail, now = scalars[QUEUE_HEAD], scalars[QUEUE_TAIL], scalars[NOW]
    if smallest_pending(state) > scalars[FREE]:
        return
    steps = _running_profile(state)
    for position in range(head, tail):
        size, estimate = queue[position, QUEUE_SIZE], queue[position, QUEUE_ESTIMATE]
        first = _earliest_place(profile, steps, size, estimate)
        steps = _take(profile, steps, first, size, estimate)
        if profile[first, _TIME] == now and size <= scalars[FREE]:
            start_pending(jobs, knobs, state, starts, position)
            if scalars[FREE] == 0:
                return


@kernel_inline
def _running_profile(state: State) -> int:
    """Fill the profile, rows (time, units idle from then on), from the expected ends; returns the number of rows."""
    scalars, releases, profile = state.scalars, state.releases, state.scratch
    steps = 0
    profile[0, _TIME], profile[0, _UNITS] = scalars[NOW], scalars[FREE]
    for i in range(scalars[RUNNING] - 1, -1, -1):
        if releases[i, RELEASE_TIME] > profile[steps, _TIME]:
            steps += 1
            profile[steps, _TIME], profile[steps, _UNITS] = releases[i, RELEASE_TIME], profile[steps - 1, _UNITS]
        profile[steps, _UNITS] += releases[i, RELEASE_SIZE]
    return steps + 1


@kernel_inline
def _earliest_place(profile: Int64s, steps: int, size: int, estimate: int) -> int:
    """The first row of the profile from which `size` units stay idle for `estimate` seconds; the last always does."""
    first = 0
    row = 0
    while row < steps and (row == first or profile[row, _TIME] < profile[first, _TIME] + estimate):
        if profile[row, _UNITS] < size:
            first = row + 1
        row += 1
    return first


@kernel_inline
def _take(profile: Int64s, steps: int, first: int, size: int, estimate: int) -> int:
    """Take `size` units for `estimate` seconds from row `first` on; returns the new number of rows."""
    if estimate == 0:
        return steps
    end = profile[first, _TIME] + estimate
    row = first
    while row < steps and profile[row, _TIME] < end:
        profile[row, _UNITS] -= size
        row += 1
    if row < steps and profile[row, _TIME] == end:
        return steps
    for i in range(steps, row, -1):
        profile[i, _TIME], profile[i, _UNITS] = profile[i - 1, _TIME], profile[i - 1, _UNITS]
    profile[row, _TIME], profile[row, _UNITS] = end, profile[row - 1, _UNITS] + size
    return steps + 1


@kernel_inline
def slotted_backfill(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """Backfill on a timeline of MIRAGE_SLOTS slots of MIRAGE_SLOT_S seconds, slot 0 beginning now.

    A running job holds every slot that begins before start + limit. In queue order each of the first
    MIRAGE_MAX_TESTED pending jobs takes the first run of slots that holds it for its limit, rounded up to slots and
    cut at the end of the window, and starts if that run begins at slot 0; a job that no run holds reserves nothing.
    """
    scalars, queue, timeline = state.scalars, state.queue, state.scratch[:, 0]
    last = _last_that_fits(state)
    if last < 0:
        return
    release = scalars[RUNNING] - 1
    free = scalars[FREE]
    for slot in range(MIRAGE_SLOTS):
        begin = scalars[NOW] + slot * MIRAGE_SLOT_S
        while release >= 0 and state.releases[release, RELEASE_TIME] <= begin:
            free += state.releases[release, RELEASE_SIZE]
            release -= 1
        timeline[slot] = free
    smallest = smallest_pending(state)
    for position in range(scalars[QUEUE_HEAD], last + 1):
        size = queue[position, QUEUE_SIZE]
        slots = (queue[position, QUEUE_ESTIMATE] + MIRAGE_SLOT_S - 1) // MIRAGE_SLOT_S
        first = 0
        slot = 0
        while slot < min(first + slots, MIRAGE_SLOTS):
            if timeline[slot] < size:
                first = slot + 1
            slot += 1
        for held in range(first, slot):
            timeline[held] -= size
        if first == 0:
            start_pending(jobs, knobs, state, starts, position)
            if scalars[FREE] < smallest:  # slot 0 holds nobody any more
                return


@kernel_inline
def _last_that_fits(state: State) -> int:
    """The last tested row of the queue that fits into the idle units, or -1: nobody behind it can start."""
    scalars = state.scalars
    for position in range(min(scalars[QUEUE_TAIL], scalars[QUEUE_HEAD] + MIRAGE_MAX_TESTED) - 1, -1, -1):
        if position < scalars[QUEUE_HEAD]:
            break
        if state.queue[position, QUEUE_SIZE] <= scalars[FREE]:
            return position
    return -1


@kernel_inline
def smallest_pending(state: State) -> int:
    """Units of the smallest pending job; a number above any capacity where nothing pends."""
    smallest = 1 << 62
    for position in range(state.scalars[QUEUE_HEAD], state.scalars[QUEUE_TAIL]):
        smallest = min(smallest, state.queue[position, QUEUE_SIZE])
    return smallest
