"""Jobs put beside a record, or taken out of it, against a record that holds them, or does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simulator.cluster import advance, copy, start_of, submit, visible_state
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from simulator.recorded.stand_in import stand_in
from simulator.recorded.state import RecordedRules
from simulator.recorded.world import Extra, build_with
from tests.simulator.recorded.cases import NODES, records

# What a record shows about holds and nodes out would differ where it holds other jobs.
RULES = RecordedRules(nodes=NODES, window_s=0, stall_s=0, max_jobs=2, max_nodes=NEVER, overtaken=0, siblings=0)
LINK_LIMIT_S = 700
S = (2, 600)  # nodes and limit of the job submitted
ALL_QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class World:
    """A record, a link of user 1 and a job of user 1 that is submitted beside it."""

    def __init__(self, record: RecordedTrace, link_nodes: int) -> None:
        none = np.full(2, 0)
        extra = Extra(np.array([link_nodes, S[0]]), np.array([LINK_LIMIT_S, S[1]]), none + 1, none)
        self.built = build_with(record, extra, rules=RULES, points_per_hour=None, threads=1)
        self.cluster: Any = self.built.clusters[0]
        self.followed, self.leaf = self.built.branch(0, 5), self.built.branch(0, 5)

    def at(self, now: int, link_start_s: int | None, out: int = NONE) -> Any:
        advance(self.cluster, self.followed, now - 1)
        copy(self.cluster, self.leaf, self.followed)
        starts = np.array([] if link_start_s is None else [link_start_s], np.int64)
        stand_in(self.cluster, self.leaf, self.followed, now, self.built.first_extra, starts, np.array([out]))
        return visible_state(self.cluster, self.leaf, now)

    def start(self, now: int) -> int:
        submit(self.cluster, self.leaf, self.built.first_extra + 1, now)
        return start_of(self.cluster, self.leaf, self.built.first_extra + 1)


def within_limits(record: RecordedTrace) -> RecordedTrace:
    """Limits no shorter than run times, so that nothing changes but by an event."""
    run_s = np.where(record.ran, record.end_s - record.start_s, 0)
    return replace(record, limit_s=np.maximum(record.limit_s, run_s))


def with_job(record: RecordedTrace, start_s: int, size: int) -> tuple[RecordedTrace, int]:
    """The record, in which a job of user 1 was submitted and started at `start_s` too; and the job's row."""
    at = int(np.searchsorted(record.submit_s, start_s, side="right"))
    job = {
        "submit_s": start_s, "start_s": start_s, "end_s": start_s + LINK_LIMIT_S, "size": size,
        "limit_s": LINK_LIMIT_S, "user": 1, "priority": 0,
    }  # fmt: skip
    columns = {name: np.insert(getattr(record, name), at, value) for name, value in job.items()}
    keys = [*record.job_key[:at], "more", *record.job_key[at:]]
    return RecordedTrace(**columns, job_key=keys), at


@ALL_QUICK
@given(case=records(), begun=st.integers(0, 30), later=st.integers(1, 7), size=st.integers(1, 3))
def test_a_job_that_stands_beside_the_record_is_as_good_as_recorded(
    case: tuple[RecordedTrace, Any], begun: int, later: int, size: int
) -> None:
    record = within_limits(case[0])
    start_s, now = 100 * begun + 50, 100 * (begun + later)
    held, _ = with_job(record, start_s, size)
    beside, recorded = World(record, size), World(held, size)
    seen, expected = beside.at(now, start_s), recorded.at(now, None)
    running = sorted(zip(seen.running_nodes, seen.running_start_s, seen.running_user, strict=True))
    assert running == sorted(zip(expected.running_nodes, expected.running_start_s, expected.running_user, strict=True))
    assert seen.pending_nodes.tolist() == expected.pending_nodes.tolist()
    assert beside.start(now) == recorded.start(now)


@ALL_QUICK
@given(case=records(), begun=st.integers(0, 30), later=st.integers(-8, 7), size=st.integers(1, 3))
def test_a_job_taken_out_was_never_there(case: tuple[RecordedTrace, Any], begun: int, later: int, size: int) -> None:
    """Whether it would come or runs. One that is over tells how long jobs run, and that stays known."""
    record = within_limits(case[0])
    start_s, now = 100 * begun + 50, 100 * (begun + later)
    assume(now > 0)
    held, row = with_job(record, start_s, size)
    without, taken = World(record, size), World(held, size)
    seen, expected = taken.at(now, None, out=row), without.at(now, None)
    assert seen.running_start_s.tolist() == expected.running_start_s.tolist()
    assert taken.start(now) == without.start(now)


def test_a_pending_job_is_taken_out_of_the_queue() -> None:
    """Six nodes run until 1000; user 1's job waits for them, and then the one submitted need not wait for it."""
    columns = {
        "submit_s": (0, 100), "start_s": (0, 1001), "end_s": (1000, 2000), "size": (NODES, NODES),
        "limit_s": (1000, 1000), "user": (0, 1), "priority": (0, 0),
    }  # fmt: skip
    record = RecordedTrace(**{name: np.array(column, np.int64) for name, column in columns.items()}, job_key=["a", "b"])
    one, other = World(record, 1), World(record, 1)
    assert len(one.at(500, None).pending_nodes) == 1 and one.start(500) == 2001
    assert len(other.at(500, None, out=1).pending_nodes) == 0 and other.start(500) == 1001


def test_what_started_and_ended_last_stays_what_it_was() -> None:
    columns = {
        "submit_s": (0, 100, 120), "start_s": (0, 100, 130), "end_s": (90, 5000, 140), "size": (1, 2, 1),
        "limit_s": (100, 5000, 100), "user": (0, 1, 2), "priority": (0, 0, 0),
    }  # fmt: skip
    record = RecordedTrace(
        **{name: np.array(column, np.int64) for name, column in columns.items()}, job_key=["a", "b", "c"]
    )
    world = World(record, 2)
    before, seen = world.at(200, None), world.at(200, 110, out=1)
    assert sorted(seen.recent_start_s) == [0, 100, 130] and sorted(seen.ended_use) == [0.1, 0.9]
    assert seen.recent_wait_s.tolist() == before.recent_wait_s.tolist()
    assert seen.running_start_s.tolist() == [110]
