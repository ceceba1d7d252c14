"""Futures of pairs injected into a replay: against whole replays of what was drawn, and what they may not read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from features.futures.arrivals import WEEKS_S, cycles_s
from features.futures.draws import RUN, spread
from features.futures.run_times import ROOM, draw_run_s, history, like_runs
from features.futures.summary import BEYOND_S
from models.engine.local import each_here
from models.provisioning.futures.injected import Owners, cycles_within, injected_starts_ahead
from models.provisioning.futures.table import is_fresh
from models.provisioning.pairs import injected
from models.provisioning.pairs.injected import build_pairs
from models.provisioning.protocol import PairTable
from simulator.cluster import plain
from simulator.flat.replay import simulate
from simulator.workload import Workload
from tests.models.engine.pickled import each_pickled
from tests.models.provisioning.futures.generated import DAY, FIRST_S, HOUR

NODES, LIMIT_S, FUTURES = 4, 6 * HOUR, 5
MINUTE = 60


def busy_minutes(seed: int = 0, days: int = 10) -> tuple[Workload, Owners]:
    """Jobs of four users with two scripts each; all times are whole minutes, so that nothing ends between two ticks."""
    rng = np.random.default_rng(seed)
    count = 6 * days
    submit_s = np.sort(rng.integers(0, days * DAY // MINUTE, count)) * MINUTE + FIRST_S
    user, script = rng.integers(0, 4, count), rng.integers(0, 2, count)
    size = rng.integers(1, 4, count)
    limit_s = np.where(script == 0, 4 * HOUR, 12 * HOUR)
    run_s = np.where(script == 0, rng.integers(10, 240, count) * MINUTE, 12 * HOUR)
    return Workload(np.arange(count), submit_s, size, run_s, limit_s, 0 * submit_s), Owners(user, script + 2 * user)


def pairs(workload: Workload, scheduler: str, starts_s: list[int]) -> PairTable:
    build = plain(workload, scheduler=scheduler, capacity=NODES)
    return build_pairs(build, submits_s=np.array(starts_s), pair_nodes=2, limit_s=LIMIT_S, decision_s=1800)


def joined(*parts: Workload) -> tuple[Workload, np.ndarray]:
    """All those jobs in order, and where the rows of each part, one after the other, went."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Workload.__dataclass_fields__}
    order = np.lexsort((columns["job_id"], columns["submit_s"]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Workload(**columns).take(order), place


def one_job(job_id: int, submit_s: int) -> Workload:
    return Workload(*(np.array([value], np.int64) for value in (job_id, submit_s, 2, LIMIT_S, LIMIT_S, 0)))


def replayed(workload: Workload, scheduler: str) -> np.ndarray:
    return simulate(workload, scheduler=scheduler, capacity=NODES, kill_at_limit=True)


def by_whole_replays(workload: Workload, who: Owners, scheduler: str, table: PairTable, row: int) -> list[int]:
    """The starts of one decision: the whole trace is replayed with what was drawn in place of what came."""
    pair, now = int(table.pair_of[row]), int(table.decision_s[row])
    predecessor = one_job(10**9, int(table.submit_s[pair]))
    with_it, place = joined(workload, predecessor)
    start_s = replayed(with_it, scheduler)[place[:-1]]
    end_s = np.where(start_s >= 0, start_s + workload.run_s, 10**12)
    known_s = max(now, int(table.predecessor_start_s[pair]) + 1)  # P starts after what ends in that second
    known, ended = end_s < known_s, end_s < table.predecessor_end_s[pair]
    past = history(end_s[ended], workload.run_s[ended], workload.limit_s[ended], who.user[ended], who.name[ended])
    there = np.flatnonzero(workload.submit_s < now)
    drawn = np.zeros((len(workload), FUTURES), np.int64)
    for job in there:
        elapsed_s = now - int(start_s[job]) if 0 <= start_s[job] < now else 0
        share, weight, quantile = np.zeros(ROOM), np.zeros(ROOM), np.zeros(FUTURES)
        limit_s = int(workload.limit_s[job])
        count = like_runs(past, int(who.user[job]), int(who.name[job]), limit_s, elapsed_s, known_s, share, weight)
        spread(int(job), RUN, quantile)
        draw_run_s(share, weight, count, limit_s, elapsed_s, quantile, drawn[job])
        drawn[job] = workload.run_s[job] if known[job] else np.minimum(drawn[job], limit_s)
    last_s, found = int(table.predecessor_end_s[pair]) + BEYOND_S, []
    for k, cycle_s in enumerate(cycles_within(FUTURES, (now - int(workload.submit_s[0])) // DAY).tolist()):
        begun = replace(workload.take(there), run_s=drawn[there, k])
        again = begun.take(begun.submit_s >= now - cycle_s)
        later = [
            replace(again, submit_s=again.submit_s + turn * cycle_s, job_id=again.job_id + 10**6 * turn)
            for turn in range(1, 2 + (last_s - now) // cycle_s)
        ]
        coming, _ = joined(*later)
        every, place = joined(begun, predecessor, coming.take(coming.submit_s < last_s), one_job(10**9 + 1, now))
        start = int(replayed(every, scheduler)[place[-1]])
        found.append(last_s if start < 0 else min(start, last_s))
    return found


@pytest.mark.parametrize("scheduler", ["mirage", "easy", "conservative"])
def test_a_future_is_a_replay_of_what_was_drawn(scheduler: str) -> None:
    workload, who = busy_minutes()
    table = pairs(workload, scheduler, [FIRST_S + 3 * DAY, FIRST_S + 8 * DAY, FIRST_S + 8 * DAY + 4 * HOUR])
    starts = injected_starts_ahead(table, workload, who, scheduler=scheduler, capacity=NODES, futures=FUTURES)
    fresh = np.flatnonzero(is_fresh(table))
    assert (np.ptp(starts[fresh], axis=1) > 0).mean() > 0.5
    for row in fresh[::3]:
        assert starts[row].tolist() == by_whole_replays(workload, who, scheduler, table, int(row))


def test_nothing_that_happened_from_the_instant_on_is_read() -> None:
    """Jobs that come later are taken away, and those that have not ended run on: no future before changes."""
    workload, who = busy_minutes(seed=1)
    table = pairs(workload, "mirage", [FIRST_S + 6 * DAY])
    row = int(np.flatnonzero(is_fresh(table))[2])
    now = int(table.decision_s[row])
    with_it, place = joined(workload, one_job(10**9, int(table.submit_s[0])))
    start_s = replayed(with_it, "mirage")[place[:-1]]
    has_ended = (start_s >= 0) & (start_s + workload.run_s < now)
    kept = workload.submit_s < now
    known = replace(workload, run_s=np.where(has_ended, workload.run_s, workload.limit_s)).take(kept)
    assert (known.run_s != workload.run_s[kept]).any() and len(known) < len(workload)
    of_known = Owners(who.user[kept], who.name[kept])
    again = pairs(known, "mirage", [FIRST_S + 6 * DAY])
    np.testing.assert_array_equal(again.decision_s[: row + 1], table.decision_s[: row + 1])
    wanted = injected_starts_ahead(table, workload, who, scheduler="mirage", capacity=NODES, futures=FUTURES)
    found = injected_starts_ahead(again, known, of_known, scheduler="mirage", capacity=NODES, futures=FUTURES)
    np.testing.assert_array_equal(found[: row + 1], wanted[: row + 1])
    assert (found[row + 1 :] != wanted[row + 1 :]).any()


def test_the_same_whatever_the_engine_and_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, who = busy_minutes(seed=2)
    table = pairs(workload, "mirage", [FIRST_S + 4 * DAY, FIRST_S + 4 * DAY + HOUR, FIRST_S + 8 * DAY])
    one = injected_starts_ahead(table, workload, who, scheduler="mirage", capacity=NODES, futures=FUTURES)
    monkeypatch.setattr(injected, "CHUNK", 1)  # a pair each
    for engine in (partial(each_here, processes=1), partial(each_here, processes=2), each_pickled):
        other = injected_starts_ahead(
            table, workload, who, scheduler="mirage", capacity=NODES, futures=FUTURES, engine=engine
        )
        np.testing.assert_array_equal(one, other)
    backwards = table.take(np.array([2, 1, 0]))
    turned = injected_starts_ahead(backwards, workload, who, scheduler="mirage", capacity=NODES, futures=FUTURES)
    np.testing.assert_array_equal(turned[: table.offset[1]], one[table.offset[2] :])
    assert (one >= table.decision_s[:, None]).all()


def test_habits_of_users_count_where_the_log_tells_of_them() -> None:
    workload, who = busy_minutes(seed=3)
    table = pairs(workload, "mirage", [FIRST_S + 8 * DAY])
    nobody = Owners(0 * who.user, 0 * who.name)
    named, unnamed = (
        injected_starts_ahead(table, workload, each, scheduler="mirage", capacity=NODES, futures=FUTURES)
        for each in (who, nobody)
    )
    assert (named != unnamed).any()


def test_cycles_lie_within_what_there_is() -> None:
    assert cycles_within(16, 40).tolist() == cycles_s(16).tolist()
    short = cycles_within(16, 3)
    assert (short % DAY == 0).all() and short.max() == 3 * DAY and set(short.tolist()) == {DAY, 2 * DAY, 3 * DAY}
    assert set(WEEKS_S[:2]) <= set(cycles_within(16, 15).tolist())
    assert set(cycles_within(16, 0).tolist()) == {DAY}
