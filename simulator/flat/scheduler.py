"""What makes a flat scheduler: the functions in which one differs from another, each with the usual answer as default.

The compiled ones (`simulator.compiled.kernel_part`) are given `Jobs`, `Knobs` and `State` of `simulator.flat.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.compiled import kernel_part
from simulator.flat.state import Int64s, Jobs, Knobs, State

Pass = Callable[[Jobs, Knobs, State, Int64s], None]
Rank = Callable[[Jobs, Knobs, int, int, int], int]
NextPass = Callable[[Knobs, State, int], int]


@kernel_part
def by_submission(jobs: Jobs, knobs: Knobs, job: int, submit_s: int, estimate_s: int) -> int:
    """First come, first served."""
    return submit_s


@kernel_part
def at_events(knobs: Knobs, state: State, event_s: int) -> int:
    """A pass whenever a job is submitted or ends."""
    return event_s


def no_scratch(queue_rows: int, running_rows: int) -> int:
    """No working memory."""
    return 0


def as_asked(knobs: Knobs) -> Knobs:
    """Every knob can be chosen."""
    return knobs


@dataclass(frozen=True)
class Scheduler:
    """One flat scheduler. `schedule`, `rank` and `next_pass` are compiled, the others plain Python."""

    schedule: Pass
    """(jobs, knobs, state, starts): one scheduling pass; starts pending jobs now through `state.start_pending`.
    Called only while some job pends and some unit is idle."""

    rank: Rank = by_submission
    """(jobs, knobs, job, submit_s, estimate_s) -> the job's place in the queue, fixed at its submission: smaller ranks
    come first, equal ones in order of arrival. `job` is a row of Jobs, `estimate_s` the run time planned with, s."""

    next_pass: NextPass = at_events
    """(knobs, state, event_s) -> the second of the next pass, s, where the next submission or end is at `event_s`
    (NEVER for none). Events up to that second have happened by then."""

    scratch_rows: Callable[[int, int], int] = no_scratch
    """(queue_rows, running_rows) -> rows of `State.scratch` that a pass needs with so many jobs pending and running."""

    in_force: Callable[[Knobs], Knobs] = as_asked
    """The knobs as they are in force, where the scheduler leaves no choice in some of them."""
