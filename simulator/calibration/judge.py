"""Calibrated waits against recorded ones, month by month, each fitted on what came before it.

Four forms, so that no figure stands for another:

  - `frozen`: the whole trace replayed free-running, every parameter from before the month;
  - `causal`: the same replay, usable nodes following the record up to each instant;
  - `forked`: each job by itself, from the recorded state of the others at its submission, simulated from then on
    (`simulator.calibration.forked`), parameters refitted every week on what was recorded by then;
  - `informed`: the same, but told of the others up to each instant (`simulator.calibration.informed`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simulator.calibration.free import free_starts, usable_nodes
from simulator.calibration.parameters import (
    MECHANISMS,
    REPLAYED,
    WINDOW_S,
    Parameters,
    fit,
    jobs_of,
    rules_of,
)
from simulator.calibration.record import NEVER, Events, Int64s, Record
from simulator.calibration.single import single_starts
from simulator.metrics import WAITED_S, wait_distance

FROZEN, CAUSAL, FORKED, INFORMED = "frozen", "causal", "forked", "informed"
FORMS = (FROZEN, CAUSAL, FORKED, INFORMED)
SINGLE = (FORKED, INFORMED)  # each job by itself
ALL = frozenset(MECHANISMS)
DAY_S = 86400
REFIT_S = 7 * DAY_S
LEAST_FIT_S = 28 * DAY_S  # recorded before the first month that is judged
LEAST_JUDGED_S = 7 * DAY_S  # of submissions in a month that is judged
LEAST_JOBS = 100


@dataclass(frozen=True)
class Month:
    """Jobs submitted in [from_s, until_s), epoch s; all of them, or every n-th."""

    from_s: int
    until_s: int
    every: int = 1

    def of(self, record: Record) -> NDArray[np.bool_]:
        """The jobs that are judged: those that ran, submitted in the month."""
        inside = record.ran & (record.submit_s >= self.from_s) & (record.submit_s < self.until_s)
        chosen: NDArray[np.bool_] = inside & (np.cumsum(inside) % self.every == 0)
        return chosen


def months(record: Record, fit_from_s: int | None = None) -> list[Month]:
    """The calendar months (UTC) that can be judged.

    LEAST_FIT_S of record must lie before (from `fit_from_s` on, where the trace begins with survivors), submissions
    must cover LEAST_JUDGED_S of the month, and LEAST_JOBS of its jobs must have run.
    """
    if not len(record):
        return []
    first, last = int(record.submit_s[0]) if fit_from_s is None else fit_from_s, int(record.submit_s[-1])
    start, found = datetime.fromtimestamp(first, UTC).replace(day=1, hour=0, minute=0, second=0), []
    while start.timestamp() <= last:
        after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        month = Month(int(start.timestamp()), int(after.timestamp()))
        enough = min(month.until_s, last) - month.from_s >= LEAST_JUDGED_S
        if month.from_s >= first + LEAST_FIT_S and enough and np.count_nonzero(month.of(record)) >= LEAST_JOBS:
            found.append(month)
        start = after
    return found


def starts(
    form: str,
    record: Record,
    happened: Events,
    month: Month,
    fitted: Iterable[Parameters],
    mechanisms: frozenset[str] = ALL,
) -> Int64s:
    """Starts of the month's jobs under one form, s, shape (jobs,); rows of other jobs mean nothing.

    `fitted` are the parameters of `fits(record, month)`: the first is from before the month, each holds until the next.
    """
    first, *later = fitted
    if form in SINGLE:
        found, judged = np.full(len(record), NEVER, np.int64), month.of(record)
        weeks = [(one.until_s, rules_of(one, mechanisms), one.points_per_hour) for one in (first, *later)]
        changes = [k for k in range(len(weeks)) if k == 0 or weeks[k][1:] != weeks[k - 1][1:]]
        untils = [weeks[k][0] for k in changes[1:]] + [month.until_s]
        for k, until_s in zip(changes, untils, strict=True):
            from_s, rules, slope = weeks[k]
            jobs = jobs_of(record, slope if "priority" in mechanisms else None)
            wanted = judged & (record.submit_s >= from_s) & (record.submit_s < until_s)
            week = single_starts(record, happened, jobs, rules, wanted, forked=form == FORKED)
            found = np.minimum(found, week)
        return found
    follows = form == CAUSAL and "usable nodes" in mechanisms
    usable = usable_nodes(record, happened, WINDOW_S) if follows else np.array([first.nodes], np.int64)
    jobs = jobs_of(record, first.points_per_hour if "priority" in mechanisms else None)
    return free_starts(record, jobs, rules_of(first, mechanisms), usable)


def fits(record: Record, month: Month) -> list[Parameters]:
    """Parameters as they stood at the month's start and every REFIT_S in it."""
    return [fit(record, until_s) for until_s in range(month.from_s, month.until_s, REFIT_S)]


def figures(record: Record, month: Month, begun: Int64s) -> dict[str, float]:
    """`simulator.metrics.wait_distance` of the month's jobs."""
    judged = month.of(record)
    recorded = (record.start_s - record.submit_s)[judged]
    return wait_distance((begun - record.submit_s)[judged], recorded)


def contributions(
    record: Record, happened: Events, month: Month, fitted: list[Parameters], form: str
) -> list[tuple[str, str, dict[str, float]]]:
    """(how, mechanism, figures): each mechanism `added` to those before it from none on, and `left out` of all."""
    names = [name for name in MECHANISMS if form in SINGLE or name in REPLAYED]
    rows = [("none", "", figures(record, month, starts(form, record, happened, month, fitted, frozenset())))]
    for k, name in enumerate(names):
        on = frozenset(names[: k + 1])
        rows.append(("added", name, figures(record, month, starts(form, record, happened, month, fitted, on))))
    for name in names[:-1]:
        on = frozenset(names) - {name}
        rows.append(("left out", name, figures(record, month, starts(form, record, happened, month, fitted, on))))
    rows.append(("left out", names[-1], rows[len(names) - 1][2]))
    return rows


CLASSES = ("within 10 minutes", "10 minutes to 1 hour off", "over 1 hour early", "over 1 hour late")


def error_classes(recorded_wait_s: Int64s, predicted_wait_s: Int64s) -> pl.Series:
    """The class of each job's error: early is a job that the record kept waiting for a reason the rules do not know."""
    late = predicted_wait_s - recorded_wait_s
    number = np.where(np.abs(late) <= WAITED_S, 0, np.where(np.abs(late) <= 3600, 1, np.where(late < 0, 2, 3)))
    return pl.Series("class", [CLASSES[k] for k in number], pl.String)
