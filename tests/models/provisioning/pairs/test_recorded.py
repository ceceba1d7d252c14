"""Recorded pairs against the slow twin of the forked form: each decision a simulation of its own from the record."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from features.observe import AT, RECENT
from features.snapshot import NO_LIMIT
from models.engine.local import each_here
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors, build_recorded_pairs, decision_instants
from models.provisioning.protocol import NONE, PairTable
from simulator.recorded.calibration.judge import ALL
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.parameters import Parameters, jobs_of, rules_of
from simulator.recorded.record import NEVER, RecordedTrace
from tests.models.engine.pickled import each_pickled
from tests.simulator.recorded.cases import NODES, records, twins
from tests.twins.recorded import PlainRecordedJob, forked_starts
from traces.units import DAY_S, HOUR_S

DECISION_S = 250
P = Predecessors(np.array([1]), np.array([3]))  # of `simple`


def parameters(**changes: Any) -> Parameters:
    """On NODES nodes: two jobs a user, and 500 points an hour."""
    plain = Parameters(0, NODES, 2, None, 500.0, 1.0, 1.0, 0)
    return replace(plain, **changes)


def predecessors(record: RecordedTrace) -> Predecessors:
    """Every other job that ran, each followed by the next row where that ran later."""
    rows = np.flatnonzero(record.ran)[::2]
    following = np.minimum(rows + 1, len(record) - 1)
    goes_on = (record.submit_s[following] > record.start_s[rows]) & record.ran[following]
    return Predecessors(rows, np.where(goes_on, following, NONE))


def built(record: RecordedTrace, fitted: Parameters, **options: Any) -> PairTable:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: fitted)
        return build_recorded_pairs(record, options.pop("of", predecessors(record)), decision_s=DECISION_S, **options)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=records())
def test_every_start_is_that_of_the_twin(case: tuple[RecordedTrace, Any]) -> None:
    record, _ = case
    fitted = parameters()
    table, chosen = built(record, fitted), predecessors(record)
    logged = twins(record, jobs_of(record, fitted.points_per_hour))
    first_s, slope = int(record.submit_s[0]), 500.0
    for pair, (row, following) in enumerate(zip(chosen.row, chosen.next_row, strict=True)):
        for d in range(int(table.offset[pair]), int(table.offset[pair + 1])):
            now = int(table.decision_s[d])
            key = int(HOUR_S * record.priority[row] + np.rint(-slope * (now - first_s)))
            limit_s, size = int(record.limit_s[row]), int(record.size[row])
            job = PlainRecordedJob(len(logged), now, 0, limit_s, size, limit_s, int(record.user[row]), key)
            others = [one for one in logged if one.row != following or one.submit_s < now]
            starts, _ = forked_starts(others, [job], rules_of(fitted, ALL))
            assert table.successor_start_s[d] == starts.get(job, now + HORIZON_S)


def simple(other_nodes: int = 4) -> RecordedTrace:
    """Six nodes, as the first job shows. P of user 0 has two of them from 100 to 1100, user 1 others from 200 on.

    User 0 went on with a job of high priority, submitted at 900, which waited until 1700 for a reason of its own.
    """
    columns = {
        "submit_s": (0, 40, 190, 900),
        "start_s": (0, 100, 200, 1700),
        "end_s": (30, 1100, 5000, 2700),
        "size": (6, 2, other_nodes, 2),
        "limit_s": (100, 1000, 9000, 1000),
        "user": (2, 0, 1, 0),
        "priority": (0, 0, 0, 9000),
    }
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    return RecordedTrace(**arrays, job_key=["wide", "p", "other", "next"])


def test_a_table_holds_what_the_record_says_of_each_pair() -> None:
    table = built(simple(), parameters(), of=P)
    assert table.pair_nodes.tolist() == [2] and table.limit_s.tolist() == [1000]
    assert table.predecessor_start_s.tolist() == [100] and table.predecessor_end_s.tolist() == [1100]
    assert table.submit_s.tolist() == [40] and table.user_start_s.tolist() == [1700]
    assert table.decision_s.tolist() == [350, 600, 850, 1100]
    first = table.observations[0]
    assert first[AT.remaining_h] == pytest.approx(750 / 3600)
    assert first[AT.predecessor_wait_h] == pytest.approx(60 / 3600)
    assert (first[AT.successor_nodes], first[AT.running_jobs], first[AT.usable_nodes]) == (2, 2, 6)


def record_of(**columns: tuple[int, ...]) -> RecordedTrace:
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    return RecordedTrace(**arrays, job_key=[str(k) for k in range(len(columns["user"]))])


def test_each_pair_observes_its_own_predecessor_and_its_users_place() -> None:
    """Two run side by side; user 1 has a job in the queue, seen from the second after its submission on.

    That job is ahead of user 1's successor by its priority; the successor of a third pair would be ahead of both.
    """
    record = record_of(
        submit_s=(0, 40, 190, 349, 5000),
        start_s=(0, 100, 200, 5000, 6000),
        end_s=(30, 1100, 1200, 6000, 7000),
        size=(6, 2, 4, 4, 1),
        limit_s=(100, 1000, 1500, 700, 700),
        user=(2, 0, 1, 1, 2),
        priority=(0, 0, 0, 5000, 9000),
    )
    table = built(record, parameters(), of=Predecessors(np.array([1, 2, 4]), np.full(3, NONE)))
    assert table.decision_s[:8].tolist() == [350, 600, 850, 1100, 450, 700, 950, 1200]
    assert table.observations[:8, AT.pending_jobs].tolist() == [1] * 8
    found = [AT.predecessor_elapsed_h, AT.predecessor_wait_h, AT.successor_nodes, AT.successor_limit_h]
    seen = table.observations[[0, 4]][:, [*found, AT.own_pending_jobs]] * np.array([3600, 3600, 1, 3600, 1])
    np.testing.assert_allclose(seen, [[250, 60, 2, 1000, 0], [250, 10, 4, 1500, 1]], rtol=1e-5)


def test_a_successor_that_never_starts_counts_as_started_after_ten_days() -> None:
    """One job a user, and another of the user's runs for twenty days."""
    record = record_of(
        submit_s=(0, 40, 50),
        start_s=(0, 100, 100),
        end_s=(30, 1100, 20 * DAY_S),
        size=(6, 2, 1),
        limit_s=(100, 1000, 30 * DAY_S),
        user=(2, 0, 0),
        priority=(0, 0, 0),
    )
    table = built(record, parameters(max_jobs=1), of=Predecessors(np.array([1]), np.array([NONE])))
    assert (table.successor_start_s - table.decision_s).tolist() == [10 * DAY_S] * 4


def test_who_did_not_go_on_or_was_cancelled_in_the_queue_has_no_start_of_its_own() -> None:
    record = simple()
    record.start_s[3] = NEVER
    table = built(record, parameters(), of=Predecessors(np.array([1, 2]), np.array([3, NONE])))
    assert table.user_start_s.tolist() == [NONE, NONE]
    assert built(simple(), parameters(), of=Predecessors(np.array([2]), np.array([NONE]))).user_start_s == [NONE]


def test_rules_are_those_of_the_monday_before_a_decision_from_the_span_that_is_asked_for() -> None:
    """P runs over a Monday's first instant: one decision lies before it, one on it, one after it."""
    monday_s = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp())
    last_s = monday_s - 7 * DAY_S
    submit_s = (last_s - 1, last_s, monday_s - 7500)
    record = record_of(
        submit_s=submit_s,
        start_s=(*submit_s[:2], monday_s - 7200),
        end_s=(last_s, last_s + 60, monday_s + 3600),
        size=(6, 1, 2),
        limit_s=(100, 100, 10_800),
        user=(0, 1, 2),
        priority=(0, 0, 0),
    )
    asked: list[tuple[int, list[int]]] = []

    def fitted(learned: RecordedTrace, until_s: int) -> Parameters:
        asked.append((until_s, learned.submit_s.tolist()))
        return parameters()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", fitted)
        of = Predecessors(np.array([2]), np.array([NONE]))
        table = build_recorded_pairs(record, of, decision_s=3600, fit_span_s=7 * DAY_S)
    assert (table.decision_s - monday_s).tolist() == [-3600, 0, 3600]
    different = [one for at, one in enumerate(asked) if one not in asked[:at]]
    assert sorted(different) == [(last_s, list(submit_s)), (monday_s, list(submit_s[1:]))]


def test_the_job_that_the_user_went_on_with_is_passed_over() -> None:
    """Six nodes are taken until P ends, then the successor has two of them.

    At the last decision the user's own job is there already. It goes first, 599 s early, and runs for its limit.
    """
    assert built(simple(), parameters(), of=P).successor_start_s.tolist() == [1101, 1101, 1101, 2102]


def test_the_successor_waits_for_no_held_job_of_its_user() -> None:
    """The user has a chain in the queue, submitted at 150 and held by a dependency: the other's start at 200 shows it.

    It starts at 1300, in truth. Jobs of the record would wait for it; of the successor nobody said that it depends.
    """
    columns = {
        "submit_s": (0, 40, 150, 190),
        "start_s": (0, 100, 1300, 200),
        "end_s": (30, 1100, 2300, 5000),
        "size": (6, 2, 2, 4),
        "limit_s": (100, 1000, 1000, 9000),
        "user": (2, 0, 0, 1),
        "priority": (0, 0, 0, 0),
    }
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    record = RecordedTrace(**arrays, job_key=["wide", "p", "chain", "other"])
    table = built(record, parameters(), of=Predecessors(np.array([1]), np.array([NONE])))
    assert table.successor_start_s.tolist() == [1101, 1101, 1101, 1101]
    assert table.observations[:, AT.held_jobs].tolist() == [1, 1, 1, 1]


def test_the_successor_counts_against_its_users_limits() -> None:
    """Two nodes are free beside P. With one job a user the successor starts when P has ended, not beside it."""
    record = simple(other_nodes=2)
    assert built(record, parameters(max_jobs=None), of=P).successor_start_s.tolist() == [351, 601, 851, 1101]
    limited = built(record, parameters(max_jobs=1), of=P)
    assert limited.successor_start_s.tolist() == [1101, 1101, 1101, 2701]  # its own job counts until its recorded end
    assert limited.observations[0, AT.headroom_jobs] == 0
    assert limited.observations[0, AT.headroom_wait_h] == pytest.approx(750 / 3600)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=records())
def test_threads_change_nothing(case: tuple[RecordedTrace, Any]) -> None:
    """Also where the decisions lie in several weeks."""
    record, _ = case
    stretch = 400  # 40 * 100 s become over two weeks
    submit_s, start_s, end_s = (
        np.where(column < NEVER, column * stretch, NEVER) for column in (record.submit_s, record.start_s, record.end_s)
    )
    long = replace(record, submit_s=submit_s, start_s=start_s, end_s=end_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: parameters())
        one, two, other = (
            build_recorded_pairs(long, predecessors(long), decision_s=90_000, engine=engine)
            for engine in (partial(each_here, processes=1), partial(each_here, processes=2), each_pickled)
        )
    assert one.digest == two.digest == other.digest


def test_decisions_are_counted_back_from_the_exact_end() -> None:
    instants, offset = decision_instants(np.array([0, 10]), np.array([25, 20]), 10)
    assert instants.tolist() == [5, 15, 25, 20] and offset.tolist() == [0, 3, 4]


def test_no_predecessor_makes_an_empty_table() -> None:
    none = np.zeros(0, np.int64)
    assert len(build_recorded_pairs(simple(), Predecessors(none, none), decision_s=60)) == 0


def test_the_world_and_the_observation_mean_the_same_by_no_limit() -> None:
    from simulator import cluster

    assert cluster.NO_LIMIT == NO_LIMIT and RECENT > 0
