"""Futures of jobs submitted into a recorded cluster: what they read, what they are told, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bench.ahead_scenes import scene_of
from features.futures.played import starts_in_futures
from features.futures.summary import BEYOND_S
from models.engine.local import each_here
from models.provisioning.futures import recorded as recorded_futures
from models.provisioning.futures.recorded import HypotheticalJobs, play_futures, start_in_futures
from models.provisioning.futures.revealed import RevealedTruth
from models.provisioning.futures.table import is_fresh, starts_ahead, with_futures
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors, build_recorded_pairs
from simulator.recorded.parameters import Parameters, known_before
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from tests.models.engine.pickled import each_pickled
from tests.models.provisioning.futures.generated import DAY, FIRST_S, HOUR, busy

ALL = RevealedTruth(run_times=True, arrivals=True, holds=True)


@pytest.fixture(autouse=True)
def _rules() -> Iterator[None]:
    """Four nodes, three jobs a user, 500 points an hour, whatever was recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            recorded_pairs, "infer_parameters", lambda record, until_s: Parameters(0, 4, 3, None, 500.0, 1.0, 1.0, 0)
        )
        yield


def asked(record: RecordedTrace, at_s: int, count: int = 6) -> HypotheticalJobs:
    """Some jobs of one node and of two, submitted hours apart from `at_s` on."""
    place = np.arange(count)
    none = np.full(count, NONE)
    horizon_s = np.full(count, 3 * DAY)
    return HypotheticalJobs(
        at_s + 2 * HOUR * place, 1 + place % 2, none * 0 + 4 * HOUR, place % 4, none, none, horizon_s, none, none, none
    )


def test_nothing_recorded_from_the_instant_on_is_read() -> None:
    record, at_s = busy(), FIRST_S + 30 * DAY
    now = asked(record, at_s, count=1)
    known = known_before(record, at_s)
    assert len(known) < len(record) and (known.end_s == NEVER).any()
    np.testing.assert_array_equal(start_in_futures(record, now), start_in_futures(known, now))


def test_the_same_whatever_the_threads_and_the_company() -> None:
    record, at_s = busy(), FIRST_S + 27 * DAY + 20 * HOUR  # over a Monday
    all_of_them = asked(record, at_s, count=8)
    together = start_in_futures(record, all_of_them, engine=partial(each_here, processes=2))
    for engine in (partial(each_here, processes=1), each_pickled):
        np.testing.assert_array_equal(together, start_in_futures(record, all_of_them, engine=engine))
    third = HypotheticalJobs(
        **{name: getattr(all_of_them, name)[2:3] for name in HypotheticalJobs.__dataclass_fields__}
    )
    np.testing.assert_array_equal(together[2:3], start_in_futures(record, third))
    assert (together > all_of_them.at_s[:, None]).all() and (together <= (all_of_them.at_s + 3 * DAY)[:, None]).all()
    assert len({tuple(row) for row in together.tolist()}) > 4 and (np.ptp(together, axis=1) > 0).any()


def test_told_the_truth_all_futures_are_the_one_that_came() -> None:
    record, at_s = busy(), FIRST_S + 30 * DAY
    starts = start_in_futures(record, asked(record, at_s), revealed=ALL)
    assert (np.ptp(starts, axis=1) == 0).all()


def test_what_came_in_truth_comes_once() -> None:
    """Where the log ends nobody comes any more, and the job starts when those before it are gone."""
    record = busy()
    wanted = asked(record, int(record.submit_s[-1]) - 6 * HOUR)
    starts = start_in_futures(record, wanted, revealed=ALL, futures=1)[:, 0]
    assert (starts > wanted.at_s).all() and (starts < record.end_s.max() + 2 * DAY).all()


def test_a_job_of_the_record_sees_who_came_in_its_second() -> None:
    """Told the truth it starts when it did; of three alike submitted in one second each waits for those before it."""
    record = busy()
    row = np.flatnonzero(record.submit_s > FIRST_S + 29 * DAY)[:40]
    at_s = record.submit_s.copy()
    at_s[row[0] : row[0] + 3] = at_s[row[0]]
    record = replace(record, submit_s=at_s)
    none = np.full(len(row), NONE)
    of = (record.submit_s[row], record.size[row], record.limit_s[row], record.user[row], none, record.priority[row])
    wanted = HypotheticalJobs(*of, np.full(len(row), 5 * DAY), none, none, row)
    told_s, blind_s = start_in_futures(record, wanted, revealed=ALL, futures=1)[:, 0], start_in_futures(record, wanted)
    error_s = np.abs(told_s - record.start_s[row])
    blind_error_s = np.abs(np.median(blind_s, axis=1) - record.start_s[row])
    assert np.median(error_s) < 120 and error_s.mean() < 0.5 * blind_error_s.mean()
    beside_s = start_in_futures(record, replace(wanted, row=none), revealed=ALL, futures=1)[:, 0]
    assert beside_s[1] == beside_s[2] == beside_s[0] == told_s[0] and told_s[2] > told_s[1] > told_s[0] + HOUR


def pairs(record: RecordedTrace) -> Predecessors:
    row = np.flatnonzero((record.limit_s == 12 * HOUR) & (record.submit_s > FIRST_S + 28 * DAY))[:6]
    return Predecessors(row, np.full(len(row), NONE))


def test_told_the_truth_a_future_is_what_the_world_does() -> None:
    """But for what the world goes on to learn of nodes and for passes that come later: minutes here."""
    record = busy()
    table = build_recorded_pairs(record, pairs(record), decision_s=1800)
    truth_s = np.minimum(table.successor_start_s, (table.predecessor_end_s[table.pair_of] + BEYOND_S))
    told_s = starts_ahead(table, record, pairs(record), revealed=ALL, futures=1)[:, 0]
    blind_s = np.median(starts_ahead(table, record, pairs(record)), axis=1)
    fresh = is_fresh(table)
    told_error_s, blind_error_s = (np.abs(one - truth_s)[fresh].mean() for one in (told_s, blind_s))
    assert told_error_s < 0.2 * blind_error_s
    assert np.median(np.abs(told_s - truth_s)[fresh]) < 120


def test_between_two_looks_futures_carry_over() -> None:
    record = busy()
    table = build_recorded_pairs(record, pairs(record), decision_s=600)
    fresh, starts = is_fresh(table), starts_ahead(table, record, pairs(record), futures=4)
    assert fresh[table.offset[:-1]].all() and fresh[table.last].all()
    assert 0.2 < fresh.mean() < 0.5
    for row in np.flatnonzero(~fresh):
        np.testing.assert_array_equal(starts[row], np.maximum(starts[row - 1], table.decision_s[row]))
    seen = with_futures(table, starts)
    assert seen.ahead.shape == (len(fresh), 7) and seen.digest != table.digest


@pytest.mark.parametrize(("days", "delay_s"), [(29, 0), (31, 0), (29, 2 * HOUR), (31, 7 * HOUR)])
def test_an_agent_plays_the_futures_of_the_table(days: int, delay_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled from the record and in plain Python from what is seen at the instant: the same starts to the second."""
    record = busy(seed=days)
    wanted = asked(record, FIRST_S + days * DAY)
    monkeypatch.setattr(recorded_futures, "play_futures", partial(play_futures, delay_s=delay_s))
    compiled = start_in_futures(record, wanted, futures=5)
    scenes = [scene_of(record, wanted, d) for d in range(len(wanted))]
    later = [
        replace(one.successor, submit_s=one.now_s + delay_s, key=one.successor.key - 500 * delay_s) for one in scenes
    ]
    played = np.stack(
        [starts_in_futures(replace(one, successor=job), 5) for one, job in zip(scenes, later, strict=True)]
    )
    assert (played > wanted.at_s[:, None] + delay_s).all()
    np.testing.assert_array_equal(played, compiled)
    assert (np.ptp(played, axis=1) > 0).any()
