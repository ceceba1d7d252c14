"""One tiny scenario a rule of docs/schedulers/slurm.md, with starts worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.slurm import world as w
from simulator.slurm.compiled import kernel
from simulator.slurm.inputs.prepare import prepared
from simulator.slurm.run import run
from simulator.slurm.world import NONE
from traces.errors import InputError

NOTHING = w.SlurmSettings()
# Passes far apart, so that a start shows which loop made it: no requested or full pass, backfill every 1000 s.
RARE = w.SlurmSettings(
    sched_interval_s=10**6, batch_sched_delay_s=0, bf_interval_s=1000, bf_resolution_s=1, bf_window_s=10**6
)


def jobs(rows: list[tuple[int, int, int, int]], **columns: Any) -> w.SlurmJobs:
    """Jobs from rows (submit, run, limit, nodes)."""
    submit, length, limit, nodes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return w.plain_jobs(submit, length, limit, nodes, **{name: np.array(column) for name, column in columns.items()})


def starts(world: w.SlurmWorld, **options: Any) -> list[int]:
    return list(map(int, run(world, **options).start_s))


def depend(*edges: tuple[int, int, int, int]) -> w.Dependencies:
    """Dependencies from rows (job, parent, kind, delay)."""
    return w.Dependencies(*(np.array(column, np.int64) for column in zip(*edges, strict=True)))


def test_the_main_loop_stops_at_the_first_job_that_must_wait_and_backfill_fills_the_gap() -> None:
    queue = jobs([(0, 100, 100, 3), (1, 50, 60, 4), (2, 10, 20, 1), (3, 200, 300, 1)])
    result = run(w.flat_world(queue, 4, NOTHING))
    # Job 2 (limit 20) fits before the reservation of job 1 at 100; job 3 (limit 300) does not. Backfill: 0, 30, 60, ...
    assert result.start_s.tolist() == [0, 100, 30, 150]
    assert result.by_backfill.tolist() == [False, False, True, False]
    assert result.end_s.tolist() == [100, 150, 40, 350]


def test_without_backfill_the_gap_stays() -> None:
    queue = jobs([(0, 100, 100, 3), (1, 50, 60, 4), (2, 10, 20, 1)])
    assert starts(w.flat_world(queue, 4, replace(NOTHING, backfill=False))) == [0, 100, 150]


def test_submissions_are_answered_at_most_every_batch_sched_delay() -> None:
    queue = jobs([(61, 50, 50, 1), (62, 50, 50, 1), (63, 50, 50, 1)])
    late = replace(NOTHING, batch_sched_delay_s=10, backfill=False)
    assert starts(w.flat_world(queue, 4, late)) == [61, 71, 71]


def test_a_full_pass_is_deeper_than_a_limited_one() -> None:
    # Two partitions of one node each; the first is blocked by job 0, whose partition fills the limited depth.
    machine, whole = w.whole_nodes(2)
    parts = replace(
        whole, names=("a", "b"), nodes=np.eye(2, dtype=bool), priority_tier=np.array([2, 1]),
        priority_job_factor=np.ones(2, np.int64), max_time_s=np.full(2, -1), max_nodes=np.full(2, -1),
        exclusive=np.ones(2, bool), least_loaded=np.zeros(2, bool), qos=np.full(2, -1), billing=np.ones((2, 4)),
    )  # fmt: skip
    queue = jobs([(0, 500, 500, 1), (1, 5, 5, 1), (1, 5, 5, 1), (2, 5, 5, 1)], partition=[0, 0, 0, 1])
    shallow = replace(NOTHING, default_queue_depth=1, backfill=False)
    world = w.flat_world(queue, 2, shallow, nodes=machine, partitions=parts)
    assert starts(world) == [0, 500, 505, 60]  # depth 1 tests two jobs; the full pass of second 60 reaches job 3


def test_higher_priority_goes_first_and_age_counts_only_at_the_calculation_period() -> None:
    queue = jobs([(0, 400, 400, 2), (1, 10, 10, 2), (2, 10, 10, 2)], site_factor=[0.0, 100.0, 200.0])
    assert starts(w.flat_world(queue, 2, RARE)) == [0, 410, 400]
    # One point a second of age: job 1 leads by 250 s of waiting, but job 2 entered 5 s ago.
    aged = replace(RARE, weight_age=1000, max_age_s=1000, calc_period_s=300)
    queue = jobs([(0, 400, 400, 2), (1, 10, 10, 2), (295, 10, 10, 2)], site_factor=[0.0, 0.0, 290.0])
    assert starts(w.flat_world(queue, 2, aged)) == [0, 400, 410]  # at 300: 299 against 295
    assert starts(w.flat_world(queue, 2, replace(aged, calc_period_s=1000))) == [0, 410, 400]


def test_nice_and_equal_priorities() -> None:
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 1), (1, 10, 10, 1), (2, 10, 10, 1)], nice=[0, 5, 0, 0],
                 site_factor=[50.0] * 4)  # fmt: skip
    assert starts(w.flat_world(queue, 1, RARE)) == [0, 120, 100, 110]


def test_a_user_over_a_limit_is_skipped_and_blocks_nobody() -> None:
    one = replace(w.no_qos(), user_jobs=np.array([1]))
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 1), (2, 10, 10, 1)], user=[0, 0, 1], association=[1, 1, 2])
    assert starts(w.flat_world(queue, 4, NOTHING, qos=one, users=2)) == [0, 100, 3]
    nodes = np.full((1, 4), w.NO_LIMIT)
    nodes[0, w.NODE] = 3
    queue = jobs([(0, 100, 100, 2), (1, 10, 10, 2), (2, 10, 10, 1)])
    world = w.flat_world(queue, 8, NOTHING, qos=replace(w.no_qos(), group_tres=nodes))
    assert starts(world) == [0, 100, 3]


def test_a_job_over_a_limit_by_itself_is_unplaceable() -> None:
    nodes = np.full((1, 4), w.NO_LIMIT)
    nodes[0, w.NODE] = 3
    result = run(w.flat_world(jobs([(0, 10, 10, 4), (0, 10, 10, 9), (1, 5, 5, 1)], partition=[0, 0, 7]), 8, NOTHING,
                              qos=replace(w.no_qos(), user_tres=nodes)))  # fmt: skip
    assert result.start_s.tolist() == [-1, -1, -1]
    assert result.unplaceable() == {
        "unknown partition": 1, "larger than its partition": 1, "more than a limit of its QOS or association allows": 1,
    }  # fmt: skip


def test_begin_times_holds_and_cancellation() -> None:
    queue = jobs([(0, 10, 10, 1), (0, 10, 10, 1), (0, 10, 10, 1)], eligible_s=[50, w.NEVER, 0],
                 cancel_s=[w.NEVER, w.NEVER, 0])  # fmt: skip
    result = run(w.flat_world(queue, 4, NOTHING))
    assert result.start_s.tolist() == [50, -1, -1]
    assert result.end_s.tolist() == [60, -1, 0]
    assert result.state.tolist() == [w.COMPLETED, w.PENDING, w.CANCELLED]


def test_dependencies() -> None:
    queue = jobs([(0, 100, 100, 1)] + [(1, 10, 10, 1)] * 6, failed=[True] + [False] * 6)
    edges = depend((1, 0, w.AFTERANY, 0), (2, 0, w.AFTEROK, 0), (3, 0, w.AFTERNOTOK, 0), (4, 0, w.AFTER, 60),
                   (5, 1, w.AFTEROK, 0), (6, 0, w.AFTER, 0))  # fmt: skip
    result = run(w.flat_world(queue, 8, RARE, dependencies=edges))
    assert result.start_s.tolist() == [0, 100, -1, 100, 60, 110, 1]
    assert result.unplaceable() == {"dependency never satisfied": 1}


def test_any_dependency_and_cycles() -> None:
    queue = jobs([(0, 50, 50, 1), (0, 100, 100, 1), (0, 10, 10, 1), (0, 1, 1, 1), (0, 1, 1, 1)],
                 any_dependency=[False, False, True, False, False])  # fmt: skip
    edges = depend((2, 0, w.AFTERANY, 0), (2, 1, w.AFTERANY, 0), (3, 4, w.AFTERANY, 0), (4, 3, w.AFTERANY, 0))
    result = run(w.flat_world(queue, 8, RARE, dependencies=edges))
    assert result.start_s.tolist() == [0, 0, 50, -1, -1]
    assert result.unplaceable() == {"cyclic dependency": 2}


def test_singletons_wait_for_all_earlier_jobs_of_their_name() -> None:
    queue = jobs([(0, 100, 100, 1), (0, 10, 10, 1), (0, 10, 10, 1), (0, 10, 10, 1)], name=[7, 7, 8, 7])
    edges = depend(*((row, -1, w.SINGLETON, 0) for row in (1, 2, 3)))
    assert starts(w.flat_world(queue, 8, RARE, dependencies=edges)) == [0, 100, 0, 110]


def test_array_throttle() -> None:
    queue = jobs([(0, 10, 10, 1)] * 4, array=[0] * 4)
    assert starts(w.flat_world(queue, 8, RARE, array_throttle=np.array([2]))) == [0, 0, 10, 10]


def test_limits_end_jobs_after_kill_wait_and_nodes_complete() -> None:
    queue = jobs([(0, 100, 50, 1), (0, 5, 5, 1)])
    result = run(w.flat_world(queue, 1, replace(RARE, kill_wait_s=30, completing_s=4)))
    assert result.end_s.tolist() == [80, 89]
    assert result.start_s.tolist() == [0, 84]
    assert result.state.tolist() == [w.TIMEOUT, w.COMPLETED]


def test_jobs_keep_off_a_reservation_that_their_limit_reaches_and_a_drain_takes_no_new_job() -> None:
    both = np.array([[True, True]])

    def outage(kind: int) -> w.Outages:
        return w.Outages(np.array([kind]), np.array([100]), np.array([200]), np.array([0]), both)

    queue = jobs([(0, 150, 150, 1), (0, 50, 100, 1), (110, 10, 10, 1)])
    assert starts(w.flat_world(queue, 2, RARE, outages=outage(w.RESERVATION))) == [200, 0, 200]
    assert starts(w.flat_world(queue, 2, RARE, outages=outage(w.DRAIN))) == [0, 0, 200]


def test_capacity_as_a_count_lets_running_jobs_go_on() -> None:
    queue = jobs([(0, 100, 100, 2), (1, 10, 10, 1), (2, 10, 10, 1)])
    fewer = w.CapacityChanges(np.array([0, 50]), np.array([2, 3]))
    assert starts(w.flat_world(queue, 4, RARE, capacity=fewer)) == [0, 50, 60]


def gpu_world(queue: w.SlurmJobs, nodes: int, spread: bool = False, settings: w.SlurmSettings = RARE) -> w.SlurmWorld:
    """Nodes of 4 GPUs and 32 cores in one shared partition."""
    whole, parts = w.whole_nodes(nodes)
    machine = replace(whole, cpus=np.full(nodes, 32), gpus=np.full(nodes, 4), gpu_type=np.zeros(nodes, np.int64))
    shared = replace(parts, exclusive=np.zeros(1, bool), least_loaded=np.array([spread]))
    return w.flat_world(queue, nodes, settings, nodes=machine, partitions=shared)


def test_gpus_are_packed_on_the_fullest_run_or_spread() -> None:
    queue = jobs([(0, 100, 100, 1)] * 3, gpus_per_node=[1, 1, 4], cpus_per_node=[8, 8, 8])
    assert run(gpu_world(queue, 3)).placement.tolist() == [0, 0, 1]
    assert run(gpu_world(queue, 3, spread=True)).placement.tolist() == [0, 1, 2]


def test_fragmentation_makes_a_job_wait_though_enough_gpus_are_idle() -> None:
    queue = jobs([(0, 100, 100, 1), (0, 50, 50, 1), (1, 10, 10, 1)], gpus_per_node=[3, 3, 2], cpus_per_node=[1, 1, 1])
    result = run(gpu_world(queue, 2))
    assert result.start_s.tolist() == [0, 0, 50]
    assert result.placement.tolist() == [0, 1, 1]


def test_smallest_run_of_neighbouring_nodes_is_used_first() -> None:
    # Node 3 is busy: runs 0-2 and 4-5. Two nodes come from the smaller run.
    queue = jobs([(0, 1, 1, 3), (0, 100, 100, 1), (5, 10, 10, 2), (6, 10, 10, 1)])
    result = run(w.flat_world(queue, 6, RARE))
    assert result.placement.tolist() == [0, 1, 2, 3, 4, 5, 0]


def test_types_and_jobs_too_large_for_a_node() -> None:
    queue = jobs([(0, 10, 10, 1)] * 3, gpus_per_node=[1, 5, 1], gpu_type=[0, -1, 1])
    result = run(gpu_world(queue, 2))
    assert result.start_s.tolist() == [0, -1, -1]
    assert result.unplaceable() == {"larger than its partition": 2}


def test_a_blocked_partition_takes_its_nodes_from_those_that_share_them() -> None:
    machine, whole = w.whole_nodes(3)
    parts = replace(
        whole, names=("high", "low"), nodes=np.array([[True, True, False], [False, True, True]]),
        priority_tier=np.array([2, 1]), priority_job_factor=np.ones(2, np.int64), max_time_s=np.full(2, -1),
        max_nodes=np.full(2, -1), exclusive=np.ones(2, bool), least_loaded=np.zeros(2, bool), qos=np.full(2, -1),
        billing=np.ones((2, 4)),
    )  # fmt: skip
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 2), (2, 10, 10, 1), (2, 10, 10, 2)], partition=[0, 0, 1, 1])
    world = w.flat_world(queue, 3, replace(RARE, backfill=False), nodes=machine, partitions=parts)
    assert starts(world) == [0, 100, 2, 110]


def test_fair_share_prefers_the_user_who_used_less() -> None:
    fair = replace(RARE, weight_fairshare=1000, calc_period_s=100, decay_half_life_s=0)
    queue = jobs([(0, 250, 250, 1), (1, 10, 10, 1), (2, 10, 10, 1)], user=[0, 0, 1], association=[1, 1, 2])
    assert starts(w.flat_world(queue, 1, fair, users=2)) == [0, 260, 250]


def test_before_the_first_submission_nothing_happens() -> None:
    """Usage is zero until then, so a log of today must not begin with every calculation period since 1970."""
    fair = replace(RARE, weight_fairshare=1000, calc_period_s=100)
    first_s = 1_700_000_000
    ready = prepared(w.flat_world(jobs([(first_s, 10, 10, 1)]), 1, fair, users=1))
    assert kernel.next_instant(ready.run, ready.state) == first_s
    kernel.advance(ready.run, ready.state, first_s, NONE)
    assert kernel.next_instant(ready.run, ready.state) <= first_s + 100


@pytest.mark.parametrize(("mode", "state"), [(w.PREEMPT_REQUEUE, w.COMPLETED), (w.PREEMPT_CANCEL, w.PREEMPTED)])
def test_preemption(mode: int, state: int) -> None:
    queue = jobs([(0, 100, 100, 2), (10, 50, 50, 2), (10, 30, 30, 1)], qos=[0, 1, 1])
    result = run(w.flat_world(queue, 3, replace(NOTHING, requeue_delay_s=5), qos=low_and_high(mode)))
    assert result.state.tolist() == [state, w.COMPLETED, w.COMPLETED]
    # Job 0 is safe until 20; the next passes are those of second 30.
    assert result.start_s.tolist()[1:] == [30, 30]
    if mode == w.PREEMPT_REQUEUE:
        assert (result.start_s[0], result.restarts[0]) == (80, 1)


def test_a_job_that_only_completes_is_not_preempted() -> None:
    """It has ended, and its nodes come free no sooner."""
    queue = jobs([(0, 25, 100, 2), (30, 50, 50, 2)], qos=[0, 1])
    result = run(w.flat_world(queue, 2, replace(NOTHING, completing_s=60), qos=low_and_high(w.PREEMPT_CANCEL)))
    assert (result.state.tolist(), result.end_s[0]) == ([w.COMPLETED, w.COMPLETED], 25)
    assert result.start_s[1] >= 85


def low_and_high(mode: int) -> w.SlurmQos:
    """Two QOS, of which the second preempts the first after 20 s."""
    one = w.no_qos()
    return w.SlurmQos(
        names=("low", "high"), priority=np.array([0, 1]), usage_factor=np.ones(2),
        **{name: np.repeat(getattr(one, name), 2, axis=0) for name in
           ("group_jobs", "group_tres", "user_jobs", "user_tres", "account_jobs", "account_tres", "job_tres")},
        preempts=np.array([[False, False], [True, False]]), preempt_mode=np.array([mode, 0]),
        preempt_exempt_s=np.array([20, 0]),
    )  # fmt: skip


def test_replays_that_are_freed() -> None:
    queue = jobs([(0, 100, 100, 1), (0, 100, 100, 1), (5, 10, 10, 1)], pinned_s=[7, w.NEVER, 20])
    world = w.flat_world(queue, 2, RARE, pinned_first=np.array([0, 1, 1, 1]), pinned_nodes=np.array([1]))
    result = run(world, free_from=15, until=50)
    assert result.start_s.tolist() == [7, 15, -1]
    assert result.placement.tolist() == [1, 0, -1]


def test_bad_worlds() -> None:
    with pytest.raises(InputError, match=r"job row 0 has run_s -1, but the minimum is 0"):
        run(w.flat_world(jobs([(0, -1, 5, 1)]), 1, NOTHING))
    with pytest.raises(InputError, match=r"sort the jobs"):
        run(w.flat_world(jobs([(5, 1, 5, 1), (0, 1, 5, 1)]), 1, NOTHING))
    with pytest.raises(InputError, match=r"bf_interval_s is 0"):
        run(w.flat_world(jobs([(0, 1, 5, 1)]), 1, replace(NOTHING, bf_interval_s=0)))


def test_the_example_of_the_backfill_pass() -> None:
    """`compiled/backfill.py`: C reserves n3 and n4 over [40, 100), so D waits until 100, and E ends in time."""
    queue = jobs([(0, 100, 100, 2), (0, 40, 40, 1), (0, 60, 60, 2), (0, 50, 50, 1), (0, 30, 30, 1)])
    result = run(w.flat_world(queue, 4, replace(NOTHING, bf_resolution_s=10)))
    assert result.start_s.tolist() == [0, 0, 40, 100, 0]
    assert result.by_backfill.tolist()[4]
    nodes = np.split(result.placement, result.placement_first[1:-1])
    assert [held.tolist() for held in nodes[:3]] == [[0, 1], [2], [2, 3]] and nodes[4].tolist() == [3]


@pytest.mark.parametrize(("limit", "start"), [(47, 2), (48, 50)])
def test_the_example_of_looking_ahead(limit: int, start: int) -> None:
    """`compiled/ahead.py`: enough nodes are there at 25, but Slurm looks after a group of ends and reserves from 50 on.

    n1 comes free at 1. The wide job is promised it, with two others, from 50 on; a job on n1 has to end before that.
    """
    running = [(0, 1, 1, 1), (0, 10, 10, 1), (0, 25, 25, 1), (0, 50, 50, 1), (0, 200, 200, 1)]
    queue = jobs([*running, (2, 300, 300, 3), (2, 5, limit, 1)])
    often = replace(NOTHING, bf_interval_s=1, bf_resolution_s=1)
    assert starts(w.flat_world(queue, 5, replace(often, kill_wait_s=0)))[5:] == [25, start]
