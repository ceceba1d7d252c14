"""Conservative backfill: every pending job has a planned start, and a job may pass others if it delays none of them.

Mu'alem and Feitelson, TPDS 2001.

**A pass.**

1. Build the profile of idle units over time from the expected ends of the running jobs. An expected end that has passed
   counts as now.
2. Each pending job, in queue order, takes the earliest place in the profile where enough units stay idle for its whole
   estimate. A place may begin now or where the profile changes.
3. A job whose place is now starts if the units are actually idle. The units of a job that has outlived its estimate are
   idle in the plan only: the planned job keeps its place and waits for the next pass.

| knob | |
|---|---|
| queue order | (submit, job id) |
| estimate | `--estimate`, for running and pending jobs alike: `limit` (default) or `exact` |
| reservations | all rebuilt at every pass, in queue order; earlier guarantees are not remembered |
| depth | the whole queue |
| pass | `event` (default) or `instant` |
| end of a job | its run time; with `--kill-at-limit` its limit, if that is earlier |

**Guarantees.** With exact estimates no job is delayed by a job behind it: each job starts when it would start with an
empty queue behind it. With limits this does not hold. When a job ends early, the plan is rebuilt in queue order, and a
job may get a later place than in an earlier plan. (Schedulers that keep their guarantees and only compress the plan
differ here.)

A pass costs (pending jobs) x (steps of the profile). A pass is skipped if the smallest pending job does not fit, since
it could start no job.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.flat.scheduler import Scheduler
from simulator.flat.state import (
    FREE,
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

_TIME, _UNITS = 0, 1  # columns of the profile in FlatState.scratch


@kernel_part
def conservative(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s) -> None:
    """Make one pass as defined above; the profile is `steps` rows of `FlatState.scratch`."""
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


@kernel_part
def _running_profile(state: FlatState) -> int:
    """Fill the profile, rows (time, units idle from then on), from the expected ends; return the number of rows."""
    scalars, releases, profile = state.scalars, state.releases, state.scratch
    steps = 0
    profile[0, _TIME], profile[0, _UNITS] = scalars[NOW], scalars[FREE]
    for i in range(scalars[RUNNING] - 1, -1, -1):
        if releases[i, RELEASE_TIME] > profile[steps, _TIME]:
            steps += 1
            profile[steps, _TIME], profile[steps, _UNITS] = releases[i, RELEASE_TIME], profile[steps - 1, _UNITS]
        profile[steps, _UNITS] += releases[i, RELEASE_SIZE]
    return steps + 1


@kernel_part
def _earliest_place(profile: Int64s, steps: int, size: int, estimate: int) -> int:
    """Return the first row of the profile from which `size` units stay idle for `estimate` s; the last always fits."""
    first = 0
    row = 0
    while row < steps and (row == first or profile[row, _TIME] < profile[first, _TIME] + estimate):
        if profile[row, _UNITS] < size:
            first = row + 1
        row += 1
    return first


@kernel_part
def _take(profile: Int64s, steps: int, first: int, size: int, estimate: int) -> int:
    """Reserve `size` units for `estimate` seconds from row `first` on; return the new number of rows."""
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


def _profile_rows(queue_rows: int, running_rows: int) -> int:
    """Return the most rows of the profile: one per running job and at most two per pending job."""
    return running_rows + 2 * queue_rows + 2


SCHEDULER = Scheduler(schedule=conservative, scratch_rows=_profile_rows)
