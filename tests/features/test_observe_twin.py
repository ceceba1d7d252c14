"""Every feature of `observe` against its twin in obvious Python, and by hand where the definition has an edge."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from features.observe import FEATURES, HORIZON_H, VERSION, observe
from features.snapshot import NO_LIMIT
from features.start_estimate import MAX_PLANNED
from tests.features.observe_twin import observe_twin
from tests.features.snapshots import random_snapshot
from tests.features.test_observe import HOUR, NOW, ints, snapshot, value

SNAPSHOTS = [random_snapshot(seed) for seed in range(100)]
SEEN = np.array([observe(seen) for seen in SNAPSHOTS])
TWINS = [observe_twin(seen) for seen in SNAPSHOTS]


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_that_of_the_twin(name: str) -> None:
    expected = [twin[name] for twin in TWINS]
    assert len(set(expected)) > 2, f"{name} hardly varies: nothing is tested"
    np.testing.assert_allclose(SEEN[:, FEATURES.index(name)], expected, rtol=2e-6, atol=2e-6)


def test_other_features_are_another_version() -> None:
    """Artifacts name the version that they were made for. Whoever changes names or order writes both down here."""
    names = hashlib.sha256(" ".join(FEATURES).encode()).hexdigest()[:16]
    assert {VERSION: names} == {2: "726495a662ff4beb"}


def queue(count: int, nodes: int = 1, limit_s: int = 60) -> dict[str, Any]:
    """So many pending jobs alike."""
    return {
        "pending_nodes": ints([nodes] * count),
        "pending_limit_s": ints([limit_s] * count),
        "pending_submit_s": ints([NOW] * count),
    }


ALONE = {"capacity": 1, "usable": 1, "successor_nodes": 1, "successor_limit_s": HOUR}
NOBODY = {name: ints([]) for name in ("running_nodes", "running_limit_s", "running_start_s", "running_user")}


def test_an_estimate_places_four_hundred_pending_jobs_and_no_more() -> None:
    """One node, jobs of an hour: the successor waits for 200 of 200, and for 400 ten-minute jobs of 410."""
    assert MAX_PLANNED == 400
    assert value("start_estimate_h", snapshot(**ALONE, **NOBODY, **queue(200, limit_s=HOUR))) == 200
    for count in (399, 400, 401, 410):
        seen = snapshot(**ALONE, **NOBODY, **queue(count, limit_s=600), ended_use=np.array([]))
        for name in ("start_estimate_h", "start_estimate_expected_h"):
            assert value(name, seen) == pytest.approx(min(count, 400) / 6), (name, count)
        assert value("pending_jobs", seen) == count
        limited = seen._replace(user_max_jobs=1, successor_user=0)  # the user's own queue: one after the other
        assert value("headroom_wait_h", limited) == pytest.approx(min(count, 400) / 6)
        assert value("own_pending_jobs", limited) == count


def test_estimates_are_cut_at_ten_days() -> None:
    assert HORIZON_H == 240
    seen = snapshot(**ALONE, **NOBODY, **queue(300, limit_s=HOUR))
    assert value("start_estimate_h", seen) == 240
    assert value("start_estimate_gap_h", seen) == 240 - 12
    assert value("start_estimate_idle_h", snapshot(successor_nodes=11)) == 240
    assert value("start_estimate_expected_h", snapshot(successor_nodes=11)) == 240
    limited = snapshot(**ALONE, **NOBODY, **queue(300, limit_s=HOUR), user_max_jobs=1, successor_user=0)
    assert value("headroom_wait_h", limited) == 240


@pytest.mark.parametrize(("limit_h", "estimate_h"), [(2, 0), (3, 0), (4, 8)])
def test_a_successor_that_ends_in_time_goes_before_a_wide_job(limit_h: int, estimate_h: int) -> None:
    """Six of ten nodes are held for 3 h more, then a job of ten nodes takes all for 5 h. Four are free until then."""
    seen = snapshot(
        running_nodes=ints([6]),
        running_limit_s=ints([4 * HOUR]),
        running_start_s=ints([NOW - HOUR]),
        running_user=ints([7]),
        successor_nodes=4,
        successor_limit_s=limit_h * HOUR,
        ended_use=np.array([]),
        **queue(1, nodes=10, limit_s=5 * HOUR),
    )
    assert value("start_estimate_h", seen) == value("start_estimate_expected_h", seen) == estimate_h
    assert value("start_estimate_idle_h", seen) == 0


def test_run_times_are_expected_from_the_jobs_that_ended_last() -> None:
    """Ten nodes, all held by a job 1 h into its 8 h; ended jobs used .25, .5 and .75 of their limits.

    It has used .125, so .5 is expected, 4 h in all: 3 more. One of 2 h pends before the successor, expected to run for
    1 h. By limits the successor waits for 7 + 2 h, by what is expected for 3 + 1.
    """
    seen = snapshot(
        running_nodes=ints([10]),
        running_limit_s=ints([8 * HOUR]),
        running_start_s=ints([NOW - HOUR]),
        running_user=ints([7]),
        ended_use=np.array([0.75, 0.25, 0.5]),
        **queue(1, nodes=5, limit_s=2 * HOUR),
    )
    assert value("start_estimate_h", seen) == 9
    assert value("start_estimate_expected_h", seen) == 4
    assert value("start_estimate_idle_h", seen) == 7
    # at a quarter of its limit the job with .25 says nothing of it any more: (.5 + .75) / 2 of 8 h, less 2 h
    later = seen._replace(running_start_s=ints([NOW - 2 * HOUR]))
    assert value("start_estimate_expected_h", later) == 3 + 1
    # past all that ended before it: by its limit
    overlong = seen._replace(running_start_s=ints([NOW - 7 * HOUR]))
    assert value("start_estimate_expected_h", overlong) == 1 + 1


def test_arrivals_and_starts_on_the_edge_of_their_hours() -> None:
    """A job that came exactly 1, 6 or 24 h ago counts, a second earlier it does not; nor what is yet to come."""
    for hours, name in ((1, "arrived_1h_node_h"), (6, "arrived_6h_node_h"), (24, "arrived_24h_node_h")):
        edge = snapshot(
            arrived_submit_s=ints([NOW + 1, NOW, NOW - hours * HOUR, NOW - hours * HOUR - 1]),
            arrived_node_s=ints([HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR]),
        )
        assert value(name, edge) == 2 + 4
    edge = snapshot(recent_start_s=ints([NOW - 6 * HOUR, NOW - 6 * HOUR + 1]), recent_wait_s=ints([0, 0]),
                    recent_nodes=ints([1, 1]))  # fmt: skip
    assert value("started_6h_jobs", edge) == 1


@pytest.mark.parametrize(
    ("count", "median", "ninetieth"), [(1, 1, 1), (2, 1, 1), (10, 5, 9), (11, 6, 10), (100, 50, 90)]
)
def test_percentiles_of_recent_waits_are_the_lower_of_two(count: int, median: int, ninetieth: int) -> None:
    """Waits of 1, 2, 3, ... h."""
    waits_s = np.random.default_rng(0).permutation(np.arange(1, count + 1)) * HOUR
    seen = snapshot(recent_wait_s=waits_s, recent_start_s=0 * waits_s, recent_nodes=0 * waits_s + 3)
    assert value("recent_wait_p50_h", seen) == median
    assert value("recent_wait_p90_h", seen) == ninetieth
    assert value("recent_wait_max_h", seen) == count


def test_wide_jobs_ask_for_at_least_half_of_the_successors_nodes() -> None:
    seen = snapshot(
        successor_nodes=7,
        recent_nodes=ints([3, 4, 8]),
        recent_wait_s=ints([HOUR, 2 * HOUR, 6 * HOUR]),
        recent_start_s=ints([NOW] * 3),
    )
    assert value("recent_wide_wait_mean_h", seen) == 4


def test_the_clock_goes_round_in_a_day_and_in_a_week() -> None:
    """Thursday 1970-01-01 0:00 is the beginning of both; a quarter of a day is 6:00, a quarter of a week 42 h."""
    for now, day, week in (
        (0, (0, 1), (0, 1)),
        (6 * HOUR, (1, 0), None),
        (12 * HOUR, (0, -1), None),
        (42 * HOUR, (-1, 0), (1, 0)),
        (84 * HOUR, (0, -1), (0, -1)),
        (7 * 24 * HOUR, (0, 1), (0, 1)),
    ):
        seen = snapshot(now_s=now)
        assert (value("hour_sin", seen), value("hour_cos", seen)) == pytest.approx(day, abs=1e-6)
        if week is not None:
            assert (value("weekday_sin", seen), value("weekday_cos", seen)) == pytest.approx(week, abs=1e-6)


def test_an_empty_cluster_shows_zeros_and_the_successor_starts_at_once() -> None:
    empty = {name: ints([]) for name in ("recent_start_s", "recent_wait_s", "recent_nodes", "arrived_submit_s")}
    seen = snapshot(**NOBODY, **empty, arrived_node_s=ints([]), ended_use=np.array([]))
    found = dict(zip(FEATURES, observe(seen).tolist(), strict=True))
    nonzero = {
        "remaining_h": 12, "predecessor_elapsed_h": 36, "predecessor_wait_h": 1 / 6, "successor_nodes": 8,
        "successor_limit_h": 48, "capacity_nodes": 10, "free_nodes": 10, "usable_nodes": 10, "limit_use_mean": 1,
        "start_estimate_gap_h": -12, "headroom_jobs": 1000, "headroom_nodes": 10,
    }  # fmt: skip
    calendar = {"hour_sin", "hour_cos", "weekday_sin", "weekday_cos"}
    for name in FEATURES:
        if name not in calendar:
            assert found[name] == pytest.approx(nonzero.get(name, 0)), name


def test_a_limit_on_nodes_or_on_jobs_alone_is_a_limit() -> None:
    own = {"running_user": ints([7, 7]), "successor_nodes": 2}
    assert value("headroom_wait_h", snapshot(**own, user_max_jobs=2, user_max_nodes=NO_LIMIT)) == 1
    assert value("headroom_wait_h", snapshot(**own, user_max_jobs=NO_LIMIT, user_max_nodes=5)) == 1
