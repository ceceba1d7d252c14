"""The parts of a flat scheduler: functions that a scheduler may replace, each with a default.

The compiled functions (`simulator.compiled.kernel_part`) take `FlatJobs`, `FlatKnobs` and `FlatState` of
`simulator.flat.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.compiled import kernel_part
from simulator.flat.state import FlatJobs, FlatKnobs, FlatState
from traces.arrays import Int64s

Pass = Callable[[FlatJobs, FlatKnobs, FlatState, Int64s], None]
Rank = Callable[[FlatJobs, FlatKnobs, int, int, int], int]
NextPass = Callable[[FlatKnobs, FlatState, int], int]


@kernel_part
def by_submission(jobs: FlatJobs, knobs: FlatKnobs, job: int, submit_s: int, estimate_s: int) -> int:
    """Rank by submission: first come, first served."""
    return submit_s


@kernel_part
def at_events(knobs: FlatKnobs, state: FlatState, event_s: int) -> int:
    """Make a pass whenever a job is submitted or ends."""
    return event_s


def no_scratch(queue_rows: int, running_rows: int) -> int:
    """Use no working memory."""
    return 0


def as_asked(knobs: FlatKnobs) -> FlatKnobs:
    """Leave every knob as chosen."""
    return knobs


@dataclass(frozen=True)
class Scheduler:
    """One flat scheduler. `schedule`, `rank` and `next_pass` are compiled; the other functions are plain Python."""

    schedule: Pass
    """(jobs, knobs, state, starts): one scheduling pass, which starts pending jobs through `state.start_pending`.
    Called only while at least one job pends and at least one unit is idle."""

    rank: Rank = by_submission
    """(jobs, knobs, job, submit_s, estimate_s) -> the job's rank in the queue, fixed at its submission. Smaller ranks
    come first, equal ranks in order of arrival. `job` is a row of `jobs`; `estimate_s` is the planned run time, s."""

    next_pass: NextPass = at_events
    """(knobs, state, event_s) -> the second of the next pass. The next submission or end is at `event_s` (NEVER for
    none). All events up to the second of the pass happen before it."""

    scratch_rows: Callable[[int, int], int] = no_scratch
    """(queue_rows, running_rows) -> rows of `FlatState.scratch` that a pass needs for that many pending and running
    jobs."""

    in_force: Callable[[FlatKnobs], FlatKnobs] = as_asked
    """knobs -> the knobs with the values that the scheduler fixes."""
