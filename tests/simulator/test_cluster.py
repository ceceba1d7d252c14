"""What every simulated cluster that can be branched must keep: one row of WORLDS each, the same tests for all.

Each row builds its world for a small random case, and names the plain twin that the start of a submitted job must agree
with when that job is written into the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.cluster import (
    NO_ROOM,
    NONE,
    WORLDS,
    Branch,
    Built,
    Cluster,
    Visible,
    advance,
    copy,
    plain,
    start_of,
    submit,
    visible_state,
    world,
)
from simulator.names import SCHEDULERS
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedRules
from simulator.slurm.inputs.jobs import flat
from simulator.workload import Workload
from tests.simulator.flat.cases import small_cases
from tests.twins import flat as flat_twin
from tests.twins import recorded as recorded_twin
from tests.twins.slurm import clock as slurm_twin
from traces.units import DAY_S

REMEMBERED = 5
ROOM = 64
LIMIT_S = 400  # of the jobs that are submitted
LONG_S = 10_000_000  # beyond everything


@dataclass(frozen=True)
class Row:
    """One world in the contract.

    build(workload, capacity) gives the `Build`; twin(workload, capacity) the start of each job of a workload; `scale`
    is the seconds between the instants of a case, so that the world's own period matters and ties abound.
    """

    world: str  # key of WORLDS
    build: Callable[..., Callable[..., Built]]
    twin: Callable[[Workload, int], list[int]]
    scale: int = 1
    grace_s: int = 0  # so long over its limit a job may run
    fills: bool = True  # a branch can be too small for who is alive


def _flat(scheduler: str, scale: int) -> Row:
    def twin(workload: Workload, capacity: int) -> list[int]:
        return flat_twin.simulate(workload, scheduler=scheduler, capacity=capacity, kill_at_limit=True)

    return Row("flat", partial(plain, scheduler=scheduler), twin, scale)


def _slurm_twin(workload: Workload, capacity: int) -> list[int]:
    return [int(start) for start in slurm_twin.simulate(flat(workload, capacity)).start_s]


def _record(workload: Workload, capacity: int) -> RecordedTrace:
    """The jobs of a workload but for those that are yet to be submitted, as if an EASY scheduler had been recorded."""
    logged = workload.take(workload.start_s >= 0)
    start = flat_twin.simulate(logged, scheduler="easy", capacity=capacity, kill_at_limit=True)
    start_s = np.array(start, np.int64).reshape(-1)
    end_s = start_s + np.clip(logged.run_s, 1, logged.limit_s)
    none = np.zeros(len(logged), np.int64)
    keys = [str(job) for job in logged.job_id]
    return RecordedTrace(logged.submit_s, start_s, end_s, logged.size, logged.limit_s, logged.job_id % 3, none, keys)


def _recorded_rules(capacity: int) -> RecordedRules:
    return RecordedRules(capacity, window_s=0, stall_s=300, max_jobs=NEVER, max_nodes=NEVER, overtaken=1, siblings=1)


def _recorded(workload: Workload, capacity: int) -> Callable[..., Built]:
    return partial(
        world("recorded"), _record(workload, capacity), rules=_recorded_rules(capacity), points_per_hour=None
    )


def _recorded_twin(workload: Workload, capacity: int) -> list[int]:
    """Recorded starts, and for the jobs that are submitted what the twin of the simulation says."""
    record, starts = _record(workload, capacity), np.empty(len(workload), np.int64)
    columns = (
        record.submit_s,
        record.start_s,
        record.end_s,
        record.size,
        record.limit_s,
        record.user,
        -record.submit_s,
    )
    logged = [
        recorded_twin.PlainRecordedJob(row, *(int(column[row]) for column in columns)) for row in range(len(record))
    ]
    submitted = {
        int(row): recorded_twin.PlainRecordedJob(
            len(record) + k, int(workload.submit_s[row]), 0, LIMIT_S, int(workload.size[row]), LIMIT_S, record.users,
            -int(workload.submit_s[row]),
        )
        for k, row in enumerate(np.flatnonzero(workload.start_s < 0))
    }  # fmt: skip
    starts[workload.start_s >= 0] = record.start_s
    if submitted:
        found, _ = recorded_twin.forked_starts(logged, list(submitted.values()), _recorded_rules(capacity))
        for row, job in submitted.items():
            starts[row] = found.get(job, NONE)
    return starts.tolist()


ROWS = {
    **{name: _flat(name, 61 if name == "mirage" else 50) for name in SCHEDULERS},
    "slurm": Row("slurm", partial(plain, scheduler="slurm"), _slurm_twin, scale=17, grace_s=30),
    "recorded": Row("recorded", _recorded, _recorded_twin, 50, fills=False),
}
each = pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
cases = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_every_world_has_a_row() -> None:
    assert {row.world for row in ROWS.values()} == set(WORLDS)


def built(row: Row, workload: Workload, capacity: int, nodes: int = 1) -> tuple[Cluster, Branch, Built]:
    """The world of a case with two extra jobs of `nodes`, and a branch before its first job."""
    world = row.build(workload, capacity=capacity)(extra=2, nodes=nodes, limit_s=LIMIT_S, threads=1)
    return world.clusters[0], world.branch(ROOM, REMEMBERED), world


def drawn(data: st.DataObject, row: Row) -> tuple[Workload, int, int, int]:
    """A workload, its capacity, nodes of the jobs to submit, and an instant within the workload's time."""
    workload, capacity = data.draw(small_cases(scale=row.scale))
    nodes = data.draw(st.integers(1, capacity), label="nodes")
    at = data.draw(st.integers(0, int(workload.submit_s.max(initial=0)) + 5 * row.scale), label="at")
    return workload, capacity, nodes, at


def with_jobs(workload: Workload, *jobs: tuple[int, int]) -> tuple[Workload, list[int]]:
    """The workload with jobs (submit, nodes) of the full limit behind all others of their second, and their rows."""
    count = len(workload)
    added = np.array(jobs, np.int64).reshape(-1, 2)
    full = np.full(len(jobs), LIMIT_S)
    parts = (count + 1 + np.arange(len(jobs)), added[:, 0], added[:, 1], full, full, np.full(len(jobs), -1))
    columns = [np.append(getattr(workload, n), p) for n, p in zip(workload.__dataclass_fields__, parts, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    rows = np.argsort(order)[count:].tolist()
    return Workload(*(column[order].astype(np.int64) for column in columns)), rows


def shown(cluster: Cluster, branch: Branch, now_s: int) -> list[object]:
    """What is visible, as values that can be compared; running jobs and recent ones in a settled order."""
    seen = visible_state(cluster, branch, now_s)
    queue = (seen.pending_nodes, seen.pending_limit_s, seen.pending_submit_s, seen.pending_held, seen.pending_user)
    alive = (seen.running_nodes, seen.running_limit_s, seen.running_start_s, seen.running_user)
    pending, running = list(zip(*map(list, queue), strict=True)), sorted(zip(*map(list, alive), strict=True))
    recent = sorted(recently_started(seen))
    arrived = list(zip(list(seen.arrived_submit_s), list(seen.arrived_node_s), strict=True))
    nodes = (seen.capacity, seen.usable, seen.user_max_jobs, seen.user_max_nodes)
    return [nodes, pending, running, recent, sorted(seen.ended_use), arrived]


def recently_started(seen: Visible) -> list[tuple[int, int, int]]:
    """(start, wait, nodes) of each."""
    return list(zip(list(seen.recent_start_s), list(seen.recent_wait_s), list(seen.recent_nodes), strict=True))


def future(cluster: Cluster, branch: Branch, now_s: int) -> list[list[object]]:
    """What is visible at many later instants; the branch is used up."""
    pictures = []
    for later in (*range(now_s, now_s + 1500, 97), LONG_S):
        assert advance(cluster, branch, later) == 0
        pictures.append(shown(cluster, branch, later))
    return pictures


@each
@cases
@given(data=st.data())
def test_a_submitted_job_starts_as_if_it_were_in_the_trace(row: Row, data: st.DataObject) -> None:
    """Two jobs after one another, as a predecessor and its successor, against the twin with both in the trace."""
    workload, capacity, nodes, at = drawn(data, row)
    cluster, branch, world = built(row, workload, capacity, nodes)
    assert advance(cluster, branch, at - 1) == 0
    submit(cluster, branch, world.first_extra, at)
    first = start_of(cluster, branch, world.first_extra)
    whole, rows = with_jobs(workload, (at, nodes))
    assert first == row.twin(whole, capacity)[rows[0]]
    again = first + data.draw(st.integers(1, LIMIT_S), label="between")
    assert advance(cluster, branch, again - 1) == 0
    submit(cluster, branch, world.first_extra + 1, again)
    whole, rows = with_jobs(workload, (at, nodes), (again, nodes))
    starts = row.twin(whole, capacity)
    assert (first, start_of(cluster, branch, world.first_extra + 1)) == (starts[rows[0]], starts[rows[1]])


@each
@cases
@given(data=st.data())
def test_a_resized_job_starts_as_one_of_its_size(row: Row, data: st.DataObject) -> None:
    """A world is built for jobs of the whole cluster; a job of fewer nodes is written into the trace."""
    workload, capacity, nodes, at = drawn(data, row)
    cluster, branch, world = built(row, workload, capacity, capacity)
    world.resize(cluster, world.first_extra, nodes)
    assert advance(cluster, branch, at - 1) == 0
    submit(cluster, branch, world.first_extra, at)
    whole, rows = with_jobs(workload, (at, nodes))
    assert start_of(cluster, branch, world.first_extra) == row.twin(whole, capacity)[rows[0]]


@each
@cases
@given(data=st.data())
def test_a_branch_shares_nothing_with_its_copy(row: Row, data: st.DataObject) -> None:
    """Whatever happens in the copy: the source stays as it is and has the future that it would have had."""
    workload, capacity, nodes, at = drawn(data, row)
    cluster, source, world = built(row, workload, capacity, nodes)
    untouched, leaf = world.branch(ROOM, REMEMBERED), world.branch(ROOM, REMEMBERED)
    assert advance(cluster, source, at) == advance(cluster, untouched, at) == 0
    copy(cluster, leaf, source)
    before = shown(cluster, source, at)
    assert shown(cluster, leaf, at) == before
    submit(cluster, leaf, world.first_extra, at + 1)
    start_of(cluster, leaf, world.first_extra)
    assert advance(cluster, leaf, LONG_S) == 0
    assert shown(cluster, source, at) == before
    copy(cluster, leaf, source)
    expected = future(cluster, untouched, at)
    assert future(cluster, source, at) == expected
    assert future(cluster, leaf, at) == expected


@each
@cases
@given(data=st.data())
def test_a_submitted_job_is_seen_where_it_was_submitted(row: Row, data: st.DataObject) -> None:
    """It pends or runs from then on, with its nodes and limit, and holds its nodes against all others to its limit."""
    workload, capacity, _, at = drawn(data, row)
    cluster, branch, world = built(row, workload, capacity, capacity)
    plain_branch = world.branch(ROOM, REMEMBERED)
    submit(cluster, branch, world.first_extra, at)
    start = start_of(cluster, branch, world.first_extra)
    seen = visible_state(cluster, branch, start)
    rows = zip(seen.running_nodes.tolist(), seen.running_limit_s.tolist(), seen.running_start_s.tolist(), strict=True)
    assert list(rows) == [(capacity, LIMIT_S, start)]  # it takes the whole cluster
    assert (start, start - at, capacity) in recently_started(seen)
    assert advance(cluster, branch, start + LIMIT_S - 1) == advance(cluster, plain_branch, start + LIMIT_S - 1) == 0
    seen, without = (visible_state(cluster, one, start + LIMIT_S - 1) for one in (branch, plain_branch))
    assert seen.running_nodes.tolist() == [capacity]
    assert seen.pending_nodes.sum() >= without.pending_nodes.sum()
    assert seen.arrived_submit_s.tolist() == without.arrived_submit_s.tolist()


@each
def test_a_job_pends_while_it_waits(row: Row) -> None:
    full = Workload(*(np.array([value], np.int64) for value in (1, 0, 4, 5000, 5000, 0)))
    cluster, branch, world = built(row, full, 4, 3)
    submit(cluster, branch, world.first_extra, 600)
    assert advance(cluster, branch, 1200) == 0
    seen = visible_state(cluster, branch, 1200)
    assert (seen.pending_nodes.tolist(), seen.pending_limit_s.tolist(), seen.pending_submit_s.tolist()) == (
        [3],
        [LIMIT_S],
        [600],
    )
    assert seen.capacity == seen.usable == 4 and seen.running_nodes.tolist() == [4]
    assert seen.pending_held.tolist() == [0]


@each
@cases
@given(data=st.data())
def test_nothing_is_seen_that_is_not_known_yet(row: Row, data: st.DataObject) -> None:
    """Every run time that has not ended and every later arrival altered: what is visible is byte for byte the same."""
    workload, capacity, _, at = drawn(data, row)
    seen = look(row, workload, capacity, at)
    starts = np.array(row.twin(workload, capacity), np.int64).reshape(-1)
    ends = starts + np.minimum(workload.run_s, workload.limit_s + row.grace_s)
    rng = np.random.default_rng(data.draw(st.integers(0, 99), label="seed"))
    open_ = (starts < 0) | (starts >= at) | (ends >= at)
    least = np.where((starts >= 0) & (starts < at), at - starts, 0)
    altered = np.where(open_, least + rng.integers(0, 3000, len(workload)), workload.run_s)
    later = workload.submit_s >= at
    other = replace(
        workload,
        run_s=altered,
        size=np.where(later, rng.integers(1, capacity + 1, len(workload)), workload.size),
        limit_s=np.where(later, rng.integers(1, 3000, len(workload)), workload.limit_s),
        submit_s=workload.submit_s + later * 13,
    )
    for one, two in zip(seen, look(row, other, capacity, at), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def look(row: Row, workload: Workload, capacity: int, at: int) -> Visible:
    cluster, branch, _ = built(row, workload, capacity)
    assert advance(cluster, branch, at - 1) == 0
    return visible_state(cluster, branch, at)


@each
@cases
@given(data=st.data())
def test_visible_is_what_the_twin_says(row: Row, data: st.DataObject) -> None:
    """Who ran, who waited and who arrived, by the twin's starts; and no more than the last few starts and ends."""
    workload, capacity, _, at = drawn(data, row)
    seen = look(row, workload, capacity, at)
    starts = np.array(row.twin(workload, capacity), np.int64).reshape(-1)
    started = (starts >= 0) & (starts < at)
    ends = starts + np.minimum(workload.run_s, workload.limit_s + row.grace_s)
    running = set(zip(seen.running_start_s.tolist(), seen.running_nodes.tolist(), strict=True))
    surely = started & (ends >= at)
    assert running >= set(zip(starts[surely].tolist(), workload.size[surely].tolist(), strict=True))
    assert running <= set(zip(starts[started].tolist(), workload.size[started].tolist(), strict=True))
    waiting = (workload.submit_s < at) & ~started
    assert set(seen.pending_submit_s.tolist()) <= set(workload.submit_s[waiting].tolist())
    assert seen.recent_start_s.tolist() == [] or seen.recent_start_s.max() == starts[started].max()
    assert sorted(seen.recent_start_s.tolist()) == sorted(starts[started].tolist())[-REMEMBERED:]
    assert len(seen.ended_use) <= REMEMBERED
    assert (seen.arrived_submit_s >= at - DAY_S).all() and (seen.arrived_submit_s < at).all()


@each
@cases
@given(data=st.data())
def test_many_steps_lead_where_one_does(row: Row, data: st.DataObject) -> None:
    workload, capacity, nodes, at = drawn(data, row)
    cluster, stepped, world = built(row, workload, capacity, nodes)
    at_once = world.branch(ROOM, REMEMBERED)
    for later in data.draw(st.lists(st.integers(0, at), max_size=6).map(sorted), label="steps"):
        assert advance(cluster, stepped, later) == 0
    assert advance(cluster, stepped, at) == advance(cluster, at_once, at) == 0
    assert shown(cluster, stepped, at) == shown(cluster, at_once, at)
    assert future(cluster, stepped, at) == future(cluster, at_once, at)


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.fills])
def test_a_branch_without_room_says_so_and_loses_nothing(row: Row) -> None:
    count = 40
    rng = np.random.default_rng(7)
    columns = (np.arange(count), np.sort(rng.integers(0, 90, count)), rng.integers(1, 4, count))
    run = rng.integers(50, 400, count)
    workload = Workload(*(c.astype(np.int64) for c in (*columns, run, run + rng.integers(0, 300, count), run * 0 - 1)))
    cluster, roomy, world = built(row, workload, 4)
    rows, grew = 2, 0
    small = world.branch(rows, REMEMBERED)
    while advance(cluster, small, 3000) == NO_ROOM:
        rows, grew = 2 * rows, grew + 1
        bigger = world.branch(rows, REMEMBERED)
        copy(cluster, bigger, small)
        small = bigger
    assert grew > 1
    assert advance(cluster, roomy, 3000) == 0
    assert future(cluster, small, 3000) == future(cluster, roomy, 3000)
    cramped = world.branch(2, 0)
    assert start_of(cluster, cramped, world.first_extra) == NO_ROOM


@each
def test_a_job_that_is_never_submitted_never_starts(row: Row) -> None:
    one = Workload(*(np.array([value], np.int64) for value in (1, 0, 1, 10, 10, 0)))
    cluster, branch, world = built(row, one, 4)
    assert start_of(cluster, branch, world.first_extra) == NONE


@each
def test_a_branch_that_remembers_nothing_starts_jobs_no_differently(row: Row) -> None:
    full = Workload(*(np.array([value, value + 1], np.int64) for value in (1, 0, 2, 900, 900, 0)))
    cluster, branch, world = built(row, full, 4, 3)
    leaf = world.branch(ROOM, 0)
    assert advance(cluster, branch, 60) == 0
    copy(cluster, leaf, branch)
    for one in (branch, leaf):
        submit(cluster, one, world.first_extra, 100)
    assert start_of(cluster, leaf, world.first_extra) == start_of(cluster, branch, world.first_extra) > 100
    assert len(visible_state(cluster, leaf, 2000).recent_start_s) == 0
