"""The cluster of the Mirage paper: priority by size and age, a clock of minutes, backfill on slots every ten.

Ding et al., SC'23, arXiv 2306.14086. The provisioning policies are compared on it: whole nodes, one queue. It plans
with limits only.

**Priority.** 100 x size / capacity, plus 7,000 for every 7 days of waiting, without a cap. All jobs age alike, so the
order never changes: more size is worth a little age (half the cluster more: 50 points, 4,320 s).

**A tick** first ends jobs and takes submissions up to and including its own second, then jobs start in order of
priority until the first that does not fit.

**Backfill**, every tenth tick (whole ten minutes of the trace's clock), after that: on a timeline of 288 slots of 600 s
(`bf_window` 2,880 min, `bf_resolution` 600 s), slot 0 beginning now, running jobs hold every slot that begins before
start + limit; in order of priority each of the first 3,000 pending jobs (`bf_max_job_test`) takes the first run of
slots that holds it for its limit, rounded up to slots, and starts if that run begins at slot 0.

| knob | |
|---|---|
| queue order | priority by size and age, fixed at submission |
| estimate | the limit; `--estimate exact` is refused |
| reservations | all within the window, anew at each backfill pass; a job that no run of slots holds gets none |
| a limit longer than the window | needs the window's rest only |
| pass | each tick; `--pass` does not matter |
| what ends a job | its run time or its limit, whichever is earlier; what ends between ticks is freed at the next |

Chosen where the paper and its program leave room, or where the program does what no cluster can:

- ticks are the whole minutes of the trace's clock, backfill ticks its whole ten minutes;
- a job counts from the first tick at or after its submission (the authors' program rounds submissions down to the
  minute, so that a job can start up to 59 s before it was submitted: round them down first to follow it);
- a tick first ends jobs and takes submissions up to and including its own second, then schedules, so that units freed
  at a tick are used at it; what ends between ticks is freed at the next;
- a job never outlives its limit, so none runs past its expected end but for the seconds until the next tick;
- limits are rounded up to whole slots; a job longer than the window needs the window's rest only;
- equal priorities keep the order of submission.

Ticks at which nothing can happen are skipped, without changing any start: a start needs an arrival, an end, or a
backfill tick with a pending job that fits into the idle units.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.flat.scheduler import Scheduler
from simulator.flat.schedulers.fifo import in_order
from simulator.flat.state import (
    FREE,
    NEVER,
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
    smallest_pending,
    start_pending,
)

TICK_S = 60
BACKFILL_S = 600  # bf_interval
SLOT_S = 600  # bf_resolution
SLOTS = 288  # bf_window 2880 min / bf_resolution 600 s
MAX_TESTED = 3000  # bf_max_job_test


@kernel_part
def by_size_and_age(jobs: Jobs, knobs: Knobs, job: int, submit_s: int, estimate_s: int) -> int:
    """100 * size / capacity - 7000 * submit / 604800, scaled by -604800 * capacity / 7000: exact in integers."""
    return int(submit_s * knobs.capacity - 8640 * jobs.size[job])


@kernel_part
def at_ticks(knobs: Knobs, state: State, event_s: int) -> int:
    """The first tick at or after the event, or the next backfill tick if some pending job fits into the idle units."""
    scalars = state.scalars
    now = int(scalars[NOW])
    tick = event_s
    if event_s != NEVER:
        tick = max((event_s + TICK_S - 1) // TICK_S, now // TICK_S + 1) * TICK_S
    backfill = int(now // BACKFILL_S + 1) * BACKFILL_S
    if backfill < tick and scalars[FREE] > 0 and smallest_pending(state) <= scalars[FREE]:
        return backfill
    return tick


@kernel_part
def tick(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """Start jobs in order of priority; at every tenth tick backfill after that."""
    in_order(jobs, knobs, state, starts)
    if state.scalars[NOW] % BACKFILL_S == 0:
        slotted_backfill(jobs, knobs, state, starts)


@kernel_part
def slotted_backfill(jobs: Jobs, knobs: Knobs, state: State, starts: Int64s) -> None:
    """The backfill of the page above; row `slot` of the timeline, in State.scratch, is what is idle in that slot."""
    scalars, queue, timeline = state.scalars, state.queue, state.scratch[:, 0]
    last = _last_that_fits(state)
    if last < 0:
        return
    release = scalars[RUNNING] - 1
    free = scalars[FREE]
    for slot in range(SLOTS):
        begin = scalars[NOW] + slot * SLOT_S
        while release >= 0 and state.releases[release, RELEASE_TIME] <= begin:
            free += state.releases[release, RELEASE_SIZE]
            release -= 1
        timeline[slot] = free
    smallest = smallest_pending(state)
    for position in range(scalars[QUEUE_HEAD], last + 1):
        size = queue[position, QUEUE_SIZE]
        slots = (queue[position, QUEUE_ESTIMATE] + SLOT_S - 1) // SLOT_S
        first = 0
        slot = 0
        while slot < min(first + slots, SLOTS):
            if timeline[slot] < size:
                first = slot + 1
            slot += 1
        for held in range(first, slot):
            timeline[held] -= size
        if first == 0:
            start_pending(jobs, knobs, state, starts, position)
            if scalars[FREE] < smallest:  # slot 0 holds nobody any more
                return


@kernel_part
def _last_that_fits(state: State) -> int:
    """The last tested row of the queue that fits into the idle units, or -1: nobody behind it can start."""
    scalars = state.scalars
    for position in range(min(scalars[QUEUE_TAIL], scalars[QUEUE_HEAD] + MAX_TESTED) - 1, -1, -1):
        if position < scalars[QUEUE_HEAD]:
            break
        if state.queue[position, QUEUE_SIZE] <= scalars[FREE]:
            return position
    return -1


def _timeline_rows(queue_rows: int, running_rows: int) -> int:
    return SLOTS


def _limits_alone(knobs: Knobs) -> Knobs:
    """It plans with limits and ends jobs at them, and takes all events of a tick before its pass."""
    return knobs._replace(exact=0, instant=1, kill=1)


SCHEDULER = Scheduler(tick, by_size_and_age, at_ticks, _timeline_rows, _limits_alone)
