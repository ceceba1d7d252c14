"""The three chronological windows of a trace: starts to fit on, to select on and to report on.

This module computes with instants only; `models.study.inputs` reads the trace's submissions and the declared dates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from agent.artifact import DECIDE_EVERY_S
from simulator.workload import Workload
from traces import instants
from traces.arrays import Int64s
from traces.errors import InputError
from traces.units import DAY_S, HOUR_S, WEEK_S

WARM_UP_S = 2 * DAY_S  # an emptier start understates waits (measured on the A100 trace)
COOL_DOWN_S = 5 * DAY_S  # later pairs would outlive the arrivals that they compete with
FIT_SHARE, SELECT_SHARE = 0.6, 0.2  # of the usable starts, where the cluster declares some dates and not all
# Where it declares none, windows move in whole steps: the longest of these of which the usable starts hold LEAST_STEPS.
STEPS_S = (WEEK_S, DAY_S, HOUR_S)
LEAST_STEPS = 5
MONDAY_S = 4 * DAY_S  # 1970-01-05: weeks begin there
MOST_REPORTED, WANTED_REPORTED = 12, 4  # steps: what the gate looks at, and the least from which it tells anything
FIT_EVERY = 3  # learners see every third decision: a third of the work, and neighbours are alike


@dataclass(frozen=True)
class Window:
    """Starts P with from_s <= submission < until_s, epoch seconds."""

    from_s: int
    until_s: int
    decision_s: int = DECIDE_EVERY_S  # between the decisions of a pair

    def starts(self, every_s: int) -> Int64s:
        """Submissions of P, one every `every_s` from `from_s`; int64 epoch s."""
        return np.arange(self.from_s, self.until_s, every_s, dtype=np.int64)

    def __str__(self) -> str:
        return f"{instants.text(self.from_s)} to {instants.text(self.until_s)}"


@dataclass(frozen=True)
class Windows:
    """The three chronological windows: fit, select (settings, candidate rule) and report (used once)."""

    fit: Window
    select: Window
    report: Window

    def frame(self) -> pl.DataFrame:
        """A readable table with a row per window: window, from_utc, until_utc."""
        parts = {"fit": self.fit, "select": self.select, "report": self.report}
        return pl.DataFrame(
            [
                {"window": name, "from_utc": instants.text(part.from_s), "until_utc": instants.text(part.until_s)}
                for name, part in parts.items()
            ]
        )


class DeclaredDates(NamedTuple):
    """The dates in `clusters.toml` that divide a trace, epoch s; None where a cluster declares none."""

    fit_from_s: int | None = None
    fit_until_s: int | None = None
    select_until_s: int | None = None
    report_until_s: int | None = None


def first_start_s(workload: Workload, warm_up_s: int = WARM_UP_S, not_before_s: int | None = None) -> int:
    """The first submission of P, epoch s, with `warm_up_s` of trace before it; a whole hour.

    Submissions before `not_before_s` (epoch s), if declared, do not count.
    """
    first_s = max(int(workload.submit_s.min()), not_before_s or 0) + warm_up_s
    # whole hours, so that a window reads well and the same trace cut a minute later gives the same grid
    return -(-first_s // HOUR_S) * HOUR_S


def usable_starts(workload: Workload, warm_up_s: int = WARM_UP_S, not_before_s: int | None = None) -> Window:
    """The submissions of P that a trace supports: enough trace before them, and a known outcome after.

    Raises InputError if the trace is too short for any.
    """
    begin = max(int(workload.submit_s.min()), not_before_s or 0)
    first, last = begin + warm_up_s, int(workload.submit_s.max()) - COOL_DOWN_S
    if last - first < DAY_S:
        raise InputError(
            f"the trace spans {(int(workload.submit_s.max()) - begin) / DAY_S:.1f} days of submissions; pairs need at "
            f"least {(warm_up_s + COOL_DOWN_S + DAY_S) / DAY_S:.0f}: give a longer trace"
        )
    return Window(first_start_s(workload, warm_up_s, not_before_s), last // HOUR_S * HOUR_S)


def whole_step_s(instant_s: int, step_s: int) -> int:
    """The last begin of a step at or before `instant_s`, epoch s; weeks begin on Mondays, 00:00 UTC."""
    return instant_s - (instant_s - MONDAY_S) % step_s


def split_trace(usable: Window, declared: DeclaredDates, cluster: str, decide_every_s: int = DECIDE_EVERY_S) -> Windows:
    """The declared windows, if there are any; else those of `moving`.

    If only some windows end at a declared date, the others divide the span of usable starts by 60/20/20, on whole
    hours. Raises InputError, which names the cluster, for declared dates that are out of order.
    """
    fit_from = max(declared.fit_from_s or usable.from_s, usable.from_s)
    later = (declared.fit_until_s, declared.select_until_s, declared.report_until_s)
    if not any(later) and usable.until_s - fit_from >= DAY_S:
        return moving(Window(fit_from, usable.until_s), decide_every_s)
    span_s = usable.until_s - usable.from_s
    fit_until = declared.fit_until_s or usable.from_s + int(span_s * FIT_SHARE) // HOUR_S * HOUR_S
    report_until = declared.report_until_s or usable.until_s
    select_until = declared.select_until_s or fit_until + int(span_s * SELECT_SHARE) // HOUR_S * HOUR_S
    if not fit_from < fit_until < select_until < report_until:
        raise InputError(
            f"windows of cluster {cluster!r} are out of order: fit {instants.text(fit_from)} to "
            f"{instants.text(fit_until)}, select to {instants.text(select_until)}, report to "
            f"{instants.text(report_until)}; correct them in clusters.toml"
        )
    return _windows((fit_from, fit_until, select_until, report_until), decide_every_s)


def moving(usable: Window, decide_every_s: int = DECIDE_EVERY_S) -> Windows:
    """The windows of a growing trace, which move in whole weeks (in days or hours if the trace is short).

    The report window is the newest whole weeks: a fifth of all; four if these are no more than a third; at most twelve.
    The select window is a fifth (at most twelve) before it, and the fit window everything before that.
    """
    span_s = usable.until_s - usable.from_s
    step_s = next((step for step in STEPS_S if span_s >= (LEAST_STEPS + 1) * step), HOUR_S)
    until_s = whole_step_s(usable.until_s, step_s)
    steps = (until_s - usable.from_s) // step_s
    fifth = min(max(steps // LEAST_STEPS, 1), MOST_REPORTED)
    report_s = until_s - max(fifth, min(WANTED_REPORTED, steps // 3)) * step_s
    select_s = report_s - fifth * step_s
    return _windows((usable.from_s, select_s, report_s, until_s), decide_every_s)


def _windows(bounds_s: tuple[int, int, int, int], decide_every_s: int) -> Windows:
    """The windows between four instants (epoch s). Learners see every FIT_EVERY-th decision."""
    fit_s, select_s, report_s, until_s = bounds_s
    return Windows(
        Window(fit_s, select_s, FIT_EVERY * decide_every_s),
        Window(select_s, report_s, decide_every_s),
        Window(report_s, until_s, decide_every_s),
    )
