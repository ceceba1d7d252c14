"""A branch of the recorded world: it can be stopped, copied and given another submission, and the twin agrees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.recorded.branch import (
    Beyond,
    RecordedBranch,
    RecordedCluster,
    advance,
    copy_branch,
    new_branch,
    new_cluster,
    submit,
    usable_nodes,
)
from simulator.recorded.record import NEVER, NONE, RecordedTrace, events
from simulator.recorded.single import single_starts
from simulator.recorded.state import PENDING, RUNNING, RecordedJobs, RecordedRules
from tests.simulator.recorded.cases import jobs_of, records, rules, twins
from tests.twins import recorded as reference

LIMITS_S = (700, 400)  # of the two jobs that are not in the record: predecessor and successor


def with_pair(
    record: RecordedTrace, jobs: RecordedJobs, rules: RecordedRules, sizes: tuple[int, int], user: int
) -> tuple[RecordedCluster, int]:
    """The cluster of a record with two jobs beyond it, and the row of the first. A second waited is a point."""
    columns = ((NEVER, NEVER), sizes, LIMITS_S, (user, user), (0, 0))
    both = RecordedJobs(*(np.append(column, values) for column, values in zip(jobs, columns, strict=True)))
    beyond = Beyond(np.full(2, NONE), np.zeros(len(record) + 1, np.int64), -1.0, 0)
    return new_cluster(record, events(record), both, rules, beyond), len(record)


def in_use(branch: RecordedBranch) -> tuple[list[int], list[tuple[int, int]]]:
    """Who pends, in order, and who runs since when."""
    state = branch.state
    running = state.running[: state.scalars[RUNNING]]
    return state.pending[: state.scalars[PENDING]].tolist(), [(int(job), int(state.start_s[job])) for job in running]


def record_of(**columns: tuple[int, ...]) -> RecordedTrace:
    """Jobs of a user each, with long limits."""
    count = len(columns["size"])
    given = {"limit_s": (9000,) * count, "user": tuple(range(count)), "priority": (0,) * count, **columns}
    return RecordedTrace(
        **{name: np.array(column, np.int64) for name, column in given.items()}, job_key=[str(k) for k in range(count)]
    )


pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
instants = st.integers(1, 60).map(lambda k: 70 * k)


@settings(max_examples=60, deadline=None)
@given(records(), rules, pairs, st.integers(0, 3), instants, st.integers(1, LIMITS_S[0]))
def test_a_pair_starts_when_the_twin_says(
    drawn: tuple[RecordedTrace, RecordedJobs],
    rules: RecordedRules,
    sizes: tuple[int, int],
    user: int,
    at: int,
    after: int,
) -> None:
    """The successor is submitted a while after the predecessor started: into a world that was left before."""
    record, jobs = drawn
    cluster, first = with_pair(record, jobs, rules, sizes, user)
    branch = new_branch(cluster)
    pair, found = [], []
    for k in range(2):
        advance(cluster, branch, at - 1, NONE)
        submit(cluster, branch, first + k, at)
        found.append(advance(cluster, branch, NEVER, first + k))
        pair.append(reference.PlainRecordedJob(first + k, at, 0, LIMITS_S[k], sizes[k], LIMITS_S[k], user, -at))
        if found[0] == NONE:  # wider than what is usable: given up
            break
        at = found[0] + after
    starts, _ = reference.forked_starts(twins(record, jobs), pair, rules)
    assert found == [starts.get(job, NONE) for job in pair]


@settings(max_examples=40, deadline=None)
@given(records(), rules, pairs, instants, st.lists(st.integers(0, 3000), max_size=8).map(sorted))
def test_steps_and_copies_lead_where_one_step_does(
    drawn: tuple[RecordedTrace, RecordedJobs], rules: RecordedRules, sizes: tuple[int, int], at: int, steps: list[int]
) -> None:
    cluster, first = with_pair(*drawn, rules, sizes, 3)
    at_once, stepped, spare = (new_branch(cluster) for _ in range(3))
    submit(cluster, at_once, first, at)  # long before its time
    advance(cluster, at_once, at + 3000, NONE)
    advance(cluster, stepped, at - 1, NONE)
    submit(cluster, stepped, first, at)
    for step in steps:
        advance(cluster, stepped, at + step, NONE)
        before = in_use(stepped)
        copy_branch(cluster, spare, stepped)
        submit(cluster, spare, first + 1, at + step + 1)  # another's submission, and all that follows from it
        advance(cluster, spare, NEVER, first + 1)
        assert in_use(stepped) == before
        copy_branch(cluster, spare, stepped)
        stepped, spare = spare, stepped
    advance(cluster, stepped, at + 3000, NONE)
    assert in_use(stepped) == in_use(at_once)
    assert stepped.scalars.tolist() == at_once.scalars.tolist()
    for one, other in ((stepped.state.key, at_once.state.key), (stepped.state.submit_s, at_once.state.submit_s)):
        assert one.tolist() == other.tolist()


def test_a_job_beyond_the_record_queues_by_its_submission_and_by_what_is_usual() -> None:
    """Its key is the usual one of the jobs that had arrived, and grows with each second that it comes later."""
    record = record_of(submit_s=(0, 50), start_s=(0, 60), end_s=(5000, 6000), size=(1, 1))
    columns = ((NEVER, NEVER), (1, 1), (9, 9), (2, 2), (0, 0))
    jobs = RecordedJobs(*(np.append(column, values) for column, values in zip(jobs_of(record), columns, strict=True)))
    beyond = Beyond(np.array([NONE, 9000]), np.array([0, 1000, 7000]), -2.0, 10)
    cluster = new_cluster(record, events(record), jobs, RecordedRules(2, 0, 0, NEVER, NEVER, 0, 0), beyond)
    keys = []
    for row, at in ((2, 20), (2, 100), (3, 100)):  # the second has a key of its own
        branch = new_branch(cluster)
        advance(cluster, branch, at - 1, NONE)
        submit(cluster, branch, row, at)
        advance(cluster, branch, at, NONE)
        keys.append(int(branch.state.key[row]))
        assert branch.state.submit_s[row] == at
    assert keys == [1000 - 2 * 10, 7000 - 2 * 90, 9000 - 2 * 90]


def test_nodes_that_were_out_count_again_once_more_are_in_use() -> None:
    """b could start from 201 on and stays: at 501 that shows that fewer than its 2 nodes are usable. Then it starts."""
    record = record_of(
        submit_s=(0, 200, 850, 1210),
        start_s=(0, 900, 9000, 9000),
        end_s=(100, 8000, 9900, 9900),
        size=(4, 2, 2, 1),
    )
    rules = RecordedRules(0, 10**6, 300, NEVER, NEVER, 0, 0)  # usable is what was in use
    cluster = new_cluster(record, events(record), jobs_of(record), rules)
    branch = new_branch(cluster)
    usable = []
    for at in (150, 300, 600, 899, 900, 1209, 1211):
        advance(cluster, branch, at, NONE)
        usable.append(usable_nodes(cluster, branch, at + 1))
    # c could start as soon as b's start shows that 4 are usable, at 901; it stays, and at 1211 that shows: 3 at most.
    assert usable == [4, 4, 1, 1, 4, 4, 3]


@pytest.mark.parametrize("forked", [False, True])
def test_a_job_that_nothing_can_start_is_given_up_after_ten_days(forked: bool) -> None:
    day = 86400
    record = record_of(
        submit_s=(0, 100, 15 * day), start_s=(0, 200, 15 * day), end_s=(50, 300, 16 * day), size=(1, 3, 1)
    )
    rules = RecordedRules(2, 0, 0, NEVER, NEVER, 0, 0)
    wanted = np.array([False, True, False])
    found = single_starts(record, events(record), jobs_of(record), rules, wanted, forked=forked)
    assert found[1] == 100 + 10 * day


def test_a_copy_knows_who_counts_against_limits_without_nodes() -> None:
    """B starts at once in the simulation, in truth at 5000. Cut at its limit, it counts until its recorded end."""
    record = record_of(submit_s=(0, 100), start_s=(0, 5000), end_s=(50, 5600), size=(2, 1), limit_s=(100, 900))
    cluster, first = with_pair(record, jobs_of(record), RecordedRules(2, 0, 0, NEVER, NEVER, 0, 0), (1, 1), 2)
    branch, copied = new_branch(cluster), new_branch(cluster)
    advance(cluster, branch, 89, NONE)
    submit(cluster, branch, first, 90)
    running = []
    for at in (200, 2000, 5601):
        advance(cluster, branch, at, NONE)
        copy_branch(cluster, copied, branch)
        branch, copied = copied, branch
        running.append((branch.state.scalars[RUNNING], branch.state.user_jobs.tolist()))
    assert running == [(2, [0, 1, 1]), (0, [0, 1, 0]), (0, [0, 0, 0])]
