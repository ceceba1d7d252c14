"""The compiled forms against their slow twins, on random small records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.recorded.free import free_starts, usable_nodes
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.single import single_starts
from simulator.recorded.state import ORDERS, RecordedJobs, RecordedRules
from tests.simulator.recorded.cases import records, rules, twins
from tests.twins import recorded as reference


@pytest.mark.parametrize("forked", [False, True])
@settings(max_examples=40, deadline=None)
@given(drawn=records(), given_rules=rules)
def test_each_start_equals_the_twin_that_never_saw_the_jobs_own_record(
    forked: bool, drawn: tuple[RecordedTrace, RecordedJobs], given_rules: RecordedRules
) -> None:
    record, jobs = drawn
    found = single_starts(record, events(record), jobs, given_rules, record.ran, forked=forked)
    listed = twins(record, jobs)
    twin = reference.forked_start if forked else reference.informed_start
    for row, job in enumerate(listed):
        others = [other for other in listed if other is not job]
        expected = twin(others, job, given_rules) if record.ran[row] else NEVER
        assert found[row] == expected


@settings(max_examples=40, deadline=None)
@given(records(), rules, st.integers(0, len(ORDERS) - 1), st.booleans())
def test_free_starts_equal_the_twin(
    drawn: tuple[RecordedTrace, RecordedJobs], given_rules: RecordedRules, order: int, follows: bool
) -> None:
    record, jobs = drawn
    given_rules = given_rules._replace(order=order)
    happened = events(record)
    usable = usable_nodes(record, happened, 700) if follows else usable_nodes(record, happened, 10**6)[-1:]
    found = free_starts(record, jobs, given_rules, usable)
    expected = reference.free_starts(twins(record, jobs), given_rules, [int(nodes) for nodes in usable])
    last = int(record.submit_s[-1]) + 10 * 86400
    for row, job in enumerate(twins(record, jobs)):
        assert found[row] == (expected.get(job, last) if record.ran[row] else NEVER)
