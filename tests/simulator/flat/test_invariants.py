"""What must hold of any schedule, whatever the jobs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.flat.replay import simulate
from simulator.workload import Workload
from tests.simulator.flat.cases import SETTINGS, random_workload, small_cases, workload
from tests.twins import flat as reference
from traces.arrays import Int64s


def run_times(jobs: Workload, knobs: dict[str, Any]) -> Int64s:
    kills = knobs["scheduler"] == "mirage" or bool(knobs.get("kill_at_limit"))
    return np.minimum(jobs.run_s, jobs.limit_s) if kills else jobs.run_s


@pytest.mark.parametrize("knobs", SETTINGS, ids=lambda knobs: "-".join(map(str, knobs.values())))
@settings(max_examples=100, deadline=None)
@given(case=small_cases(scale=40))
def test_never_over_capacity_never_before_submission(knobs: dict[str, Any], case: tuple[Workload, int]) -> None:
    jobs, capacity = case
    starts = simulate(jobs, capacity=capacity, **knobs)
    assert (starts >= jobs.submit_s).all()
    ends = starts + run_times(jobs, knobs)
    for instant in starts:
        assert jobs.size[(starts <= instant) & (ends > instant)].sum() <= capacity


@pytest.mark.parametrize("scheduler", ["fifo", "easy", "conservative"])
@settings(max_examples=100, deadline=None)
@given(case=small_cases())
def test_work_is_conserved(scheduler: str, case: tuple[Workload, int]) -> None:
    """The first in the queue does not wait while it fits."""
    jobs, capacity = case
    starts = simulate(jobs, scheduler=scheduler, capacity=capacity)
    ends = starts + jobs.run_s
    for instant in {*jobs.submit_s.tolist(), *ends.tolist()}:
        waiting = np.flatnonzero((jobs.submit_s <= instant) & (starts > instant))
        if waiting.size:
            busy = jobs.size[(starts <= instant) & (ends > instant)].sum()
            assert jobs.size[waiting[0]] > capacity - busy


@settings(max_examples=100, deadline=None)
@given(case=small_cases())
def test_fifo_starts_in_order_of_submission(case: tuple[Workload, int]) -> None:
    jobs, capacity = case
    starts = simulate(jobs, scheduler="fifo", capacity=capacity)
    assert (np.diff(starts) >= 0).all()
    assert starts.tolist() == simulate(jobs, scheduler="fifo", capacity=capacity, pass_="instant").tolist()


@pytest.mark.parametrize("estimate", ["limit", "exact"])
@settings(max_examples=150, deadline=None)
@given(case=small_cases(overrun=False))
def test_easy_never_delays_the_head_beyond_its_reservation(estimate: str, case: tuple[Workload, int]) -> None:
    """Where no job outlives its estimate, a job starts no later than promised when it first stood at the head."""
    jobs, capacity = case
    starts = simulate(jobs, scheduler="easy", capacity=capacity, estimate=estimate)
    planned = jobs.run_s if estimate == "exact" else jobs.limit_s
    ends = starts + jobs.run_s
    for instant in sorted({*jobs.submit_s.tolist(), *ends.tolist()}):
        waiting = np.flatnonzero((jobs.submit_s <= instant) & (starts > instant))
        if not waiting.size:
            continue
        head = waiting[0]
        running = np.flatnonzero((starts <= instant) & (ends > instant))
        expected_ends = np.sort(starts[running] + planned[running])
        free = capacity - jobs.size[running].sum()
        promised = next(
            end
            for end in expected_ends
            if free + jobs.size[running][starts[running] + planned[running] <= end].sum() >= jobs.size[head]
        )
        assert starts[head] <= promised


@settings(max_examples=60, deadline=None)
@given(case=small_cases(overrun=False, most=8))
def test_conservative_with_exact_estimates_keeps_every_first_promise(case: tuple[Workload, int]) -> None:
    """With true run times a job starts where an empty queue behind it would have put it: later ones delay nobody.

    A job of no length holds no place, so every job here has one.
    """
    jobs, capacity = case
    jobs = dataclasses.replace(jobs, run_s=np.maximum(jobs.run_s, 1))
    knobs: dict[str, Any] = {"scheduler": "conservative", "capacity": capacity, "estimate": "exact"}
    starts = simulate(jobs, **knobs)
    for count in range(len(jobs)):
        assert simulate(jobs.take(np.arange(count)), **knobs).tolist() == starts[:count].tolist()


def test_easy_by_hand() -> None:
    """Twelve units; the head (11) is promised 100 with 1 spare. Behind it: in time (<=), spare, neither, in time."""
    rows = [(0, 6, 100, 100), (1, 11, 10, 10), (2, 2, 98, 98), (3, 1, 500, 500), (4, 1, 97, 97), (5, 3, 95, 95)]
    jobs = workload(rows)
    starts = simulate(jobs, scheduler="easy", capacity=12)
    assert starts.tolist() == [0, 100, 2, 3, 110, 5]
    assert reference.simulate(jobs, scheduler="easy", capacity=12) == starts.tolist()


def test_a_pass_after_each_event_is_not_one_after_all() -> None:
    """Two jobs end in one second, early. A pass in between gives the first units away, and the wide job waits."""
    rows = [(0, 2, 10, 100), (0, 2, 10, 100), (1, 4, 5, 5), (2, 2, 50, 50)]
    jobs = workload(rows)
    starts = {p: simulate(jobs, scheduler="easy", capacity=4, pass_=p).tolist() for p in ("event", "instant")}
    assert starts == {"event": [0, 0, 60, 10], "instant": [0, 0, 10, 15]}


def test_backfill_waits_for_the_tenth_tick_and_order_does_not() -> None:
    """mirage: the head starts at the next tick, a backfilled job at the next whole ten minutes."""
    jobs = workload([(30, 3, 7200, 7200), (61, 4, 60, 60), (62, 1, 300, 3600)])
    assert simulate(jobs, scheduler="mirage", capacity=4).tolist() == [60, 7260, 600]


def test_size_is_worth_a_little_age() -> None:
    """mirage: half the cluster more is worth 50 points, as are 4,320 s of age."""
    blocker = (0, 4, 20_000, 20_000)
    small, wide = (600, 2, 60, 60), (600 + 2000, 4, 60, 60)
    assert np.argsort(simulate(workload([blocker, small, wide]), scheduler="mirage", capacity=4)).tolist() == [0, 2, 1]
    late = (600 + 5000, 4, 60, 60)
    assert np.argsort(simulate(workload([blocker, small, late]), scheduler="mirage", capacity=4)).tolist() == [0, 1, 2]


def test_the_same_jobs_give_the_same_bytes() -> None:
    jobs = random_workload(seed=9, jobs=500, capacity=32, load=1.0)
    first = simulate(jobs, scheduler="mirage", capacity=32)
    assert first.tobytes() == simulate(jobs, scheduler="mirage", capacity=32).tobytes()
