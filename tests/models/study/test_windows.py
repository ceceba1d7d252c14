"""The three parts of a trace: where nobody declares them they move with it, on whole hours; declared ones stay."""

from __future__ import annotations

import numpy as np
import pytest

from models.study.windows import (
    COOL_DOWN_S,
    DAY_S,
    FIT_DECISION_S,
    HOUR_S,
    WARM_UP_S,
    DeclaredDates,
    Window,
    Windows,
    first_start_s,
    split,
    usable_starts,
)
from simulator.workload import Workload
from traces.errors import InputError

FIRST_S = 1_700_000_000  # 2023-11-14 22:13:20
NONE_DECLARED = DeclaredDates()


def submitted(first_s: int, days: float) -> Workload:
    """A job every six hours."""
    submit = np.arange(first_s, first_s + int(days * DAY_S), 6 * HOUR_S)
    ones = np.ones(len(submit), np.int64)
    return Workload(np.arange(len(submit)), submit, ones, ones, ones, submit)


def parts(first_s: int, days: int, declared: DeclaredDates = NONE_DECLARED) -> tuple[Window, Window, Window]:
    windows = split(usable_starts(submitted(first_s, days)), declared, "lab")
    return windows.fit, windows.select, windows.report


def test_undeclared_windows_are_60_20_and_20_percent_of_the_usable_starts() -> None:
    fit, select, report = parts(FIRST_S, 107)
    warm_s = FIRST_S + WARM_UP_S
    assert fit.from_s - warm_s in range(HOUR_S) and fit.from_s % HOUR_S == 0
    last_s = FIRST_S + 107 * DAY_S - 6 * HOUR_S - COOL_DOWN_S
    assert report.until_s == last_s // HOUR_S * HOUR_S
    assert fit.until_s == select.from_s and select.until_s == report.from_s
    span_h = (report.until_s - fit.from_s) / HOUR_S
    hours = [(one.until_s - one.from_s) / HOUR_S for one in (fit, select)]  # the rest is the report window's
    assert hours == pytest.approx([0.6 * span_h, 0.2 * span_h], abs=1)
    assert (fit.decision_s, select.decision_s, report.decision_s) == (1800, 600, 600)


def test_undeclared_windows_move_with_the_trace() -> None:
    for moved_s in (9 * DAY_S, 400 * DAY_S + 5 * HOUR_S):
        for before, after in zip(parts(FIRST_S, 60), parts(FIRST_S + moved_s, 60), strict=True):
            assert (after.from_s - before.from_s, after.until_s - before.until_s) == (moved_s, moved_s)
    grown = zip(parts(FIRST_S, 60)[1:], parts(FIRST_S, 90)[1:], strict=True)
    assert all(after.from_s > before.from_s and after.until_s > before.until_s for before, after in grown)


def test_declared_windows_stay_where_they_are() -> None:
    dates = DeclaredDates(*(FIRST_S + days * DAY_S for days in (10, 30, 40, 50)))
    assert parts(FIRST_S, 60, dates) == parts(FIRST_S, 90, dates) == parts(FIRST_S - 9 * DAY_S, 99, dates)
    fit, select, report = parts(FIRST_S, 60, dates)
    assert (fit.from_s, select.from_s, report.from_s, report.until_s) == dates


def test_a_date_that_is_not_declared_follows_from_the_others_and_the_trace() -> None:
    fit, select, report = parts(FIRST_S, 60, DeclaredDates(fit_until_s=FIRST_S + 20 * DAY_S))
    assert fit == Window(parts(FIRST_S, 60)[0].from_s, FIRST_S + 20 * DAY_S, FIT_DECISION_S)
    assert report.until_s == parts(FIRST_S, 60)[2].until_s and select.until_s - select.from_s == pytest.approx(
        0.2 * (report.until_s - fit.from_s), abs=HOUR_S
    )


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
