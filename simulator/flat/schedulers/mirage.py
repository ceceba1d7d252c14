"""The cluster of the Mirage paper: priority by size and age, a pass each minute, slotted backfill every ten minutes.

Ding et al., SC'23, arXiv 2306.14086, compare provisioning policies on this cluster: whole nodes, one queue. It plans
with limits only.

**Priority.** 100 x size / capacity, plus 7,000 for every 7 days of waiting, without a cap. All jobs age alike, so the
order never changes. A larger size is worth a little age: half the cluster more is worth 50 points, or 4,320 s.

**A tick** first ends jobs and takes submissions up to and including its own second. Then jobs start in order of
priority until the first that does not fit.

**Backfill** follows at every tenth tick (whole ten minutes of the trace's clock). It plans on a timeline of 288 slots
of 600 s (`bf_window` 2,880 min, `bf_resolution` 600 s); slot 0 begins now. Running jobs hold every slot that begins
before start + limit. In order of priority, each of the first 3,000 pending jobs (`bf_max_job_test`) takes the first run
of slots that has room for it during its limit, rounded up to slots. The job starts if that run begins at slot 0.

| knob | |
|---|---|
| queue order | priority by size and age, fixed at submission |
| estimate | the limit; `--estimate exact` is refused |
| reservations | all within the window, rebuilt at each backfill pass; a job that no run of slots can hold gets none |
| a limit longer than the window | needs only the slots up to the end of the window |
| pass | each tick; `--pass` does not matter |
| end of a job | its run time or its limit, whichever is earlier; units are freed at the first tick from then on |

Our choices where the paper and its program leave room, or where the program does something that no cluster can do:

- Ticks are the whole minutes of the trace's clock; backfill ticks are its whole ten minutes.
- A job counts from the first tick at or after its submission. The authors' program rounds submissions down to the
  minute, so a job can start up to 59 s before its submission. To reproduce that, round the submissions down first.
- A tick first ends jobs and takes submissions up to and including its own second, then schedules, so units freed at a
  tick are used at that tick. Units of a job that ends between ticks are freed at the next tick.
- A job never outlives its limit, so it runs past its expected end only until the next tick.
- Limits are rounded up to whole slots. A job longer than the window needs only the slots up to the end of the window.
- Equal priorities keep the order of submission.

Ticks at which nothing can happen are skipped. This changes no start: a start needs an arrival, an end, or a backfill
tick with a pending job that fits into the idle units.
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
    FlatJobs,
    FlatKnobs,
    FlatState,
    smallest_pending,
    start_pending,
)
from traces.arrays import Int64s

TICK_S = 60
BACKFILL_S = 600  # bf_interval
SLOT_S = 600  # bf_resolution
SLOTS = 288  # bf_window 2880 min / bf_resolution 600 s
MAX_TESTED = 3000  # bf_max_job_test


@kernel_part
def by_size_and_age(jobs: FlatJobs, knobs: FlatKnobs, job: int, submit_s: int, estimate_s: int) -> int:
    """Rank by 100 * size / capacity - 7000 * submit / 604800, times -604800 * capacity / 7000 to stay in integers."""
    return int(submit_s * knobs.capacity - 8640 * jobs.size[job])


@kernel_part
def at_ticks(knobs: FlatKnobs, state: FlatState, event_s: int) -> int:
    """Return the first tick at or after the event, or the next backfill tick if a pending job fits the idle units."""
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
def tick(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s) -> None:
    """Start jobs in order of priority, then backfill at every tenth tick."""
    in_order(jobs, knobs, state, starts)
    if state.scalars[NOW] % BACKFILL_S == 0:
        slotted_backfill(jobs, knobs, state, starts)


@kernel_part
def slotted_backfill(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s) -> None:
    """Backfill as defined above; row `slot` of the timeline in `FlatState.scratch` counts its idle units."""
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
            if scalars[FREE] < smallest:  # no pending job fits into slot 0 any more
                return


@kernel_part
def _last_that_fits(state: FlatState) -> int:
    """Return the last tested row of the queue that fits into the idle units, or -1. No job behind it can start."""
    scalars = state.scalars
    for position in range(min(scalars[QUEUE_TAIL], scalars[QUEUE_HEAD] + MAX_TESTED) - 1, -1, -1):
        if position < scalars[QUEUE_HEAD]:
            break
        if state.queue[position, QUEUE_SIZE] <= scalars[FREE]:
            return position
    return -1


def _timeline_rows(queue_rows: int, running_rows: int) -> int:
    return SLOTS


def _limits_alone(knobs: FlatKnobs) -> FlatKnobs:
    """Fix the knobs: plan with limits, end jobs at their limits, and take all events of a tick before its pass."""
    return knobs._replace(exact=0, instant=1, kill=1)


SCHEDULER = Scheduler(tick, by_size_and_age, at_ticks, _timeline_rows, _limits_alone)
