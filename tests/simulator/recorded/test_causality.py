"""No prediction may depend on the job's own start, end or cancellation, nor on anything recorded at or after it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.cluster import Visible, advance, submit, visible_state
from simulator.recorded.free import free_starts, usable_nodes
from simulator.recorded.parameters import infer_parameters, known_before
from simulator.recorded.record import NEVER, NONE, RecordedTrace, events
from simulator.recorded.single import single_starts
from simulator.recorded.state import RecordedRules
from simulator.recorded.world import build
from tests.simulator.recorded.cases import jobs_of
from traces.arrays import Int64s

RULES = RecordedRules(nodes=12, window_s=86400, stall_s=300, max_jobs=3, max_nodes=8, overtaken=1, siblings=1)


def busy_record(seed: int, count: int = 150) -> RecordedTrace:
    """A queue that fills: recorded waits of minutes to hours, one job in ten cancelled, at most 12 nodes held."""
    random = np.random.default_rng(seed)
    submit = np.sort(random.integers(0, 2 * 86400, count))
    size, limit = random.integers(1, 5, count), random.choice([1800, 7200, 28800], count)
    run = np.maximum((limit * random.random(count)).astype(np.int64), 1)
    user = random.integers(0, 8, count)
    priority = random.integers(0, 3, count) * 3600
    ran = random.random(count) > 0.1
    blank = RecordedTrace(
        submit, np.where(ran, submit, NEVER), np.where(ran, submit + run, submit + 600), size, limit, user, priority,
        [str(k) for k in range(count)],
    )  # fmt: skip
    start = free_starts(blank, jobs_of(blank), RULES._replace(window_s=0), np.array([12], np.int64))
    # Some starts that no rule explains, so that holds and stalls are learned.
    start = np.where(ran, start + np.where(random.random(count) < 0.1, 5000, 0), NEVER)
    end = np.where(ran, start + run, blank.end_s)
    return RecordedTrace(submit, start, end, size, limit, user, priority, blank.job_key)


def predicted(record: RecordedTrace, forked: bool) -> Int64s:
    return single_starts(record, events(record), jobs_of(record), RULES, record.ran, forked=forked)


def changed(record: RecordedTrace, start_s: Int64s, end_s: Int64s) -> RecordedTrace:
    return RecordedTrace(
        record.submit_s, start_s, end_s, record.size, record.limit_s, record.user, record.priority, record.job_key
    )


def altered_from(
    record: RecordedTrace, now: int, random: np.random.Generator, spared: int = NONE
) -> tuple[RecordedTrace, NDArray[np.bool_]]:
    """The record with all that lies at or after `now` altered, and which jobs are left.

    Later starts (but of row `spared`) and ends move by up to half a day; what was cancelled later may run, and the
    other way round; half of the later submissions vanish.
    """
    later = random.integers(0, 43200, len(record))
    start, end = record.start_s.copy(), record.end_s.copy()
    moved = (start >= now) & (end >= now) & (np.arange(len(record)) != spared)
    assert moved.any()
    start[moved] = np.maximum(now, record.submit_s[moved]) + later[moved]
    start[moved & (later % 5 == 0)] = NEVER
    open_end = end >= now
    end[open_end] = np.maximum(end[open_end], np.where(start < NEVER, start, 0)[open_end]) + 1 + later[open_end]
    kept = (record.submit_s < now) | (later % 2 == 0)
    kept[-1] = True
    return changed(record, start, end).take(kept), kept


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_visible_after_a_submission_is_what_was_recorded_before(seed: int) -> None:
    """A pair's first job is submitted and the others are simulated: still nothing recorded later is seen."""
    record, random = busy_record(seed), np.random.default_rng(seed)
    waiting = running = 0
    for _ in range(12):
        at = int(random.integers(3600, 86400))
        now = at + int(random.integers(1, 36000))
        seen, other = (_seen(one, at, now) for one in (record, altered_from(record, now, random)[0]))
        for column, altered in zip(seen, other, strict=True):
            assert np.asarray(column).tobytes() == np.asarray(altered).tobytes()
        waiting, running = waiting + len(seen.pending_nodes), running + len(seen.running_nodes)
    assert waiting > 20 and running > 20


def _seen(record: RecordedTrace, at: int, now: int) -> Visible:
    """What is visible at `now` where a job of 4 nodes was submitted at `at`."""
    world = build(record, rules=RULES, points_per_hour=40.0, extra=2, nodes=4, limit_s=28800, threads=1)
    cluster, branch = world.clusters[0], world.branch(0, 100)
    advance(cluster, branch, at - 1)
    submit(cluster, branch, world.first_extra, at)
    advance(cluster, branch, now - 1)
    return visible_state(cluster, branch, now)


@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_jobs_own_start_and_end_change_nothing(seed: int, forked: bool) -> None:
    record = busy_record(seed)
    before = predicted(record, forked)
    waited = np.flatnonzero(record.ran & (before > record.submit_s + 60))
    assert len(waited) > 20
    for row in waited[::4]:
        for start, end in ((0, 1), (5000, 90_000), (3 * 86400, 4 * 86400)):
            other = changed(record, record.start_s.copy(), record.end_s.copy())
            other.start_s[row], other.end_s[row] = record.submit_s[row] + start, record.submit_s[row] + end
            assert predicted(other, forked)[row] == before[row]


@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_recorded_at_or_after_the_decision_changes_it(seed: int, forked: bool) -> None:
    record = busy_record(seed)
    before = predicted(record, forked)
    random = np.random.default_rng(seed)
    decisive = 0
    for row in np.flatnonzero(record.ran)[::5]:
        now = before[row]
        other, kept = altered_from(record, now, random, spared=row)
        decisive += int(len(other) < len(record))
        assert predicted(other, forked)[np.count_nonzero(kept[:row])] == now
    assert decisive > 10


def test_what_is_fitted_before_an_instant_ignores_all_that_follows() -> None:
    record = busy_record(3)
    until = 86400
    known = known_before(record, until)
    assert known.submit_s.max() < until
    assert ((known.start_s < until) | (known.start_s == NEVER)).all()
    random = np.random.default_rng(0)
    start = np.where(record.start_s >= until, NEVER, record.start_s)
    end = np.where(record.end_s >= until, until + random.integers(0, 9999, len(record)), record.end_s)
    assert infer_parameters(changed(record, start, end), until) == infer_parameters(record, until)


def test_usable_nodes_at_a_tick_are_what_was_in_use_before_it() -> None:
    record = busy_record(4)
    whole = usable_nodes(record, events(record), 7200)
    ticks = record.submit_s[0] + 600 * np.arange(len(whole))
    k = len(whole) // 2
    cut = known_before(record, int(ticks[k]))
    before = usable_nodes(cut, events(cut), 7200)
    count = min(len(before), k + 1)
    assert count > 50
    assert (before[:count] == whole[:count]).all()
