"""Compare calibrated waits with recorded ones, month by month, with parameters fitted before each month.

A wait is predicted in four forms, which differ in the information that they use:

  - `frozen`: replay the whole trace. The rules make every start, and every parameter is from before the month, so a
    wrong start shifts all later starts.
  - `causal`: the same replay, but the usable nodes at each instant are those of the record up to it.
  - `forked`: predict each job separately. All jobs follow the record until its submission; from then on all jobs are
    simulated (`simulator.recorded.forked`). Parameters are refitted every week on the record until then.
  - `informed`: predict each job separately, while the other jobs follow the record throughout
    (`simulator.recorded.informed`).

docs/calibration.md works through an example of all four.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simulator.metrics import NOTICED_WAIT_S, wait_distance
from simulator.recorded.free import free_starts, usable_nodes
from simulator.recorded.parameters import (
    LEAST_FIT_S,
    MECHANISMS,
    REPLAYED,
    WINDOW_S,
    Parameters,
    infer_parameters,
    jobs_of,
    rules_of,
)
from simulator.recorded.record import NEVER, Events, RecordedTrace, events
from simulator.recorded.single import is_around, single_starts
from traces.arrays import Int64s
from traces.units import DAY_S

FROZEN, CAUSAL, FORKED, INFORMED = "frozen", "causal", "forked", "informed"
FORMS = (FROZEN, CAUSAL, FORKED, INFORMED)
SINGLE = (FORKED, INFORMED)  # forms that predict each job separately
ALL = frozenset(MECHANISMS)
REFIT_S = 7 * DAY_S
LEAST_JUDGED_S = 7 * DAY_S  # least span of submissions in a judged month
LEAST_JOBS = 100


@dataclass(frozen=True)
class Month:
    """A month of jobs to judge: those submitted in [from_s, until_s), epoch s; all of them, or every n-th."""

    from_s: int
    until_s: int
    every: int = 1
    is_near: bool = False  # for a long record: fit each week on LEAST_FIT_S, and simulate it among nearby jobs only

    @property
    def weeks(self) -> list[int]:
        """Return the instants at which the rules are fitted, epoch s."""
        return list(range(self.from_s, self.until_s, REFIT_S))

    def of(self, record: RecordedTrace) -> NDArray[np.bool_]:
        """Return the mask of the judged jobs: those submitted in the month that ran."""
        inside = record.ran & (record.submit_s >= self.from_s) & (record.submit_s < self.until_s)
        chosen: NDArray[np.bool_] = inside & (np.cumsum(inside) % self.every == 0)
        return chosen


def months(record: RecordedTrace, fit_from_s: int | None = None) -> list[Month]:
    """Return the calendar months (UTC) that can be judged.

    A month needs LEAST_FIT_S of record before it, submissions over LEAST_JUDGED_S, and LEAST_JOBS jobs that ran. The
    record counts from `fit_from_s` on, for a trace that begins with surviving jobs only.
    """
    if not len(record):
        return []
    first, last = int(record.submit_s[0]) if fit_from_s is None else fit_from_s, int(record.submit_s[-1])
    start, judged = datetime.fromtimestamp(first, UTC).replace(day=1, hour=0, minute=0, second=0), []
    while start.timestamp() <= last:
        after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        month = Month(int(start.timestamp()), int(after.timestamp()))
        enough = min(month.until_s, last) - month.from_s >= LEAST_JUDGED_S
        if month.from_s >= first + LEAST_FIT_S and enough and np.count_nonzero(month.of(record)) >= LEAST_JOBS:
            judged.append(month)
        start = after
    return judged


def steps(form: str, month: Month) -> int:
    """Return the number of steps that `judged_starts` reports."""
    return len(month.weeks) if form in SINGLE else 1


def _silent(steps: int) -> None:
    """Ignore progress."""


def judged_starts(
    form: str,
    record: RecordedTrace,
    happened: Events,
    month: Month,
    fitted: list[Parameters],
    mechanisms: frozenset[str] = ALL,
    on_progress: Callable[[int], None] = _silent,
) -> Int64s:
    """Return the starts of the month's jobs under one form, s, shape (jobs,); rows of other jobs have no meaning.

    `fitted` are the parameters of `fits(record, month)`: the first is from before the month, and each holds until the
    next. `on_progress` receives the number of `steps` completed since the last call.
    """
    first = fitted[0]
    if form in SINGLE:
        predicted, judged = np.full(len(record), NEVER, np.int64), month.of(record)
        weeks = [
            (parameters.until_s, rules_of(parameters, mechanisms), parameters.points_per_hour) for parameters in fitted
        ]
        changes = [k for k in range(len(weeks)) if k == 0 or month.is_near or weeks[k][1:] != weeks[k - 1][1:]]
        for k, after in zip(changes, [*changes[1:], len(weeks)], strict=True):
            from_s, rules, slope = weeks[k]
            until_s = weeks[after][0] if after < len(weeks) else month.until_s
            wanted = judged & (record.submit_s >= from_s) & (record.submit_s < until_s)
            played = _played(record, happened, month, from_s, until_s)
            jobs = jobs_of(played.record, slope if "priority" in mechanisms else None)
            week = single_starts(
                played.record, played.happened, jobs, rules, wanted[played.rows], forked=form == FORKED
            )
            predicted[played.rows] = np.minimum(predicted[played.rows], week)
            on_progress(after - k)
        return predicted
    on_progress(1)
    follows = form == CAUSAL and "usable nodes" in mechanisms
    usable = usable_nodes(record, happened, WINDOW_S) if follows else np.array([first.nodes], np.int64)
    jobs = jobs_of(record, first.points_per_hour if "priority" in mechanisms else None)
    return free_starts(record, jobs, rules_of(first, mechanisms), usable)


class _Played(NamedTuple):
    """The simulated part of a record, and the positions of its jobs among all."""

    record: RecordedTrace
    happened: Events
    rows: NDArray[np.intp] | slice


def _played(record: RecordedTrace, happened: Events, month: Month, from_s: int, until_s: int) -> _Played:
    """Return the part of the record in which jobs submitted in [from_s, until_s) of the month are simulated."""
    if not month.is_near:
        return _Played(record, happened, slice(None))
    inside = is_around(record, from_s, until_s)
    near = record.take(inside)
    return _Played(near, events(near), np.flatnonzero(inside))


def fits(record: RecordedTrace, month: Month, on_progress: Callable[[int], None] = _silent) -> list[Parameters]:
    """Fit the parameters at the month's start and every REFIT_S within it. `on_progress` is called after each fit."""
    fitted = []
    for until_s in month.weeks:
        learned = record.take(record.submit_s >= until_s - LEAST_FIT_S) if month.is_near else record
        fitted.append(infer_parameters(learned, until_s))
        on_progress(1)
    return fitted


def figures(record: RecordedTrace, month: Month, begun: Int64s) -> dict[str, float]:
    """Return `simulator.metrics.wait_distance` of the month's jobs."""
    judged = month.of(record)
    recorded = (record.start_s - record.submit_s)[judged]
    return wait_distance((begun - record.submit_s)[judged], recorded)


def _mechanisms(form: str) -> list[str]:
    return [name for name in MECHANISMS if form in SINGLE or name in REPLAYED]


def contribution_steps(form: str, month: Month) -> int:
    """Return the number of steps that `contributions` reports."""
    return 2 * len(_mechanisms(form)) * steps(form, month)


def contributions(
    record: RecordedTrace,
    happened: Events,
    month: Month,
    fitted: list[Parameters],
    form: str,
    on_progress: Callable[[int], None] = _silent,
) -> list[tuple[str, str, dict[str, float]]]:
    """Yield (change, mechanism, figures): mechanisms `added` one after the other, and each one `left out` of all."""
    names = _mechanisms(form)

    def figures_with(mechanisms: frozenset[str]) -> dict[str, float]:
        return figures(record, month, judged_starts(form, record, happened, month, fitted, mechanisms, on_progress))

    rows = [("none", "", figures_with(frozenset()))]
    rows += [("added", name, figures_with(frozenset(names[: k + 1]))) for k, name in enumerate(names)]
    rows += [("left out", name, figures_with(frozenset(names) - {name})) for name in names[:-1]]
    rows.append(("left out", names[-1], rows[len(names) - 1][2]))
    return rows


CLASSES = ("within 10 minutes", "10 minutes to 1 hour off", "over 1 hour early", "over 1 hour late")


def error_classes(recorded_wait_s: Int64s, predicted_wait_s: Int64s) -> pl.Series:
    """Return the class of each job's error. Early: the record delayed the job for a reason that the rules lack."""
    late = predicted_wait_s - recorded_wait_s
    number = np.where(np.abs(late) <= NOTICED_WAIT_S, 0, np.where(np.abs(late) <= 3600, 1, np.where(late < 0, 2, 3)))
    return pl.Series("class", [CLASSES[k] for k in number], pl.String)
