"""The three parts of a trace: where nobody declares them they move with it in whole weeks; declared ones stay."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from agent.artifact import DECIDE_EVERY_S
from models.study.windows import (
    COOL_DOWN_S,
    FIT_EVERY,
    MONDAY_S,
    WARM_UP_S,
    DeclaredDates,
    Window,
    Windows,
    first_start_s,
    moving,
    split_trace,
    usable_starts,
)
from simulator.workload import Workload
from traces import instants
from traces.errors import InputError
from traces.units import DAY_S, HOUR_S, WEEK_S

FIRST_S = 1_700_000_000  # 2023-11-14 22:13:20
NONE_DECLARED = DeclaredDates()


def submitted(first_s: int, days: float) -> Workload:
    """A job every six hours."""
    submit = np.arange(first_s, first_s + int(days * DAY_S), 6 * HOUR_S)
    ones = np.ones(len(submit), np.int64)
    return Workload(np.arange(len(submit)), submit, ones, ones, ones, submit)


def parts(first_s: int, days: int, declared: DeclaredDates = NONE_DECLARED) -> tuple[Window, Window, Window]:
    windows = split_trace(usable_starts(submitted(first_s, days)), declared, "lab")
    return windows.fit, windows.select, windows.report


def weeks(window: Window) -> float:
    return (window.until_s - window.from_s) / WEEK_S


def test_undeclared_windows_end_with_whole_weeks_whose_outcomes_are_known() -> None:
    fit, select, report = parts(FIRST_S, 107)
    warm_s = FIRST_S + WARM_UP_S
    assert fit.from_s - warm_s in range(HOUR_S) and fit.from_s % HOUR_S == 0
    last_s = FIRST_S + 107 * DAY_S - 6 * HOUR_S - COOL_DOWN_S
    assert last_s - report.until_s in range(WEEK_S)
    assert fit.until_s == select.from_s and select.until_s == report.from_s
    assert all(
        instants.utc(edge).strftime("%a %H:%M") == "Mon 00:00" for edge in (fit.until_s, report.from_s, report.until_s)
    )
    assert (fit.decision_s, select.decision_s, report.decision_s) == (1800, 600, 600)


@pytest.mark.parametrize(
    ("whole", "of_report", "of_select"),
    [(6, 2, 1), (9, 3, 1), (12, 4, 2), (19, 4, 3), (25, 5, 5), (51, 10, 10), (90, 12, 12)],
)
def test_a_fifth_of_the_weeks_is_reported_on_and_as_many_as_the_gate_wants_where_there_are(
    whole: int, of_report: int, of_select: int
) -> None:
    windows = moving(Window(MONDAY_S, MONDAY_S + whole * WEEK_S + 3 * DAY_S))
    assert (weeks(windows.report), weeks(windows.select)) == (of_report, of_select)
    assert weeks(windows.fit) == whole - of_report - of_select


@pytest.mark.parametrize(("days", "step_s"), [(1, HOUR_S), (5.9, HOUR_S), (6, DAY_S), (41.9, DAY_S), (42, WEEK_S)])
def test_windows_of_a_short_trace_move_in_shorter_steps(days: float, step_s: int) -> None:
    until_s = MONDAY_S + int(days * DAY_S)
    windows = moving(Window(MONDAY_S, until_s))
    edges = [windows.select.from_s, windows.report.from_s, windows.report.until_s]
    assert all((edge - MONDAY_S) % step_s == 0 for edge in edges) and until_s - edges[-1] in range(step_s)
    assert MONDAY_S < edges[0] < edges[1] < edges[2]
    assert edges[0] - MONDAY_S >= 0.5 * (edges[2] - MONDAY_S), "most is fitted on"


def test_windows_of_a_trace_that_grows_by_a_day_stay_and_move_once_a_week() -> None:
    first_s = MONDAY_S + 2800 * WEEK_S
    found = [parts(first_s, days) for days in range(90, 91 + 7 * 8)]
    ends = [report.until_s for _, _, report in found]
    assert {later - earlier for earlier, later in pairwise(ends)} == {0, WEEK_S}
    assert ends[7] == ends[0] + WEEK_S and len(set(ends)) == 9, "a week moves them by one"
    moved = [now != before for before, now in pairwise(found)]
    assert sum(moved) == 8, "nothing of them moves in between"
    for (fit, select, report), (_, later_select, later_report) in pairwise(found):
        assert fit.until_s == select.from_s < select.until_s == report.from_s
        assert later_select.from_s >= select.from_s and later_report.from_s >= report.from_s


def test_a_job_more_moves_nothing() -> None:
    trace = submitted(MONDAY_S + 2800 * WEEK_S, 90)
    later = submitted(MONDAY_S + 2800 * WEEK_S, 90.25)
    assert len(later) == len(trace) + 1
    assert split_trace(usable_starts(trace), NONE_DECLARED, "lab") == split_trace(
        usable_starts(later), NONE_DECLARED, "lab"
    )


def test_a_declared_beginning_keeps_windows_moving() -> None:
    begin_s = MONDAY_S + 2810 * WEEK_S
    usable = Window(MONDAY_S + 2800 * WEEK_S, MONDAY_S + 2830 * WEEK_S)
    assert split_trace(usable, DeclaredDates(fit_from_s=begin_s), "lab") == moving(Window(begin_s, usable.until_s))


def test_declared_windows_stay_where_they_are() -> None:
    dates = DeclaredDates(*(FIRST_S + days * DAY_S for days in (10, 30, 40, 50)))
    assert parts(FIRST_S, 60, dates) == parts(FIRST_S, 90, dates) == parts(FIRST_S - 9 * DAY_S, 99, dates)
    fit, select, report = parts(FIRST_S, 60, dates)
    assert (fit.from_s, select.from_s, report.from_s, report.until_s) == dates


def test_a_date_that_is_not_declared_follows_from_the_others_and_the_trace() -> None:
    fit, select, report = parts(FIRST_S, 60, DeclaredDates(fit_until_s=FIRST_S + 20 * DAY_S))
    assert fit == Window(parts(FIRST_S, 60)[0].from_s, FIRST_S + 20 * DAY_S, FIT_EVERY * DECIDE_EVERY_S)
    assert report.until_s == usable_starts(
        submitted(FIRST_S, 60)
    ).until_s and select.until_s - select.from_s == pytest.approx(0.2 * (report.until_s - fit.from_s), abs=HOUR_S)


def test_starts_begin_warm_and_where_somebody_says() -> None:
    trace = submitted(FIRST_S, 60)
    assert first_start_s(trace) - FIRST_S - WARM_UP_S in range(HOUR_S)
    assert first_start_s(trace, 28 * DAY_S) - FIRST_S - 28 * DAY_S in range(HOUR_S)
    later_s = FIRST_S + 3 * DAY_S
    assert first_start_s(trace, 28 * DAY_S, later_s) - later_s - 28 * DAY_S in range(HOUR_S)
    assert first_start_s(trace, WARM_UP_S, FIRST_S - DAY_S) == first_start_s(trace)


def test_eight_days_are_enough_where_they_end_on_the_second() -> None:
    first_s = 1_700_006_400  # a whole hour
    assert usable_starts(submitted(first_s, 8.25)) == Window(first_s + 2 * DAY_S, first_s + 3 * DAY_S)
    with pytest.raises(InputError):
        usable_starts(submitted(first_s, 8))


def test_a_part_without_a_second_is_out_of_order() -> None:
    days = [10, 30, 40, 50]
    for place in range(3):
        same = [*days[: place + 1], days[place], *days[place + 2 :]]
        with pytest.raises(InputError, match="out of order"):
            parts(FIRST_S, 60, DeclaredDates(*(FIRST_S + day * DAY_S for day in same)))


def test_windows_as_a_table() -> None:
    hours = [Window(FIRST_S + k * HOUR_S, FIRST_S + (k + 1) * HOUR_S) for k in range(3)]
    assert Windows(*hours).frame().rows() == [
        ("fit", "2023-11-14T22:13", "2023-11-14T23:13"),
        ("select", "2023-11-14T23:13", "2023-11-15T00:13"),
        ("report", "2023-11-15T00:13", "2023-11-15T01:13"),
    ]
    assert Windows(*hours).frame().columns == ["window", "from_utc", "until_utc"]


def test_refusals_are_one_line() -> None:
    with pytest.raises(
        InputError, match=r"^the trace spans 6\.8 days of submissions; pairs need at least 8: give"
    ) as e:
        usable_starts(submitted(FIRST_S, 7))
    with pytest.raises(
        InputError, match=r"^windows of cluster 'lab' are out of order: fit 2023-11-16T23:00 to"
    ) as other:
        parts(FIRST_S, 60, DeclaredDates(select_until_s=FIRST_S + 4 * DAY_S))
    assert "\n" not in str(e.value) + str(other.value)
