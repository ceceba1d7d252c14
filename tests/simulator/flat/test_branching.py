"""A branched state is a trace of its own: advance, copy and submit against simulating from scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.flat.kernel import NO_ROOM, advance, grown, new_state, submit
from simulator.flat.replay import as_jobs, checked_knobs, simulate
from simulator.flat.state import (
    FREE,
    NEVER,
    NONE,
    NOW,
    QUEUE_HEAD,
    QUEUE_JOB,
    QUEUE_RANK,
    QUEUE_TAIL,
    RUNNING,
    RUNNING_JOB,
    RUNNING_SIZE,
    RUNNING_START,
    FlatJobs,
    copy_state,
    withdraw,
)
from simulator.names import SCHEDULERS
from simulator.workload import Workload
from tests.simulator.flat.cases import SETTINGS, random_workload, small_cases, workload
from tests.twins import flat as reference


def with_extra(jobs: Workload, *, size: int, run_s: int, limit_s: int) -> FlatJobs:
    """The kernel's arrays of `jobs` with one more row, which does not arrive by itself."""
    arrays = as_jobs(jobs)
    return FlatJobs(
        *(np.append(column, value) for column, value in zip(arrays, (-7, size, run_s, limit_s), strict=True))
    )


@pytest.mark.parametrize("knobs", SETTINGS, ids=lambda knobs: "-".join(map(str, knobs.values())))
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_submitting_into_a_branch_equals_a_trace_with_that_job(knobs: dict[str, Any], data: st.DataObject) -> None:
    """The injected job and every later start are those of a from-scratch run, and the trunk does not notice."""
    jobs, capacity = data.draw(st.one_of(small_cases(), small_cases(scale=60), small_cases(scale=599)))
    at = data.draw(st.integers(0, int(jobs.submit_s.max(initial=0)) + 100))
    size, run_s, limit_s = data.draw(
        st.tuples(st.integers(1, capacity), st.integers(0, 900), st.integers(1, 900)), label="injected"
    )
    found = checked_knobs(capacity=capacity, **knobs)
    rows = with_extra(jobs, size=size, run_s=run_s, limit_s=limit_s)
    count = len(jobs)
    trunk = new_state(found, count, count + 1, capacity)
    starts = np.full(count + 1, NONE)
    assert advance(rows, found, trunk, starts, at - 1, NONE) == NONE

    branch, branch_starts = new_state(found, count, count + 1, capacity), starts.copy()
    copy_state(branch, trunk)
    submit(branch, count, at)
    start = advance(rows, found, branch, branch_starts, NEVER, count)
    assert start == branch_starts[count]
    advance(rows, found, branch, branch_starts, NEVER, NONE)

    position = int(np.searchsorted(jobs.submit_s, at, side="right"))
    columns = zip(
        (jobs.submit_s, jobs.size, jobs.run_s, jobs.limit_s, jobs.start_s), (at, size, run_s, limit_s, -1), strict=True
    )
    whole = Workload(np.arange(count + 1), *(np.insert(column, position, value) for column, value in columns))
    expected = reference.simulate(whole, capacity=capacity, **knobs)
    assert start == expected.pop(position)
    assert branch_starts[:count].tolist() == expected

    advance(rows, found, trunk, starts, NEVER, NONE)
    assert starts[:count].tolist() == reference.simulate(jobs, capacity=capacity, **knobs)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_stopping_anywhere_changes_nothing(scheduler: str) -> None:
    jobs = random_workload(seed=11, jobs=400, capacity=32, load=1.0)
    knobs = checked_knobs(scheduler=scheduler, capacity=32)
    state, starts = new_state(knobs, len(jobs), len(jobs), 32), np.full(len(jobs), NONE)
    rng = np.random.default_rng(0)
    now = 0
    while now < jobs.submit_s[-1]:
        now += int(rng.integers(1, 2000))
        advance(as_jobs(jobs), knobs, state, starts, now, NONE)
        assert state.scalars[NOW] == now
        branch = new_state(knobs, 0, len(jobs), 32)
        copy_state(branch, state)
        state = branch
    advance(as_jobs(jobs), knobs, state, starts, NEVER, NONE)
    assert starts.tolist() == simulate(jobs, scheduler=scheduler, capacity=32).tolist()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_state_tells_who_pends_and_who_runs(scheduler: str) -> None:
    jobs = random_workload(seed=2, jobs=300, capacity=32, load=1.1)
    knobs = checked_knobs(scheduler=scheduler, capacity=32)
    starts = simulate(jobs, scheduler=scheduler, capacity=32)
    state, scratch = new_state(knobs, len(jobs), len(jobs), 32), np.full(len(jobs), NONE)
    run = np.minimum(jobs.run_s, jobs.limit_s)
    for now in range(0, int(jobs.submit_s[-1]), 6000):
        advance(as_jobs(jobs), knobs, state, scratch, now, NONE)
        pending = state.queue[state.scalars[QUEUE_HEAD] : state.scalars[QUEUE_TAIL], QUEUE_JOB]
        assert set(pending) == set(np.flatnonzero((jobs.submit_s <= now) & (starts > now)))
        ranks = state.queue[state.scalars[QUEUE_HEAD] : state.scalars[QUEUE_TAIL], QUEUE_RANK]
        ranked = list(zip(ranks.tolist(), pending.tolist(), strict=True))
        assert ranked == sorted(ranked)
        running = state.running[: state.scalars[RUNNING]]
        assert set(running[:, RUNNING_JOB]) == set(np.flatnonzero((starts <= now) & (starts + run > now)))
        assert (running[:, RUNNING_START] == starts[running[:, RUNNING_JOB]]).all()
        assert state.scalars[FREE] == 32 - running[:, RUNNING_SIZE].sum()


def test_advance_stops_at_the_start_it_was_told_to_watch() -> None:
    jobs = workload([(0, 4, 100, 100), (1, 4, 50, 50), (2, 4, 50, 50)])
    knobs = checked_knobs(scheduler="easy", capacity=4)
    state, starts = new_state(knobs, 3, 3, 4), np.full(3, NONE)
    assert advance(as_jobs(jobs), knobs, state, starts, NEVER, 1) == 100
    assert state.scalars[NOW] == 100 and starts.tolist() == [0, 100, NONE]
    assert advance(as_jobs(jobs), knobs, state, starts, 149, 2) == NONE
    assert advance(as_jobs(jobs), knobs, state, starts, 150, 2) == 150


@pytest.mark.parametrize(("scheduler", "start"), [("easy", 600), ("mirage", 660)])
def test_submitting_now_waits_for_the_next_pass(scheduler: str, start: int) -> None:
    """An event starts it at once; the tick of this very second is over."""
    jobs = with_extra(workload([(0, 1, 10, 10)]), size=1, run_s=5, limit_s=5)
    knobs = checked_knobs(scheduler=scheduler, capacity=4)
    state, starts = new_state(knobs, 1, 2, 4), np.full(2, NONE)
    advance(jobs, knobs, state, starts, 600, NONE)
    submit(state, 1, 600)
    assert advance(jobs, knobs, state, starts, NEVER, 1) == start


def test_a_full_queue_is_reported_and_nothing_is_lost() -> None:
    jobs = random_workload(seed=4, jobs=200, capacity=16, load=1.5)
    for knobs in (checked_knobs(scheduler=s, capacity=16, pass_="instant") for s in ("easy", "conservative", "mirage")):
        small, starts = new_state(knobs, len(jobs), 2, 16), np.full(len(jobs), NONE)
        grew = 0
        while advance(as_jobs(jobs), knobs, small, starts, NEVER, NONE) == NO_ROOM:
            small, grew = grown(knobs, small), grew + 1
        assert grew > 0
        roomy, expected = new_state(knobs, len(jobs), len(jobs), 16), np.full(len(jobs), NONE)
        advance(as_jobs(jobs), knobs, roomy, expected, NEVER, NONE)
        assert starts.tolist() == expected.tolist()


@pytest.mark.parametrize(("scheduler", "start_s"), [("fifo", 100), ("mirage", 120)])
@pytest.mark.parametrize("blocks_from", ["queue", "node"])
def test_others_start_when_a_job_is_withdrawn(scheduler: str, start_s: int, blocks_from: str) -> None:
    """On two nodes a job of one node waits behind one of two nodes until that leaves at 100 s; mirage has a tick then.

    The job of two nodes waits for the other node, or it runs.
    """
    others = [(0, 1, 5000, 5000), (20, 1, 500, 500)] if blocks_from == "queue" else [(20, 1, 500, 500)]
    rows, knobs = (
        with_extra(workload(others), size=2, run_s=900, limit_s=900),
        checked_knobs(scheduler=scheduler, capacity=2),
    )
    state, starts = new_state(knobs, len(others), 8, 2), np.full(len(others) + 1, NONE)
    submit(state, len(others), 0 if blocks_from == "node" else 10)
    assert advance(rows, knobs, state, starts, 99, NONE) == NONE and starts[len(others) - 1] == NONE
    withdraw(state, len(others), 100)
    assert advance(rows, knobs, state, starts, 5000, len(others) - 1) == start_s
