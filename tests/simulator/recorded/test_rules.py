"""What docs/calibration.md infers from a record, one small record a rule, with the starts worked out by hand.

Four nodes, first come, first served. A holds two of them over [0, 10000); a pass comes a second after what it
waits for. Both programs, the compiled one and its plain twin, are held against the figures here.
"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.single import single_starts
from simulator.recorded.state import RecordedRules
from tests.simulator.recorded.cases import jobs_of, twins
from tests.twins import recorded as reference

NO_RULES = RecordedRules(nodes=4, window_s=0, stall_s=0, max_jobs=NEVER, max_nodes=NEVER, overtaken=0, siblings=0)
HOLDS = NO_RULES._replace(overtaken=1)
Row = tuple[int, int, int, int, int, int]  # submit, start, end (s), nodes, limit (s), user
ASKED_S = 90_000
A: Row = (0, 0, 10_000, 2, 10_000, 0)


def job(submit: int, nodes: int, limit: int, user: int) -> Row:
    """A job whose start is asked for: its own record, far off, is not to be read."""
    return submit, ASKED_S, ASKED_S + 1, nodes, limit, user


def starts(rows: list[Row], rules: RecordedRules) -> tuple[int, int]:
    """The start of the `job` among the rows, which are by submission, by the informed and by the forked form."""
    submit, start, end, nodes, limit, user = np.array(rows, np.int64).T.copy()
    record = RecordedTrace(submit, start, end, nodes, limit, user, 0 * user, [str(row) for row in range(len(rows))])
    jobs, target = jobs_of(record), start == ASKED_S
    listed, at = twins(record, jobs), int(np.flatnonzero(target)[0])
    others, asked = listed[:at] + listed[at + 1 :], listed[at]
    informed, forked = (
        int(single_starts(record, events(record), jobs, rules, target, forked=form)[at]) for form in (False, True)
    )
    assert informed == reference.informed_start(others, asked, rules)
    assert forked == reference.forked_start(others, asked, rules)
    return informed, forked


@pytest.mark.parametrize(
    ("rules", "nodes", "user", "start"),
    [
        (NO_RULES, 1, 0, 101),
        (NO_RULES._replace(max_jobs=1), 1, 0, 10_001),
        (NO_RULES._replace(max_jobs=2), 1, 0, 101),
        (NO_RULES._replace(max_jobs=1), 1, 1, 101),
        (NO_RULES._replace(max_nodes=3), 1, 0, 101),
        (NO_RULES._replace(max_nodes=3), 2, 0, 10_001),
        (NO_RULES._replace(max_nodes=1), 2, 1, 101),
        (NO_RULES._replace(max_nodes=1), 2, 0, 10_001),
    ],
)
def test_limits_of_a_user(rules: RecordedRules, nodes: int, user: int, start: int) -> None:
    """Job limit, node limit: "a single wider job is let through", and only where its user holds nothing."""
    assert starts([A, job(100, nodes, 500, user)], rules) == (start, start)


@pytest.mark.parametrize(("limit", "start"), [(9499, 501), (9500, 3001)])
def test_a_job_that_is_cancelled_keeps_its_place_until_then(limit: int, start: int) -> None:
    """The page: "Jobs cancelled in the queue stay in it until they are withdrawn".

    B stays until 3000, and asks for all nodes, which it gets from 10000 on.

    "The pass itself is conservative backfill on time limits": who ends by 10000 may start before.
    """
    b = (100, NEVER, 3000, 4, 3600, 1)
    assert starts([A, b, job(500, 2, limit, 2)], NO_RULES) == (start, start)


@pytest.mark.parametrize(
    ("submit", "window", "expected"),
    [
        (400, 700, (401, 401)),
        (999, 700, (1000, 1000)),  # second 300, the last with three in use, is just seen
        (1000, 701, (1001, 1001)),
        (1000, 700, (2501, 2001)),
    ],
)
def test_usable_nodes_are_the_most_in_use_lately(submit: int, window: int, expected: tuple[int, int]) -> None:
    """Usable nodes: "the most in use over the last three days", here over `window` seconds.

    One node is in use throughout, two more until 300, and three more over [2000, 2500). In the forked form the start of
    these shows at once that four nodes are usable; in the informed form they have to come free again.
    """
    rows = [(0, 0, 9000, 1, 9000, 0), (0, 0, 300, 2, 300, 1), job(submit, 2, 9000, 3), (1990, 2000, 2500, 3, 500, 2)]
    assert starts(rows, NO_RULES._replace(window_s=window)) == expected


@pytest.mark.parametrize(
    ("rules", "overtaker", "expected"),
    [
        (HOLDS, (200, 300, 400, 2, 1800, 2), (501, 501)),  # the rules would have started B at 101
        (NO_RULES, (200, 300, 400, 2, 1800, 2), (6001, 4102)),
        (HOLDS, (200, 300, 400, 2, 1800, 1), (6001, 4102)),  # B's own user
        (HOLDS, (50, 300, 400, 2, 1800, 2), (6001, 4102)),  # ahead of B
    ],
)
def test_a_job_that_was_overtaken_reserves_nothing(
    rules: RecordedRules, overtaker: Row, expected: tuple[int, int]
) -> None:
    """Holds: "a job behind it, of another user, started although the rules would have started this one".

    B is recorded to run on two nodes over [5000, 6000), and asks for them from 100 on. Where it is not held, the forked
    form starts it at 501, for its limit.
    """
    b = (100, 5000, 6000, 2, 3600, 1)
    assert starts(sorted([A, b, overtaker, job(500, 2, 3600, 3)]), rules) == expected


@pytest.mark.parametrize(
    ("ended", "users", "b_start", "start"),
    [
        (400, (1, 1, 1), 5000, 1403),  # as long as its user's jobs: a quarter of the limit
        (400, (1, 1, 2), 5000, 1403),  # as everybody's, for its user's are too few
        (400, (1, 1), 5000, 4103),  # too few of anybody: its limit
        (501, (1, 1, 1), 5000, 4103),  # the third had not ended when the log was left
        (400, (1, 1, 1), 800, 1401),  # the record ends it before
        (400, (1, 1, 1), 503, 1104),
    ],
)
def test_a_job_that_starts_early_runs_no_longer_than_like_jobs(
    ended: int, users: tuple[int, ...], b_start: int, start: int
) -> None:
    """The page: "no longer than like jobs ran, in the mean".

    All ended jobs ran for a quarter of their limits. B asks for the two nodes that A leaves and starts at 502 in the
    forked form, a second after J came, in truth at b_start, for 600 s.
    """
    ends = [*range(100, 99 + len(users)), ended]
    like: list[Row] = [(0, end - 100, end, 1, 400, user) for end, user in zip(ends, users, strict=True)]
    b, j = (501, b_start, b_start + 600, 2, 3600, 1), job(501, 1, 100, 3)
    assert starts([A, *like, b, j], NO_RULES)[1] == start


@pytest.mark.parametrize("b_start", [5000, NEVER])
@pytest.mark.parametrize(("max_jobs", "user", "start"), [(1, 1, 5601), (2, 1, 1403), (1, 3, 1403)])
def test_its_user_may_not_start_another_before_the_record_says_so(
    b_start: int, max_jobs: int, user: int, start: int
) -> None:
    """The page: "against its user's limits it counts until then all the same". As above; B ends in truth at 5600."""
    like: list[Row] = [(0, 200 + k, 300 + k, 1, 400, 1) for k in range(3)]
    b, j = (501, b_start, 5600, 2, 3600, 1), job(501, 1, 100, user)
    assert starts([A, *like, b, j], NO_RULES._replace(max_jobs=max_jobs))[1] == start


@pytest.mark.parametrize(
    ("siblings", "nodes", "limit", "user", "start"),
    [
        (1, 1, 3600, 1, 5001),
        (0, 1, 3600, 1, 501),
        (1, 1, 3600, 3, 501),
        (1, 1, 3599, 1, 501),  # B asks for a longer limit
    ],
)
def test_a_job_waits_for_its_users_held_jobs(siblings: int, nodes: int, limit: int, user: int, start: int) -> None:
    """Siblings: "its own user's held jobs ahead of it that ask for no more nodes and time than it does"."""
    b, overtaker = (100, 5000, 6000, 1, 3600, 1), (200, 300, 400, 1, 3600, 2)
    rules = HOLDS._replace(siblings=siblings)
    assert starts([A, b, overtaker, job(500, nodes, limit, user)], rules) == (start, start)


@pytest.mark.parametrize(
    ("stall", "nodes", "expected"),
    [
        (0, 1, (6001, 4302)),  # B is ahead and takes what is idle
        (300, 1, (701, 701)),  # at most three nodes are usable, so B waits for A and leaves one
        # Passes without an event are at 600 and 1200. B could have started since 101, so 499 s at the first of them,
        (499, 1, (701, 701)),
        (500, 1, (701, 4302)),  # 600 s at the job's own pass, when the forked form has left the log,
        (601, 1, (1200, 4302)),  # and over 601 s at the second.
        (300, 2, (6001, 8901)),
    ],
)
def test_a_job_that_nobody_overtook_shows_that_nodes_are_out(stall: int, nodes: int, expected: tuple[int, int]) -> None:
    """Nodes out: "fewer nodes are usable than thought, until more are in use (in the forked form for two hours)".

    B could have started on the two idle nodes at 101 and is recorded to run over [5000, 6000). Where it counts, the
    forked form starts it at 701, for its limit. In the last case that form starts it two hours after the submission,
    and it runs from 7900 to 8900.
    """
    b = (100, 5000, 6000, 2, 3600, 1)
    assert starts([A, b, job(700, nodes, 100, 3)], NO_RULES._replace(stall_s=stall)) == expected
