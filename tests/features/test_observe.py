"""`observe` against an obvious second computation: a free-node count kept for every second."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.observe import DECLARED, FEATURES, FILLS, HIDDEN_TOGETHER, observe
from features.snapshot import NO_LIMIT, Snapshot
from features.start_estimate import expected_left, start_estimate

HOUR = 3600
NOW = 1_700_000_000


def ints(values: list[int]) -> np.ndarray:
    return np.asarray(values, np.int64)


def snapshot(**changes: object) -> Snapshot:
    """Four of ten nodes busy, nobody pending, a predecessor 12 h before its end."""
    plain = {
        "now_s": NOW,
        "capacity": 10,
        "usable": 10,
        "pending_nodes": ints([]),
        "pending_limit_s": ints([]),
        "pending_submit_s": ints([]),
        "pending_held": ints([]),
        "pending_user": ints([]),
        "running_nodes": ints([1, 3]),
        "running_limit_s": ints([48 * HOUR, 2 * HOUR]),
        "running_start_s": ints([NOW - 36 * HOUR, NOW - HOUR]),
        "running_user": ints([7, 8]),
        "recent_start_s": ints([NOW - HOUR]),
        "recent_wait_s": ints([2 * HOUR]),
        "recent_nodes": ints([3]),
        "ended_use": np.array([0.25, 0.75]),
        "arrived_submit_s": ints([NOW - 1800]),
        "arrived_node_s": ints([6 * HOUR]),
        "predecessor_start_s": NOW - 36 * HOUR,
        "predecessor_wait_s": 600,
        "predecessor_end_s": NOW + 12 * HOUR,
        "successor_nodes": 8,
        "successor_limit_s": 48 * HOUR,
        "successor_user": 7,
        "successor_place": 0,
        "user_max_jobs": NO_LIMIT,
        "user_max_nodes": NO_LIMIT,
    }
    if "pending_nodes" in changes:
        none = 0 * np.asarray(changes["pending_nodes"])
        plain |= {"pending_held": none, "pending_user": none, "successor_place": len(none)}
    return Snapshot(**{**plain, **changes})  # type: ignore[arg-type]


def value(name: str, seen: Snapshot) -> float:
    return float(observe(seen)[FEATURES.index(name)])


def test_vector_has_one_finite_value_a_feature_and_names_are_unique() -> None:
    seen = observe(snapshot())
    assert seen.shape == (len(FEATURES),) and seen.dtype == np.float32
    assert np.isfinite(seen).all()
    assert len(set(FEATURES)) == len(FEATURES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("remaining_h", 12),
        ("predecessor_elapsed_h", 36),
        ("predecessor_wait_h", 1 / 6),
        ("successor_nodes", 8),
        ("capacity_nodes", 10),
        ("free_nodes", 6),
        ("running_jobs", 2),
        ("running_node_h", 1 * 12 + 3 * 1),
        ("release_1h_nodes", 3),
        ("release_12h_nodes", 4),
        ("start_estimate_h", 1),  # three nodes come back in an hour: 9 of 10
        ("start_estimate_gap_h", -11),
        ("recent_wait_mean_h", 2),
        ("recent_wide_wait_mean_h", 2),  # none asked for 4 nodes or more: the mean of all
        ("started_6h_jobs", 1),
        ("arrived_1h_node_h", 6),
        ("limit_use_mean", 0.5),
    ],
)
def test_each_feature_by_hand(name: str, expected: float) -> None:
    assert value(name, snapshot()) == pytest.approx(expected, rel=1e-6)


def test_pending_jobs_push_the_estimate_back_and_idle_ignores_them() -> None:
    crowded = snapshot(
        pending_nodes=ints([10]), pending_limit_s=ints([5 * HOUR]), pending_submit_s=ints([NOW - 3 * HOUR])
    )
    assert value("start_estimate_h", crowded) == 12 + 5  # the wide job waits for the predecessor, S for the wide job
    assert value("start_estimate_idle_h", crowded) == 1
    assert value("pending_age_max_h", crowded) == 3


def test_a_short_narrow_job_ahead_is_backfilled_and_costs_nothing() -> None:
    seen = snapshot(pending_nodes=ints([10, 2]), pending_limit_s=ints([HOUR, HOUR]), pending_submit_s=ints([NOW, NOW]))
    assert value("start_estimate_h", seen) == 12 + 1


def test_a_successor_wider_than_the_cluster_is_cut_at_the_horizon() -> None:
    assert value("start_estimate_h", snapshot(successor_nodes=11)) == 240


def test_an_overdue_job_counts_as_about_to_go() -> None:
    late = snapshot(running_start_s=ints([NOW - 36 * HOUR, NOW - 3 * HOUR]))
    assert value("start_estimate_h", late) == pytest.approx(60 / HOUR)


def test_nothing_known_yet_gives_zeros_not_errors() -> None:
    empty = snapshot(
        running_nodes=ints([]),
        running_limit_s=ints([]),
        running_start_s=ints([]),
        running_user=ints([]),
        recent_start_s=ints([]),
        recent_wait_s=ints([]),
        recent_nodes=ints([]),
        ended_use=np.array([]),
        arrived_submit_s=ints([]),
        arrived_node_s=ints([]),
    )
    assert np.isfinite(observe(empty)).all()
    assert value("start_estimate_h", empty) == 0
    assert value("limit_use_mean", empty) == 1


Job = tuple[int, int]  # nodes, and seconds: left of a running one, asked for by a pending one


def by_the_second(capacity: int, running: list[Job], pending: list[Job], nodes: int, duration: int) -> float:
    """The first second from which `nodes` stay free for `duration`, everyone ahead placed the same way first."""
    horizon = 400
    free = np.full(horizon, capacity)
    for size, left in running:
        free[:left] -= size

    def first(size: int, length: int) -> int:
        return next(t for t in range(horizon) if (free[t : t + length] >= size).all())

    for size, length in pending:
        if size <= capacity:
            start = first(size, length)
            free[start : start + length] -= size
    return first(nodes, duration) if nodes <= capacity else math.inf


jobs = st.tuples(st.integers(1, 4), st.integers(1, 12))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 8), st.lists(jobs, max_size=6), st.lists(jobs, max_size=10), jobs)
def test_profile_equals_the_count_by_the_second(
    capacity: int, running: list[Job], pending: list[Job], job: Job
) -> None:
    held = 0
    fitting = []
    for size, left in running:
        if held + size <= capacity:
            fitting.append((size, left))
            held += size
    estimate = start_estimate(
        capacity,
        ints([size for size, _ in fitting]),
        np.array([left for _, left in fitting], float),
        ints([size for size, _ in pending]),
        np.array([length for _, length in pending], float),
        len(pending),
        job[0],
        float(job[1]),
    )
    assert estimate == by_the_second(capacity, fitting, pending, *job)


@given(st.lists(st.floats(0.01, 1.2), max_size=20), st.floats(0, 1), st.integers(60, 200_000))
def test_expected_left_is_the_conditional_mean(uses: list[float], share: float, limit: int) -> None:
    longer = [use for use in uses if use > share * limit / limit]
    expected = (np.mean(longer) - share) * limit if longer else limit - share * limit
    got = expected_left(share * limit, float(limit), np.sort(np.array(uses, float)))
    assert got == pytest.approx(max(expected, 60.0), rel=1e-6, abs=1e-6 * limit)


def test_held_jobs_reserve_nothing() -> None:
    """Ten nodes, six free. Eight are free in an hour by limits; a held job of ten for two days keeps nobody back."""
    pending = {"pending_nodes": ints([10]), "pending_limit_s": ints([48 * HOUR]), "pending_submit_s": ints([NOW - 60])}
    queued, held = snapshot(**pending, pending_held=ints([0])), snapshot(**pending, pending_held=ints([1]))
    assert value("start_estimate_h", queued) == 12 + 48
    assert value("start_estimate_h", held) == 1
    assert (value("held_jobs", queued), value("held_nodes", queued)) == (0, 0)
    assert (value("held_jobs", held), value("held_nodes", held)) == (1, 10)
    assert value("pending_jobs", held) == 1


def test_nodes_out_of_service_are_not_free() -> None:
    """Of ten nodes seven are in service and four in use. Eight are had when all are back."""
    seen = snapshot(usable=7, successor_nodes=3)
    assert (value("usable_nodes", seen), value("capacity_nodes", seen), value("free_nodes", seen)) == (7, 10, 3)
    assert value("start_estimate_h", seen) == 0
    assert value("start_estimate_h", snapshot(usable=7, successor_nodes=8)) == 1


def test_headroom_is_what_the_limits_on_users_leave() -> None:
    """User 7 runs jobs of 1 and 3 nodes, which end in 12 h and 1 h by their limits."""
    own = {"running_user": ints([7, 7]), "successor_nodes": 2, "ended_use": np.array([])}
    free = snapshot(**own)
    assert (value("headroom_jobs", free), value("headroom_nodes", free)) == (1000, 10)
    assert (value("headroom_wait_h", free), value("start_estimate_h", free)) == (0, 0)
    for limits, jobs, nodes, wait_h in (
        ({"user_max_jobs": 3}, 1, 10, 0),
        ({"user_max_jobs": 2}, 0, 10, 1),
        ({"user_max_jobs": 1}, 0, 10, 12),
        ({"user_max_nodes": 6}, 1000, 2, 0),
        ({"user_max_nodes": 5}, 1000, 1, 1),
        ({"user_max_nodes": 2}, 1000, 0, 12),  # one of 1 node still runs: 1 + 2 > 2
        ({"user_max_nodes": 1}, 1000, 0, 12),  # wider than the limit: alone
    ):
        seen = snapshot(**own, **limits)
        assert (value("headroom_jobs", seen), value("headroom_nodes", seen)) == (jobs, nodes), limits
        assert value("headroom_wait_h", seen) == wait_h, limits
        for name in ("start_estimate_h", "start_estimate_expected_h"):
            assert value(name, seen) == wait_h, (limits, name)
        assert value("start_estimate_idle_h", seen) == 0  # of nodes alone
        assert value("headroom_wait_h", seen._replace(successor_user=9)) == 0


def test_what_is_behind_the_successor_in_the_queue_does_not_keep_it_back() -> None:
    """Eight of ten nodes are free in an hour. A job of ten pends; by its priority the successor may go first."""
    pending = {"pending_nodes": ints([10]), "pending_limit_s": ints([48 * HOUR]), "pending_submit_s": ints([NOW - 60])}
    assert value("start_estimate_h", snapshot(**pending)) == 12 + 48
    assert value("start_estimate_h", snapshot(**pending, successor_place=0)) == 1


def test_jobs_that_the_limits_keep_back_reserve_nothing() -> None:
    """User 8 runs one job already and may not run a second: its job of ten nodes in the queue is passed over."""
    pending = {"pending_nodes": ints([10]), "pending_limit_s": ints([48 * HOUR]), "pending_submit_s": ints([NOW - 60])}
    seen = snapshot(**pending, pending_user=ints([8]), user_max_jobs=1, running_user=ints([9, 8]))
    assert value("start_estimate_h", seen) == 1
    assert value("start_estimate_h", seen._replace(pending_user=ints([6]))) == 12 + 48


def test_the_users_own_queue_comes_first() -> None:
    """Two jobs a user. Own jobs end in 1 h and 12 h by limits; one of 48 h pends ahead: it starts in 1 h, S in 12 h.

    With two ahead the second starts in 12 h, and S when the first of the two has ended, in 49 h.
    """
    own = {
        "running_user": ints([7, 7]),
        "successor_nodes": 1,
        "user_max_jobs": 2,
        "pending_limit_s": ints([48 * HOUR, 48 * HOUR]),
        "pending_submit_s": ints([NOW - 60, NOW - 50]),
        "pending_nodes": ints([1, 1]),
        "pending_user": ints([7, 7]),
    }
    one, two = snapshot(**own, successor_place=1), snapshot(**own, successor_place=2)
    assert [value("own_pending_jobs", seen) for seen in (one, two)] == [1, 2]
    assert [value("headroom_wait_h", seen) for seen in (one, two)] == [12, 49]
    assert [value("start_estimate_h", seen) for seen in (one, two)] == [12, 49]
    held = two._replace(pending_held=ints([1, 0]))
    assert (value("own_pending_jobs", held), value("headroom_wait_h", held)) == (1, 12)


def test_every_fill_is_what_an_observer_sees_who_is_shown_nothing() -> None:
    """No held job, no limit on users, none that started or ended lately: the fills are the features then."""
    none = {name: ints([]) for name in ("recent_start_s", "recent_wait_s", "recent_nodes")}
    seen = snapshot(**none, ended_use=np.array([]))
    by_name = dict(zip(FEATURES, observe(seen).tolist(), strict=True))
    for name, fill in FILLS.items():
        assert by_name[name] == (by_name[fill] if isinstance(fill, str) else fill), name


def test_every_feature_names_information_that_can_be_hidden() -> None:
    for name, one in DECLARED.items():
        assert one.needs in {"", "jobs", *HIDDEN_TOGETHER}, name
        assert one.fill is not None or one.needs in {"", "jobs"}, f"{name} can be hidden, so it needs a fill"
