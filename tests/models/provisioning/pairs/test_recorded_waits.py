"""The recorded-wait world against its definition in plain Python, and what a drawn wait may hang on."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.provisioning.pairs import recorded_waits
from models.provisioning.pairs.recorded import Predecessors, decision_instants
from models.provisioning.pairs.recorded_waits import (
    CUT,
    LEAST_NEIGHBOURS,
    MOST_OF_A_USER,
    WIDTHS,
    leave_one_out,
    neighbours,
    shares,
    with_recorded_waits,
)
from models.provisioning.protocol import NONE, PairTable
from models.provisioning.scenario import CALIBRATED, RECORDED_WAIT, Scenario
from models.study import pair_tables
from models.study.windows import Window
from simulator.recorded.record import NEVER, RecordedTrace
from tests.models.toy_study import toy_study
from traces.units import DAY_S, HOUR_S


def random_record(seed: int, jobs: int = 400, users: int = 40) -> RecordedTrace:
    """Eight days of jobs, a few users with most of them; one in ten was cancelled in the queue."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 8 * DAY_S, jobs))
    start_s = submit_s + rng.integers(0, 20 * HOUR_S, jobs)
    limit_s = rng.choice([1, 12, 24, 48], jobs) * HOUR_S
    end_s = start_s + limit_s
    start_s[rng.random(jobs) < 0.1] = NEVER
    user = np.minimum((users * rng.random(jobs) ** 2).astype(np.int64), users - 1)
    size = rng.choice([1, 2, 4, 16], jobs)
    return RecordedTrace(
        submit_s, start_s, end_s, size, limit_s, user, np.zeros(jobs, np.int64), [str(k) for k in range(jobs)]
    )


def plain_shares(record: RecordedTrace, now: int, nodes: int, limit_s: int, but: set[int]) -> dict[int, float]:
    """Share of each neighbour by the definition, one job at a time; {} where no share of a user can be small enough."""
    weight: dict[int, float] = {}
    for row in range(len(record)):
        apart = (
            math.log(record.size[row] / nodes) / WIDTHS.log_nodes,
            math.log(record.limit_s[row] / limit_s) / WIDTHS.log_limit,
            (record.submit_s[row] - now) / WIDTHS.time_s,
        )
        if row not in but and record.start_s[row] < NEVER and all(abs(a) <= CUT for a in apart):
            weight[row] = math.exp(-sum(a * a for a in apart) / 2)
    for _ in range(10_000):  # what a user has too much is taken away, until nobody has
        total = sum(weight.values())
        of_user: dict[int, float] = defaultdict(float)
        for row, value in weight.items():
            of_user[record.user[row]] += value
        if len(of_user) < 1 / MOST_OF_A_USER:
            return {}
        if all(value <= MOST_OF_A_USER * total * (1 + 1e-12) for value in of_user.values()):
            return {row: value / total for row, value in weight.items()}
        factor = {user: min(1.0, MOST_OF_A_USER * total / value) for user, value in of_user.items()}
        weight = {row: value * factor[record.user[row]] for row, value in weight.items()}
    raise AssertionError("the shares did not settle")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("nodes", "limit_s"), [(1, 48 * HOUR_S), (4, 12 * HOUR_S)])
def test_shares_are_those_of_the_definition(seed: int, nodes: int, limit_s: int) -> None:
    record = random_record(seed)
    at_s = np.array([DAY_S, 3 * DAY_S + 7, 7 * DAY_S])
    found = neighbours(record, at_s, nodes, limit_s, np.array([3, 150]))
    for d, now in enumerate(at_s):
        plain = plain_shares(record, int(now), nodes, limit_s, {3, 150})
        wait_s = (record.start_s - record.submit_s)[list(plain)]
        expected = sorted(zip(wait_s.tolist(), plain.values(), strict=True))
        weighs = found.share[d] > 0
        got = sorted(zip(found.wait_s[weighs].tolist(), found.share[d][weighs], strict=True))
        assert [wait for wait, _ in got] == [wait for wait, _ in expected]
        assert [share for _, share in got] == pytest.approx([share for _, share in expected], rel=1e-6)
        squares = sum(share**2 for share in plain.values())
        assert found.effective[d] == pytest.approx(1 / squares if plain else 0.0)


def one_each(apart_s: list[int], size: list[int], limit_h: list[int]) -> RecordedTrace:
    """Jobs of as many users, submitted so long after the tenth day; each waits a minute longer than the one before."""
    count = len(apart_s)
    submit_s, wait_s = 10 * DAY_S + np.array(apart_s), 60 * np.arange(count)
    limit_s, none = np.array(limit_h) * HOUR_S, np.zeros(count, np.int64)
    return RecordedTrace(
        submit_s,
        submit_s + wait_s,
        submit_s + wait_s + limit_s,
        np.array(size),
        limit_s,
        np.arange(count),
        none,
        [str(k) for k in range(count)],
    )


def test_weights_by_hand() -> None:
    """A factor of two in nodes or limit is ln 2 / 0.7 standard deviations, 12 h are one, and from three on none weighs.

    Of twenty jobs just like the successor (4 nodes, 12 h) and, in order of submission, one 12 h before, six at the same
    time (8 nodes; 24 h; 32, 36, 1 and 4 nodes with 96 h), one 36 h after, and one a second later.
    """
    apart_s = [-12 * HOUR_S, *[0] * 26, 36 * HOUR_S, 36 * HOUR_S + 1]
    size = [4, *[4] * 20, 8, 4, 32, 36, 1, 4, 4, 4]
    limit_h = [12, *[12] * 20, 12, 24, 12, 12, 12, 96, 12, 12]
    found = neighbours(one_each(apart_s, size, limit_h), np.array([10 * DAY_S]), 4, 12 * HOUR_S, np.array([NONE]))
    share = dict(zip((found.wait_s // 60).tolist(), found.share[0], strict=True))
    two, four, eight = (math.exp(-((math.log(factor) / 0.7) ** 2) / 2) for factor in (2, 4, 8))
    weights = {0: math.exp(-0.5), 21: two, 22: two, 23: eight, 24: 0.0, 25: four, 26: eight, 27: math.exp(-4.5)}
    assert {row: share.get(row, 0.0) / share[1] for row in weights} == pytest.approx(weights)
    assert share.get(28, 0.0) == 0.0
    assert [share[row] for row in range(1, 21)] == pytest.approx([share[1]] * 20) and sum(share.values()) == (
        pytest.approx(1.0)
    )


@pytest.mark.parametrize(("others", "is_drawn"), [(29, False), (30, True)])
def test_thirty_effective_neighbours_are_enough(others: int, is_drawn: bool) -> None:
    record = one_each([0] * (others + 1), [4] * (others + 1), [12] * (others + 1))
    assert (leave_one_out(record, np.array([3]))[0] != NONE) == is_drawn


def test_no_user_has_more_than_a_tenth() -> None:
    weight = np.array([[100.0, 100.0, *[1.0] * 11], [5.0, 5.0, *[0.0] * 11]])
    user = np.array([0, 0, *range(1, 12)])
    share = shares(weight, user)
    assert share[0, :2] == pytest.approx([0.05, 0.05])
    assert share[0, 2:] == pytest.approx([0.9 / 11] * 11)
    assert not share[1].any()  # one user alone cannot have a tenth
    assert shares(weight / 10_000, user) == pytest.approx(share)  # a share is of what there is


def test_the_quantile_says_which_is_drawn() -> None:
    """Of each decision by its own shares; the sum of ten tenths is a little under 1."""
    of = recorded_waits.Neighbours(np.array([10, 20, 30]), np.array([[0.5, 0.25, 0.25]] * 4), np.zeros(4))
    assert of.drawn_s(np.array([0.0, 0.49, 0.5, 0.999])).tolist() == [10, 10, 20, 30]
    other = replace(of, share=np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    assert other.drawn_s(np.array([0.4, 0.4])).tolist() == [10, 20]
    tenths = recorded_waits.Neighbours(np.arange(10), np.full((1, 10), 0.1), np.zeros(1))
    assert tenths.drawn_s(np.array([np.nextafter(1.0, 0.0)])).tolist() == [9]


def table_of(record: RecordedTrace, predecessors: Predecessors) -> PairTable:
    row = predecessors.row
    decision_s, offset = decision_instants(record.start_s[row], record.end_s[row], HOUR_S)
    return PairTable(
        record.size[row],
        record.limit_s[row],
        record.submit_s[row],
        record.start_s[row],
        record.end_s[row],
        np.full(len(row), NONE),
        offset,
        decision_s,
        decision_s + 10 * DAY_S,
        np.random.default_rng(0).random((len(decision_s), 3)).astype(np.float32),
    )


def predecessors_of(record: RecordedTrace) -> Predecessors:
    """Every tenth job that ran for 12 to 24 h and ended while others came, with a job of its user after it."""
    long = record.ran & (record.limit_s > HOUR_S) & (record.limit_s < 2 * DAY_S) & (record.end_s < 8 * DAY_S)
    row = np.flatnonzero(long)[::10]
    following = [np.flatnonzero((record.user == record.user[k]) & (record.submit_s > record.start_s[k])) for k in row]
    return Predecessors(row, np.array([rows[0] if len(rows) else NONE for rows in following]))


def test_a_successor_waits_as_long_as_one_of_its_neighbours() -> None:
    record = random_record(1)
    predecessors = predecessors_of(record)
    table = table_of(record, predecessors)
    drawn = with_recorded_waits(table, record, predecessors)
    assert 0 < len(drawn) <= len(table)
    assert with_recorded_waits(table, record, predecessors).digest == drawn.digest
    for pair in range(len(drawn)):
        (of,) = np.flatnonzero((table.submit_s == drawn.submit_s[pair]) & (table.limit_s == drawn.limit_s[pair]))
        own = {int(predecessors.row[of]), int(predecessors.next_row[of])}
        at = slice(drawn.offset[pair], drawn.offset[pair + 1])
        assert np.array_equal(drawn.observations[at], table.observations[table.offset[of] : table.offset[of + 1]])
        for now, start in zip(drawn.decision_s[at], drawn.successor_start_s[at], strict=True):
            shares_of = plain_shares(record, int(now), drawn.pair_nodes[pair], drawn.limit_s[pair], own)
            assert start - now in (record.start_s - record.submit_s)[list(shares_of)]


def test_the_pairs_own_waits_never_count() -> None:
    """Neither that of the predecessor nor that of the job with which its user went on, at no quantile."""
    record = random_record(2)
    predecessors = predecessors_of(record)
    before = with_recorded_waits(table_of(record, predecessors), record, predecessors)
    for pair in range(len(predecessors.row)):
        one = Predecessors(predecessors.row[[pair]], predecessors.next_row[[pair]])
        own = [row for row in (one.row[0], one.next_row[0]) if row != NONE]
        start_s = record.start_s.copy()
        start_s[own] += 5 * DAY_S
        table = table_of(record, one)
        altered = with_recorded_waits(table, replace(record, start_s=start_s), one)
        assert altered.digest == with_recorded_waits(table, record, one).digest
    assert len(before)


def test_where_too_few_are_alike_the_pair_is_left_out() -> None:
    record = random_record(3)
    predecessors = predecessors_of(record)
    table = table_of(record, predecessors)
    least = [
        neighbours(
            record,
            table.decision_s[table.offset[k] : table.offset[k + 1]],
            table.pair_nodes[k],
            table.limit_s[k],
            np.array([predecessors.row[k], predecessors.next_row[k]]),
        ).effective.min()
        for k in range(len(table))
    ]
    enough = np.array(least) >= LEAST_NEIGHBOURS
    assert 0 < enough.sum() < len(table)
    drawn = with_recorded_waits(table, record, predecessors)
    assert drawn.submit_s.tolist() == table.submit_s[enough].tolist()


def test_leave_one_out_never_sees_the_job_itself() -> None:
    record = random_record(4, jobs=900)
    rows = np.flatnonzero(record.ran & (record.size == 1))[100:140]
    drawn_s = leave_one_out(record, rows)
    assert (drawn_s != NONE).sum() > 20
    for k, row in enumerate(rows):
        start_s = record.start_s.copy()
        start_s[row] += 30 * DAY_S
        assert leave_one_out(replace(record, start_s=start_s), rows[k : k + 1])[0] == drawn_s[k]
    far = replace(record, size=np.where(np.arange(len(record)) == rows[0], 10_000, record.size))
    assert leave_one_out(far, rows[:1]).tolist() == [NONE]


def test_a_study_takes_the_observations_of_the_calibrated_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = random_record(5)
    predecessors = predecessors_of(record)
    observed = table_of(record, predecessors)
    study, window = toy_study(tmp_path), Window(0, 8 * DAY_S, HOUR_S)
    scenario = Scenario("toy", 20, world=RECORDED_WAIT)
    monkeypatch.setattr(pair_tables, "predecessors_in", lambda *_: (record, predecessors))
    monkeypatch.setattr(pair_tables, "_recorded", lambda *_: observed)
    drawn = pair_tables.pair_table(study.data, study.workload, scenario, window)
    assert drawn.digest == with_recorded_waits(observed, record, predecessors).digest
    calibrated = pair_tables.pair_table(study.data, study.workload, replace(scenario, world=CALIBRATED), window)
    assert calibrated.digest == observed.digest
    left_out = pair_tables.pairs_left_out(study.data, study.workload, scenario, window)
    assert left_out == len(observed) - len(drawn) > 0
