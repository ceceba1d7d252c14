"""A replay that begins anew from the recorded state: by itself, with held jobs, and in a changed cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.recorded.branch import new_cluster
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.free import Followed, Phase, anchored_starts, follow_to, free_starts, given_by
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.state import RecordedJobs, RecordedRules, enter, new_state, reorder
from tests.simulator.recorded.cases import NODES, jobs_of, records

PLAIN = RecordedRules(NODES, 0, 0, NEVER, NEVER, 0, 0)


def followed(record: RecordedTrace, rules: RecordedRules, anchors: list[int]) -> Followed:
    cluster = new_cluster(record, events(record), jobs_of(record), rules)
    return follow_to(cluster, anchors, int(record.submit_s[-1]) + HORIZON_S)


def as_simulated(record: RecordedTrace, jobs: RecordedJobs, rules: RecordedRules) -> RecordedTrace:
    """The record as it would be if the rules had made every start, with the same run times; all jobs ran."""
    run_s = np.where(record.ran, record.end_s - record.start_s, 100)
    blank = replace(record, start_s=record.submit_s, end_s=record.submit_s + run_s)
    start_s = free_starts(blank, jobs, rules, np.array([rules.nodes]))
    return replace(blank, start_s=start_s, end_s=start_s + run_s)


@settings(max_examples=40, deadline=None)
@given(records(), st.sampled_from([1, 2, NEVER]), st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True))
def test_a_record_that_the_rules_made_is_repeated_from_any_anchor(
    drawn: tuple[RecordedTrace, RecordedJobs], max_jobs: int, instants: list[int]
) -> None:
    record, jobs = drawn
    rules = PLAIN._replace(max_jobs=max_jobs)
    made = as_simulated(record, jobs, rules)
    anchors = [100 * k for k in sorted(instants)]
    shown = followed(made, rules, anchors)
    found = anchored_starts(given_by(made, shown.held, shown.usable), shown.anchors, jobs, rules, 5000)
    inside = made.submit_s >= anchors[0]
    assert (found[inside] == made.start_s[inside]).all() and (found[~inside] == NEVER).all()


def recorded(rows: list[tuple[int, int, int, int, int]]) -> RecordedTrace:
    """Jobs of one user each: (submission, start, end, nodes, limit)."""
    submit_s, start_s, end_s, size, limit_s = np.array(rows, np.int64).T.copy()
    user, names = np.arange(len(rows)), [str(row) for row in range(len(rows))]
    return RecordedTrace(submit_s, start_s, end_s, size, limit_s, user, np.zeros(len(rows), np.int64), names)


# Six nodes. A runs on all of them until 1000. B (4 nodes) starts at 3000 although it could at 1000, and C, behind it,
# starts at 1100: B was held. D starts with C.
HELD = recorded(
    [(0, 0, 1000, 6, 2000), (100, 3000, 4000, 4, 900), (200, 1100, 5000, 3, 9000), (300, 1100, 1500, 3, 900)]
)


def test_a_held_job_starts_when_it_did_and_reserves_nothing() -> None:
    rules = PLAIN._replace(overtaken=1)
    shown = followed(HELD, rules, [50])
    assert shown.held.tolist() == [0, 1, 0, 0]
    given_here = given_by(HELD, shown.held, shown.usable)
    assert anchored_starts(given_here, shown.anchors, jobs_of(HELD), rules, 400).tolist() == [NEVER, 3000, 1000, 1000]
    free = given_here._replace(held=np.zeros(4, np.int64))
    assert anchored_starts(free, shown.anchors, jobs_of(HELD), rules, 400).tolist() == [NEVER, 1000, 2000, 2000]


@pytest.mark.parametrize(("more", "start_s"), [(0, 1000), (3, 200)])
def test_more_nodes_let_jobs_start_sooner_but_not_the_held_one(more: int, start_s: int) -> None:
    rules = PLAIN._replace(overtaken=1)
    shown = followed(HELD, rules, [50])
    changed = given_by(HELD, shown.held, shown.usable + more)
    found = anchored_starts(changed, shown.anchors, jobs_of(HELD), rules, 400)
    assert found.tolist() == [NEVER, 3000, start_s, 1000]


def test_each_span_begins_at_the_recorded_state() -> None:
    """B of the first span starts late in truth; the second span knows that it runs until 4000."""
    rules = PLAIN
    late = recorded([(0, 0, 1000, 6, 2000), (100, 3000, 4000, 6, 1000), (3500, 4000, 4100, 6, 500)])
    shown = followed(late, rules, [50, 3200])
    given_here = given_by(late, shown.held, shown.usable)
    assert anchored_starts(given_here, shown.anchors, jobs_of(late), rules, 3600).tolist() == [NEVER, 1000, 4000]
    whole = followed(late, rules, [50])
    assert anchored_starts(given_here, whole.anchors, jobs_of(late), rules, 3600).tolist() == [NEVER, 1000, 3500]


# A holds 4 of the 6 nodes from 0 to 2000, its limit. B (6 nodes) pends since 100; C (2 nodes, 1,500 s) comes at 200.
RUNNING = recorded([(0, 0, 2000, 4, 2000), (100, 2000, 2500, 6, 900), (200, 200, 1700, 2, 1500)])


def test_a_shorter_limit_leaves_the_jobs_that_run_at_an_anchor_alone() -> None:
    """A still ends at 2000, and the plan knows that, so that C may run before B."""
    shown = followed(RUNNING, PLAIN, [150])
    short = jobs_of(RUNNING)._replace(limit_s=np.array([500, 900, 1500]))
    cut = given_by(RUNNING, shown.held, shown.usable)._replace(run_s=np.array([500, 500, 1500]))
    assert anchored_starts(cut, shown.anchors, short, PLAIN, 400).tolist() == [NEVER, NEVER, 200]
    late = followed(RUNNING, PLAIN, [50])
    assert anchored_starts(cut, late.anchors, short, PLAIN, 400).tolist() == [NEVER, 2000, 200]


def test_an_absent_job_that_pends_at_an_anchor_is_gone_and_a_running_one_stays() -> None:
    shown = followed(RUNNING, PLAIN, [150])
    long = jobs_of(RUNNING)._replace(limit_s=np.array([2000, 900, 5000]))  # C would wait behind B
    here = given_by(RUNNING, shown.held, shown.usable)
    assert anchored_starts(here, shown.anchors, long, PLAIN, 400).tolist() == [NEVER, NEVER, 2500]
    gone = here._replace(present=np.array([0, 0, 1]))
    assert anchored_starts(gone, shown.anchors, long, PLAIN, 400).tolist() == [NEVER, NEVER, 200]


@pytest.mark.parametrize(
    ("order", "queue"),
    [
        (0, [0, 1, 2, 3]),
        (1, [2, 1, 3, 0]),  # waited 900, 800, 300 and 250 s of limits of 4,000, 2,000, 600 and 1,000 s
        (2, [1, 3, 2, 0]),  # (0.225, 0.4, 0.5, 0.25)^3 times 1, 512, 1 and 512 nodes
        (3, [2, 0, 1, 3]),  # through 1, 4, 1 and 4: at most 64 nodes, and 512
    ],
)
def test_the_queue_is_ordered_by_what_the_jobs_have_waited_until_now(order: int, queue: list[int]) -> None:
    submit_s, limit_s = np.array([0, 100, 600, 650]) + 100, np.array([4000, 2000, 600, 1000])
    jobs = RecordedJobs(submit_s, np.array([1, 512, 1, 512]), limit_s, np.arange(4), -(submit_s - submit_s[0]))
    state = new_state(jobs, 4)
    for job in (3, 1, 0, 2):
        enter(state, job)
    if order:
        reorder(jobs, state, order, 1000)
    assert state.pending.tolist() == queue


def test_rules_and_order_of_a_later_phase_count_from_its_beginning() -> None:
    """One user, whose four jobs of 1,000 s may run one at a time, from 1,500 s on two, the last submitted first."""
    made = recorded([(0, 0, 1000, 1, 1000)] + [(10 * k, 1000 * k, 1000 * k + 1000, 1, 1000) for k in (1, 2, 3)])
    made = replace(made, user=np.zeros(4, np.int64))
    shown = followed(made, PLAIN._replace(max_jobs=1), [5])
    here, jobs = given_by(made, shown.held, shown.usable), jobs_of(made)
    later = Phase(1500, -jobs.key, PLAIN._replace(max_jobs=2))
    found = anchored_starts(here, shown.anchors, jobs, PLAIN._replace(max_jobs=1), 400, None, [later])
    assert found.tolist() == [NEVER, 1000, 2000, 1500]
