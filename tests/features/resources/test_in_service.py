"""What is in service where only counts are known: against a loop second by second, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.resources import in_service
from features.resources.in_service import usable_capacity
from features.resources.usage import Steps
from tests.features.resources import in_service_twin
from traces.arrays import Int64s
from traces.units import DAY_S


def steps(*spans: tuple[int, int, int]) -> Steps:
    """Of (begin, end, amount)."""
    begin, end, amount = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    return Steps.of_intervals(begin, end, amount)


spans = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 40), st.integers(1, 4)), min_size=1, max_size=7)


@settings(max_examples=150, deadline=None)
@given(spans, spans, st.integers(0, 12), st.integers(5, 40), st.integers(0, 4), st.booleans())
def test_what_is_in_service_is_that_of_a_loop(
    runs: list[tuple[int, int, int]],
    waits: list[tuple[int, int, int]],
    whole: int,
    day: int,
    pressed: int,
    shows_its_end: bool,
) -> None:
    used = steps(*((begin, begin + length, amount) for begin, length, amount in runs))
    queued = steps(*((begin, begin + length, amount) for begin, length, amount in waits))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_service, "DAY_S", day)
        patch.setattr(in_service, "PRESSED", pressed)
        got = usable_capacity(used, queued, whole, shows_its_end)
    seconds = np.arange(used.times[0], used.times[-1] + 1)
    expected = in_service_twin.in_service(
        dict(zip(seconds.tolist(), used.at(seconds).tolist(), strict=True)),
        dict(zip(seconds.tolist(), queued.at(seconds).tolist(), strict=True)),
        whole, shows_its_end, day=day, pressed=pressed,
    )  # fmt: skip
    assert got.at(seconds).tolist() == [expected[second] for second in seconds.tolist()]


def days(levels: list[int], queue: int, shows_its_end: bool = True) -> Int64s:
    """In service at the begin of each day of a machine of 10: `levels` in use all day, and `queue` users waiting."""
    used = steps(*((i * DAY_S, (i + 1) * DAY_S, level) for i, level in enumerate(levels)))
    queued = steps((0, len(levels) * DAY_S, queue)) if queue else Steps(used.times[:0], used.values[:0])
    return usable_capacity(used, queued, 10, shows_its_end).at(np.arange(len(levels)) * DAY_S)


def test_with_a_queue_of_five_users_what_is_used_is_what_there_is() -> None:
    drained = [10] * 5 + [6] * 9 + [10] * 5
    assert days(drained, 5).tolist() == drained  # a fall of more than three days: nodes are out
    assert days(drained, 4).tolist() == [10] * 19  # nobody is kept waiting: nodes are idle


def test_a_dip_of_three_days_is_idle_time() -> None:
    assert days([10] * 5 + [6] * 3 + [10] * 5, 9).tolist() == [10] * 13
    assert days([10] * 5 + [6] * 4 + [10] * 5, 9).tolist() == [10] * 5 + [6] + [10] * 8


def test_the_days_at_the_end_of_a_log_count_only_if_it_shows_them() -> None:
    falling = [10] * 6 + [4] * 2
    assert days(falling, 9).tolist() == [10] * 8
    assert days(falling, 9, shows_its_end=False).tolist() == falling


def test_a_day_with_a_queue_begins_at_midnight_though_use_does_not_change_then() -> None:
    used, queued = steps((0, 6 * DAY_S, 6)), steps((3 * DAY_S, 4 * DAY_S, 9))
    assert usable_capacity(used, queued, 10, shows_its_end=True).at(np.arange(6) * DAY_S).tolist() == [
        10,
        10,
        10,
        6,
        10,
        10,
    ]


def test_a_level_held_for_less_than_an_hour_is_no_level() -> None:
    used = steps((0, 20 * DAY_S, 4), (5 * DAY_S, 5 * DAY_S + 1700, 6))
    queued = steps((0, 20 * DAY_S, 9))
    at = np.array([4 * DAY_S, 5 * DAY_S, 5 * DAY_S + 1700])
    assert usable_capacity(used, queued, 10, shows_its_end=True).at(at).tolist() == [
        4,
        10,
        4,
    ]  # while it holds, it is there


def test_nothing_used_leaves_all() -> None:
    nothing = Steps(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert usable_capacity(nothing, nothing, 10, shows_its_end=True).times.tolist() == []
