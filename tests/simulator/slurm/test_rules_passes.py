"""docs/schedulers/slurm.md from "One second" to "Replays": starts, nodes and states worked out by hand.

`test_twin.assert_equal` runs the kernel and its plain twin and compares them; the figures here hold both to the page.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.slurm import world as w
from tests.simulator.slurm.test_kernel_rules import RARE, depend, jobs
from tests.simulator.slurm.test_rules_priority import partitions, qos
from tests.simulator.slurm.test_twin import assert_equal

MAIN_ONLY = replace(RARE, backfill=False)
PLANNED = replace(RARE, bf_interval_s=10)  # a backfill pass every 10 s, each second a slot of its own


def starts(world: w.SlurmWorld) -> list[int]:
    found: list[int] = assert_equal(world).start_s.tolist()
    return found


def nodes_of(result: w.SlurmResult) -> list[list[int]]:
    """The nodes of each job."""
    return [held.tolist() for held in np.split(result.placement, result.placement_first[1:-1])]


def drained(size: int, *nodes: int) -> w.Outages:
    """These nodes take no job before second 10,000."""
    one = np.ones(1, np.int64)
    return w.Outages(w.DRAIN * one, 0 * one, 10_000 * one, 0 * one, np.isin(np.arange(size), nodes)[None])


# One second


def test_a_second_is_gone_through_again_while_jobs_end_in_it() -> None:
    """The page: "If a job that started in 5 or 6 ends in the same second, the second is gone through again"."""
    result = assert_equal(w.flat_world(jobs([(5, 0, 9, 1)] * 3 + [(5, 2, 9, 1)] * 2), 1, MAIN_ONLY))
    assert result.start_s.tolist() == [5, 5, 5, 5, 7]
    assert result.end_s.tolist() == [5, 5, 5, 7, 9]


def test_full_passes_count_from_the_origin() -> None:
    """The page: "At `origin_s + k * sched_interval_s` a *full* pass": job 1's request is to wait 10^6 s."""
    slow = replace(MAIN_ONLY, origin_s=7, sched_interval_s=100, batch_sched_delay_s=10**6)
    queue = jobs([(0, 999, 999, 1), (1, 999, 999, 1), (8, 999, 999, 1)])
    assert starts(w.flat_world(queue, 3, slow)) == [0, 7, 107]


def test_a_pass_after_an_end_answers_no_request() -> None:
    """The page: "A requested or full pass answers all requests so far (a pass after an end does not)".

    Job 0's request is answered at 1 and job 2's at 11, whatever the end at 5 and the pass behind it did.
    """
    slow = replace(MAIN_ONLY, batch_sched_delay_s=10)
    queue = jobs([(1, 4, 4, 1), (2, 50, 50, 2), (6, 9, 9, 1)])
    assert starts(w.flat_world(queue, 3, slow)) == [1, 5, 11]


# What can never start, limits, dependencies


def test_the_first_reason_that_holds_is_the_one_listed() -> None:
    """The page: "Listed with its reason (first that holds, in the order of `world.REASONS`)"."""
    parts = partitions(np.ones((1, 4), bool), max_nodes=[2], max_time_s=[100])
    most = np.full((1, w.TRES), w.NO_LIMIT)
    most[0, w.NODE] = 1
    queue = jobs([(0, 9, 101, 5), (0, 9, 101, 3), (0, 9, 101, 2), (0, 9, 100, 2), (0, 9, 100, 1)])
    result = assert_equal(w.flat_world(queue, 4, RARE, partitions=parts, qos=qos(1, job_tres=most)))
    assert result.reason.tolist() == [w.TOO_LARGE, w.OVER_MAX_NODES, w.OVER_MAX_TIME, w.OVER_LIMIT, w.PLACEABLE]


@pytest.mark.parametrize(
    ("of_qos", "of_tree", "expected"),
    [
        ({}, {}, [0, 1, 1, 1]),
        ({"group_jobs": [1]}, {}, [0, 100, 200, 300]),
        ({"user_jobs": [1]}, {}, [0, 100, 1, 200]),  # the user's jobs, whatever the account
        ({"account_jobs": [1]}, {}, [0, 100, 200, 1]),
        ({}, {"group_jobs": [1, -1, -1, -1, -1, -1]}, [0, 100, 200, 300]),  # the root counts all below it
        ({}, {"group_jobs": [-1, 1, -1, -1, -1, -1]}, [0, 100, 200, 1]),
        ({}, {"max_jobs": [1] * 6}, [0, 100, 1, 1]),  # of its own association alone
    ],
)
def test_what_each_limit_counts(of_qos: dict[str, Any], of_tree: dict[str, Any], expected: list[int]) -> None:
    """The page: "A job counts in: its QOS, its QOS and user, its QOS and account, its association and all above it"."""
    free = np.full(6, w.NO_LIMIT)
    given = {"group_jobs": free, "max_jobs": free, **{name: np.array(values) for name, values in of_tree.items()}}
    tree = w.Associations(  # accounts 1 and 2; user 0 in both (rows 3, 5), user 1 in the first (row 4)
        parent=np.array([w.NONE, 0, 0, 1, 1, 2]), user=np.array([w.NONE, w.NONE, w.NONE, 0, 1, 0]),
        account=np.array([0, 1, 2, 1, 1, 2]), shares=np.ones(6, np.int64),
        group_tres=np.full((6, w.TRES), w.NO_LIMIT), **given,
    )  # fmt: skip
    queue = jobs([(0, 100, 100, 1)] + [(1, 100, 100, 1)] * 3, user=[0, 0, 1, 0], association=[3, 3, 4, 5])
    assert starts(w.flat_world(queue, 9, RARE, qos=qos(1, **of_qos), associations=tree, users=2)) == expected


@pytest.mark.parametrize(("of_partition", "group_jobs", "expected"), [(1, [-1, 1], [0, 100, 200]),
                                                                    (0, [2, 1], [0, 0, 100])])  # fmt: skip
def test_a_job_counts_in_its_partitions_qos_if_that_is_another(
    of_partition: int, group_jobs: list[int], expected: list[int]
) -> None:
    """The page: "The same three of its partition's QOS if that is another": where it is the same, a job counts once."""
    parts = partitions(np.ones((1, 9), bool), qos=[of_partition])
    queue = jobs([(0, 100, 100, 1)] * 3)
    assert starts(w.flat_world(queue, 9, RARE, partitions=parts, qos=qos(2, group_jobs=group_jobs))) == expected


def test_limits_count_what_was_asked_for() -> None:
    """The page: "Limits count the request (an `exclusive` job's too)": 2 * 30 MB and 2 * 20 MB are 100."""
    machine, _ = w.whole_nodes(9)
    most = np.full((1, w.TRES), w.NO_LIMIT)
    most[0, w.MEMORY] = 100
    queue = jobs([(0, 100, 100, 2), (0, 100, 100, 2), (0, 100, 100, 1)], memory_per_node_mb=[30, 20, 1],
                 exclusive=[True, False, False])  # fmt: skip
    world = w.flat_world(
        queue, 9, RARE, nodes=replace(machine, memory_mb=np.full(9, 50)), partitions=partitions(np.ones((1, 9), bool)),
        qos=qos(1, group_tres=most),
    )  # fmt: skip
    assert starts(world) == [0, 0, 100]


def test_dependencies_on_every_way_to_end() -> None:
    """The page: "Ended" includes `completing_s`; "AFTER: the parent started or was cancelled before it did".

    Parents: 0 completes at 10, 1 is stopped at its limit of 20, 2 is cancelled at 5 while it is held, 3 is unplaceable.
    """
    parents = [(0, 10, 10, 1), (0, 100, 20, 1), (0, 9, 9, 1), (0, 9, 9, 99)]
    queue = jobs(
        parents + [(0, 1, 1, 1)] * 10, eligible_s=[0, 0, w.NEVER] + [0] * 11,
        cancel_s=[w.NEVER] * 2 + [5] + [w.NEVER] * 11, any_dependency=[False] * 12 + [True, False],
    )  # fmt: skip
    edges = depend(
        (4, 0, w.AFTERANY, 0), (5, 1, w.AFTEROK, 0), (6, 1, w.AFTERNOTOK, 0), (7, 2, w.AFTER, 60),
        (8, 2, w.AFTERNOTOK, 0), (9, 3, w.AFTERANY, 0), (10, 3, w.AFTERNOTOK, 0), (11, 3, w.AFTER, 0),
        (12, 3, w.AFTEROK, 0), (12, 0, w.AFTERANY, 0), (13, 0, w.AFTERNOTOK, 0),
    )  # fmt: skip
    result = assert_equal(w.flat_world(queue, 16, replace(RARE, kill_wait_s=0, completing_s=4), dependencies=edges))
    assert result.start_s.tolist() == [0, 0, -1, -1, 14, -1, 24, 5, 5, 0, 0, -1, 14, -1]
    assert result.reason[[5, 11, 13]].tolist() == [w.NEVER_SATISFIED] * 3
    # One that fails in the course of the run leaves the job pending; one that never could be met, unplaceable.
    assert result.state[[5, 11, 13]].tolist() == [w.PENDING, w.UNPLACEABLE, w.PENDING]


# Placement, capacity, reservations


@pytest.mark.parametrize(
    ("weights", "wanted", "nodes"),
    [
        # Nodes 2 and 6 are drained: runs 0-1, 3-5, 7-9.
        ([1] * 10, 1, [0]),  # fewest nodes
        ([1] * 10, 3, [3, 4, 5]),  # lowest index
        ([1] * 10, 4, [0, 3, 4, 5]),  # none suffices: most nodes; then what is missing from the shortest
        ([1] * 10, 7, [0, 3, 4, 5, 7, 8, 9]),
        ([2] * 7 + [1] * 3, 2, [7, 8]),  # lower weight before the better fit
        ([2] * 7 + [1] * 3, 4, [0, 7, 8, 9]),
        ([1, 1, 1, 1, 2, 1, 1, 1, 1, 1], 1, [3]),  # a weight cuts a run
        ([1, 1, 1, 1, 2, 1, 1, 1, 1, 1], 4, [3, 7, 8, 9]),
    ],
)
def test_nodes_are_taken_from_the_best_run(weights: list[int], wanted: int, nodes: list[int]) -> None:
    """The page: "The best run is used up: lower weight; then runs with at least as many nodes as are missing"."""
    machine, _ = w.whole_nodes(10)
    machine = replace(machine, weight=np.array(weights))
    world = w.flat_world(jobs([(0, 9, 9, wanted)]), 10, RARE, nodes=machine, outages=drained(10, 2, 6))
    assert assert_equal(world).placement.tolist() == nodes


def test_spreading_takes_the_node_with_most_idle_cpus() -> None:
    """The page: "*Spreading*: lowest weight first, then most idle CPUs, then lowest index"."""
    machine, _ = w.whole_nodes(4)
    machine = replace(machine, cpus=np.array([4, 8, 8, 16]), weight=np.array([1, 1, 1, 2]))
    parts = replace(partitions(np.ones((1, 4), bool)), least_loaded=np.ones(1, bool))
    queue = jobs([(0, 99, 99, 1)] * 6, cpus_per_node=[3] * 6)
    # Idle CPUs of the first three: 4 8 8, 4 5 8, 4 5 5, 4 2 5, 4 2 2, 1 2 2.
    assert assert_equal(w.flat_world(queue, 4, RARE, nodes=machine, partitions=parts)).placement.tolist() == [
        1, 2, 1, 2, 0, 3,
    ]  # fmt: skip


def test_a_capacity_takes_idle_nodes_from_the_top_and_gives_them_back_from_the_bottom() -> None:
    """The page: "Adding idle nodes, highest index first, or by bringing nodes back, lowest index first"."""
    queue = jobs([(0, 100, 100, 1), (55, 10, 10, 2)])
    fewer = w.CapacityChanges(np.array([50, 60]), np.array([2, 3]))
    result = assert_equal(w.flat_world(queue, 4, RARE, capacity=fewer))
    assert (result.start_s.tolist(), nodes_of(result)) == ([0, 60], [[0], [1, 2]])


def test_what_a_capacity_lacks_goes_out_as_nodes_come_idle() -> None:
    """The page: "What is missing goes out as nodes come idle": all run at 50; at 100 nodes 3 and 2 go."""
    queue = jobs([(0, 100, 100, 4), (60, 10, 10, 2), (60, 10, 10, 3), (61, 10, 10, 1)])
    fewer = w.CapacityChanges(np.array([50, 200]), np.array([2, 4]))
    result = assert_equal(w.flat_world(queue, 4, RARE, capacity=fewer))
    assert result.start_s.tolist() == [0, 100, 200, 200]  # with two nodes in service job 2 blocks its partition
    assert nodes_of(result)[1] == [0, 1]


def test_a_reservation_is_kept_free_from_its_announcement_on() -> None:
    """The page: "A known reservation with `begin_s < start + planned length`": announced at 50, it begins at 100."""
    one = np.ones(1, np.int64)
    coming = w.Outages(w.RESERVATION * one, 100 * one, 200 * one, 50 * one, np.ones((1, 4), bool))
    queue = jobs([(40, 80, 80, 1), (51, 80, 80, 1), (51, 49, 49, 1), (51, 50, 50, 1)])
    assert starts(w.flat_world(queue, 4, RARE, outages=coming)) == [40, 200, 51, 200]


# Main pass


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 100, 110, 110]),
        ({"bf_min_age_reserve_s": 50}, [0, 100, 50, 110]),  # job 1 is 49 s old at 50
        ({"bf_min_prio_reserve": 101}, [0, 100, 50, 51]),
        ({"bf_min_prio_reserve": 100}, [0, 100, 110, 110]),
    ],
)
def test_a_young_or_a_low_job_blocks_nobody(settings: dict[str, int], expected: list[int]) -> None:
    """The page: "Unless `now - accrue time < bf_min_age_reserve_s` or `priority < bf_min_prio_reserve`"."""
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 3), (50, 5, 5, 1), (51, 5, 5, 1)], site_factor=[100.0, 100.0, 1.0, 1.0])
    assert starts(w.flat_world(queue, 3, replace(MAIN_ONLY, **settings))) == expected  # type: ignore[arg-type]


def test_tasks_of_an_array_count_once_in_the_depth_of_a_limited_pass() -> None:
    """The page: "Stops at the job number `default_queue_depth + 2`; tasks after the first count nothing"."""
    queue = jobs([(0, 500, 500, 1)] + [(1, 5, 5, 1)] * 3 + [(2, 5, 5, 1)] * 2, partition=[0, 0, 0, 0, 0, 1],
                 array=[w.NONE, 0, 0, 0, w.NONE, w.NONE])  # fmt: skip
    parts = partitions(np.eye(2, dtype=bool), priority_tier=[2, 1])
    throttle = np.array([0])
    shallow, deeper = (replace(MAIN_ONLY, sched_interval_s=60, default_queue_depth=depth) for depth in (1, 2))
    assert starts(w.flat_world(queue, 2, deeper, partitions=parts, array_throttle=throttle))[5] == 2  # it is number 3
    assert starts(w.flat_world(queue, 2, shallow, partitions=parts, array_throttle=throttle))[5] == 60


def test_later_tasks_of_an_array_wait_for_one_that_could_not_start() -> None:
    """The page: "Once a task could not be started in a main pass, the later tasks of that array are skipped"."""
    young = replace(MAIN_ONLY, bf_min_age_reserve_s=10_000)  # nobody blocks
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 2), (1, 10, 10, 1), (1, 10, 10, 1)], array=[w.NONE, 0, 0, w.NONE])
    assert starts(w.flat_world(queue, 2, young, array_throttle=np.array([0]))) == [0, 100, 110, 1]


# Backfill pass


@pytest.mark.parametrize(
    ("settings", "second_small"),
    [
        ({}, 10),
        ({"bf_max_job_test": 2}, 20),  # the wide job is tested too
        ({"bf_max_job_test": 3}, 10),
        ({"bf_max_job_part": 2}, 20),  # it was taken up as well
        ({"bf_max_job_part": 3}, 10),
        ({"bf_max_job_user": 1}, 20),  # it is another user's
        ({"bf_max_job_user": 2}, 10),
        ({"bf_max_job_start": 1}, 20),
        ({"bf_max_job_start": 2}, 10),
    ],
)
def test_bounds_of_a_backfill_pass(settings: dict[str, int], second_small: int) -> None:
    """Steps 1, 2 and 4.f: what a pass may test, take up and start; the next one comes 10 s later."""
    queue = jobs([(0, 100, 100, 3), (1, 50, 50, 5), (1, 30, 30, 1), (1, 30, 30, 1)], user=[0, 0, 1, 1],
                 association=[1, 1, 2, 2])  # fmt: skip
    world = w.flat_world(queue, 5, replace(PLANNED, **settings), users=2)  # type: ignore[arg-type]
    assert starts(world) == [0, 100, 10, second_small]


@pytest.mark.parametrize(
    ("settings", "array", "expected"),
    [
        ({}, w.NONE, [0, 100, 150, 200]),
        ({"bf_job_part_count_reserve": 1}, w.NONE, [0, 100, 210, 10]),
        ({"bf_job_part_count_reserve": 2}, w.NONE, [0, 100, 150, 200]),
        ({"bf_max_job_array_resv": 1}, 0, [0, 100, 210, 10]),
        ({"bf_max_job_array_resv": 2}, 0, [0, 100, 150, 200]),
        ({"bf_window_s": 139}, w.NONE, [0, 100, 210, 10]),  # seen from 10, job 2 would start at 150
        ({"bf_window_s": 150}, w.NONE, [0, 100, 150, 200]),
    ],
)
def test_who_may_reserve(settings: dict[str, int], array: int, expected: list[int]) -> None:
    """Steps 2, 3 and 4.e: job 1 reserves four of the five nodes over [100, 150), job 2 all from 150 on, if it may."""
    queue = jobs([(0, 100, 100, 3), (1, 50, 50, 4), (1, 50, 50, 5), (1, 200, 200, 1)],
                 array=[w.NONE, array, array, w.NONE])  # fmt: skip
    world = w.flat_world(queue, 5, replace(PLANNED, **settings), array_throttle=np.array([0]))  # type: ignore[arg-type]
    assert starts(world) == expected


@pytest.mark.parametrize(("resolution", "limit", "start"), [(1, 89, 10), (1, 90, 150), (60, 49, 10), (60, 50, 150)])
def test_a_reservation_begins_at_a_multiple_of_the_resolution(resolution: int, limit: int, start: int) -> None:
    """The page: "`from = start // r * r`": job 1 is planned from 100 or 60 on; a slot that begins at the end counts."""
    queue = jobs([(0, 100, 100, 3), (1, 50, 50, 5), (1, 5, limit, 1)])
    assert starts(w.flat_world(queue, 5, replace(PLANNED, bf_resolution_s=resolution))) == [0, 100, start]


@pytest.mark.parametrize("age", [0, 100])
def test_a_job_with_too_few_nodes_left_blocks_its_partition(age: int) -> None:
    """The page: "If fewer than `nodes` nodes of its partition are left in the pass, it blocks its partition".

    Partition 1 (nodes 1 and 2) is blocked by job 2 and removed. So job 3 cannot have its two nodes, and job 4, which
    could have node 0, waits for it. If young jobs reserve nothing, job 2 blocks nothing, and job 4 starts.
    """
    rooms = partitions(np.array([[True, True, True], [False, True, True]]), priority_tier=[1, 2])
    queue = jobs(
        [(0, 50, 50, 1), (0, 50, 50, 1), (5, 20, 20, 2), (6, 20, 20, 2), (7, 20, 20, 1)], partition=[1, 1, 1, 0, 0]
    )
    machine, _ = w.whole_nodes(3)
    world = replace(
        w.flat_world(queue, 3, replace(MAIN_ONLY, bf_min_age_reserve_s=age)),
        nodes=machine, partitions=replace(rooms, exclusive=np.ones(2, bool)),
    )  # fmt: skip
    expected = {0: [0, 0, 50, 70, 70], 100: [0, 0, 50, 70, 7]}[age]
    assert starts(world) == expected


# Replays that are freed at an instant


def test_pins_hold_whatever_stands_against_them() -> None:
    """The page: "Exactly at `pinned_s` on its pinned nodes, whatever dependencies and the idle nodes say"."""
    queue = jobs([(0, 20, 20, 1), (0, 30, 30, 1), (0, 100, 100, 1), (0, 9, 9, 1)], pinned_s=[3, 3, w.NEVER, w.NEVER],
                 user=[0, 0, 0, 0])  # fmt: skip
    world = w.flat_world(
        queue, 2, RARE, pinned_first=np.array([0, 1, 2, 2, 2]), pinned_nodes=np.array([0, 0]),
        dependencies=depend((1, 0, w.AFTERANY, 0)),
    )  # fmt: skip
    result = assert_equal(world, free_from=10)
    # Both hold node 0, which comes idle when the second of them ends.
    assert result.start_s.tolist() == [3, 3, 10, 33]
    assert nodes_of(result) == [[0], [0], [1], [0]]


def test_a_pinned_job_starts_over_the_limits_that_others_keep() -> None:
    """The page: "It is unplaceable only if its partition is NONE or too small for it"."""
    queue = jobs([(0, 40, 90, 2), (0, 40, 90, 2), (0, 40, 50, 1), (0, 9, 9, 1)],
                 pinned_s=[3, w.NEVER, 3, w.NEVER], partition=[0, 0, w.NONE, 0])  # fmt: skip
    world = w.flat_world(queue, 2, RARE, dependencies=depend((0, 2, w.AFTEROK, 0), (3, 0, w.AFTEROK, 0)))
    short = replace(world.partitions, max_time_s=np.array([60]), max_nodes=np.array([1]))
    result = assert_equal(replace(world, partitions=short), free_from=10)
    assert result.start_s.tolist() == [3, w.NONE, w.NONE, 43]
    assert [w.REASONS[reason] for reason in result.reason] == [
        "", "more nodes than the partition allows", "unknown partition", "",
    ]  # fmt: skip
    looped = replace(world, dependencies=depend((0, 3, w.AFTERANY, 0), (3, 0, w.AFTERANY, 0)))
    assert assert_equal(looped, free_from=10).start_s.tolist() == [3, 43, w.NONE, w.NONE]
