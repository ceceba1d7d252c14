"""The length at which a job is cut that a simulation starts early: from its definition, and from worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.run_times import LAST, LEAST, STEPS, WHOLE, longest_run_s, run_times

LIMIT_S = 1000
KNOWN_S = 10**6


def record_of(run_s: list[int], user: list[int], limit_s: int = LIMIT_S) -> RecordedTrace:
    """Jobs that ended one after the other, a second apart, the last before KNOWN_S."""
    count = len(run_s)
    end = KNOWN_S - count + np.arange(count, dtype=np.int64)
    start = end - np.array(run_s, np.int64)
    order = np.argsort(start, kind="stable")
    one, limit = np.ones(count, np.int64), np.full(count, limit_s)
    columns = (start, start, end, one, limit, np.array(user, np.int64), one)
    submit_s, start_s, end_s, size, limits, users, priority = (column[order] for column in columns)
    return RecordedTrace(submit_s, start_s, end_s, size, limits, users, priority, [str(k) for k in range(count)])


def cut_s(run_s: list[int], early_s: int, user: list[int] | None = None, known_s: int = KNOWN_S) -> int:
    """The length for a job of user 0."""
    record = record_of(run_s, [0] * len(run_s) if user is None else user)
    return longest_run_s(run_times(record), 0, LIMIT_S, early_s, known_s)


@pytest.mark.parametrize(
    ("run_s", "early_s", "expected"),
    [
        ([1000] * 3, 1, 1000),  # known to run for its limit
        ([1000] * 3, 900, 1000),
        ([400] * 3, 50, 400),
        ([0, 800] * 8, 100, 700),  # (0 + 100 and 700) : 2 = 400
        ([0, 800] * 8, 399, 401),
        ([0, 800] * 8, 400, 400),  # earlier than they run in the mean
        ([0, 800] * 8, 900, 400),
        ([0, 800] * 8, NEVER, 400),  # cancelled in the queue
        ([0, 200, 400, 1000] * 4, 40, 880),  # (40 + 240 + 440 + 880) : 4 = 400
        ([0, 200, 400, 1000] * 4, 200, 500),  # (200 + 400 + 500 + 500) : 4 = 400
        ([1030] * 3, 10, 1000),  # ended some seconds after its limit, as Slurm lets it
    ],
)
def test_the_mean_of_like_jobs_is_kept(run_s: list[int], early_s: int, expected: int) -> None:
    assert cut_s(run_s, early_s) == expected


@given(
    st.lists(st.integers(0, LIMIT_S), min_size=LEAST, max_size=40),
    st.integers(1, 2 * LIMIT_S),
)
def test_the_length_solves_its_equation(run_s: list[int], early_s: int) -> None:
    """Of the STEPS evenly spaced run times; seconds are whole, so that the mean is met to a second."""
    ordered, count = sorted(run_s), len(run_s)
    spaced = np.array([ordered[(2 * k + 1) * count // (2 * STEPS)] for k in range(STEPS)])
    length = cut_s(run_s, early_s)
    assert (
        np.minimum(spaced + early_s, length).mean() <= spaced.mean() < np.minimum(spaced + early_s, length + 2).mean()
    )


def test_like_jobs_are_the_users_last_then_everybodys() -> None:
    others = [600] * 5
    few, enough = [100] * (LEAST - 1), [100] * LEAST
    users = [1] * 5
    assert cut_s(others + few, NEVER, users + [0] * len(few)) == (5 * 100 + 11 * 600) // 16
    assert cut_s(others + enough, NEVER, users + [0] * len(enough)) == 100
    assert cut_s([600] * (LEAST - 1), NEVER) == LIMIT_S
    assert cut_s([900] * LAST + [100] * LAST, NEVER) == 100
    assert cut_s([900] * LAST + [100] * (LAST // 2), NEVER) == 500


def test_only_what_had_ended_counts() -> None:
    run_s = [100] * LEAST + [900] * LEAST
    assert cut_s(run_s, NEVER) == 500
    assert cut_s(run_s, NEVER, known_s=KNOWN_S - LEAST) == 100
    assert cut_s(run_s, NEVER, known_s=KNOWN_S - LEAST - 1) == LIMIT_S


def test_shares_are_of_each_jobs_own_limit() -> None:
    times = run_times(record_of([250] * LEAST, [0] * LEAST, limit_s=500))
    assert (times.share == WHOLE // 2).all()
    assert longest_run_s(times, 0, 7200, 10, KNOWN_S) == 3600


def test_no_job_has_ended() -> None:
    assert cut_s([], 5) == LIMIT_S
