"""The pair table against plain replays: P and S written into the trace, and the snapshot taken by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.observe import FEATURES, RECENT, observe
from features.snapshot import NO_LIMIT, Snapshot
from models.engine.local import each_here
from models.engine.work import Engine
from models.provisioning.pairs import injected as module
from models.provisioning.pairs.injected import build_pairs, load, save
from models.provisioning.protocol import NONE, PairTable
from simulator.cluster import NO_ROOM, plain
from simulator.flat.replay import simulate
from simulator.workload import Workload
from tests.models.engine.pickled import each_pickled
from traces.errors import InputError

CAPACITY, LIMIT_S, NODES = 12, 6 * 3600, 4


def trace(seed: int, jobs: int = 260) -> Workload:
    """A busy random trace: load a little under one, limits above run times."""
    rng = np.random.default_rng(seed)
    size = rng.choice([1, 1, 2, 4, 8], jobs)
    run = rng.integers(300, 3 * 3600, jobs)
    gap = 0.95 * (size * run).mean() / CAPACITY
    submit = 1_700_000_000 + np.cumsum(rng.exponential(gap, jobs)).astype(np.int64)
    limit = run + rng.integers(0, 2 * 3600, jobs)
    i64 = np.int64
    return Workload(np.arange(jobs), submit, size.astype(i64), run, limit, np.full(jobs, -1, i64))


def with_jobs(base: Workload, *submits_s: int) -> tuple[Workload, list[int]]:
    """The trace with NODES-wide full-limit jobs at the given times, and their rows."""
    n = len(base)
    columns = {
        "job_id": np.append(base.job_id, n + np.arange(len(submits_s))),
        "submit_s": np.append(base.submit_s, submits_s),
        "size": np.append(base.size, [NODES] * len(submits_s)),
        "run_s": np.append(base.run_s, [LIMIT_S] * len(submits_s)),
        "limit_s": np.append(base.limit_s, [LIMIT_S] * len(submits_s)),
        "start_s": np.append(base.start_s, [-1] * len(submits_s)),
    }
    order = np.lexsort((columns["job_id"], columns["submit_s"]))
    merged = Workload(**{name: column[order] for name, column in columns.items()})
    return merged, [int(np.flatnonzero(order == n + k)[0]) for k in range(len(submits_s))]


def replay(workload: Workload, scheduler: str) -> np.ndarray:
    return simulate(workload, scheduler=scheduler, capacity=CAPACITY, kill_at_limit=True)


Built = tuple[Workload, PairTable, str]  # the trace, its pairs, the scheduler


@pytest.fixture(scope="module", params=["mirage", "easy", "fifo", "conservative"])
def built(request: pytest.FixtureRequest) -> Built:
    base = trace(3)
    submits = base.submit_s[40] + np.arange(6) * 4 * 3600 + 7
    table = build_pairs(
        plain(base, scheduler=request.param, capacity=CAPACITY), submits_s=submits, pair_nodes=NODES, limit_s=LIMIT_S
    )
    return base, table, request.param


def test_predecessor_and_successor_start_as_if_written_into_the_trace(built: Built) -> None:
    base, table, scheduler = built
    for pair in range(len(table)):
        for row in (table.offset[pair], table.offset[pair] + 17, table.last[pair]):
            workload, (first, second) = with_jobs(base, int(table.submit_s[pair]), int(table.decision_s[row]))
            starts = replay(workload, scheduler)
            assert starts[first] == table.predecessor_start_s[pair]
            if row != table.offset[pair]:  # at P's start the replay may still start S in the very pass of P
                assert starts[second] == table.successor_start_s[row]


def test_decisions_run_from_the_start_of_p_to_its_exact_end(built: Built) -> None:
    _, table, _ = built
    assert (table.decision_s[table.offset[:-1]] == table.predecessor_start_s).all()
    assert (table.decision_s[table.last] == table.predecessor_end_s).all()
    assert (table.predecessor_end_s - table.predecessor_start_s == LIMIT_S).all()
    assert (table.successor_start_s >= table.decision_s).all()
    assert (table.gap_h[table.last] >= 0).all()


def test_observation_is_what_a_snapshot_taken_by_hand_shows(built: Built) -> None:
    base, table, scheduler = built
    for pair in range(0, len(table), 2):
        workload, (first,) = with_jobs(base, int(table.submit_s[pair]))
        starts = replay(workload, scheduler)
        ends = starts + np.minimum(workload.run_s, workload.limit_s)
        for row in (table.offset[pair] + 5, table.offset[pair] + 20, table.last[pair]):
            now = int(table.decision_s[row])
            seen = observe(snapshot(workload, starts, ends, now, first, scheduler))
            np.testing.assert_allclose(table.observations[row], seen, rtol=1e-5, atol=1e-5, err_msg=str(FEATURES))


def snapshot(w: Workload, starts: np.ndarray, ends: np.ndarray, now: int, predecessor: int, scheduler: str) -> Snapshot:
    """What was visible just before `now`. Under `mirage` an end is seen, and its nodes are free, at the next minute."""
    tick = 60 if scheduler == "mirage" else 1
    seen_submit = -(-w.submit_s // tick) * tick
    seen_end = -(-ends // tick) * tick
    pending = np.flatnonzero((seen_submit < now) & (starts >= now))
    if scheduler == "mirage":
        pending = pending[np.argsort(w.submit_s[pending] * CAPACITY - 8640 * w.size[pending], kind="stable")]
    running = np.flatnonzero((starts < now) & (seen_end >= now))
    started = np.flatnonzero(starts < now)
    recent = started[np.argsort(starts[started], kind="stable")][-RECENT:]
    ended = np.flatnonzero(seen_end < now)
    last_ended = ended[np.argsort(ends[ended], kind="stable")][-RECENT:]
    arrived = np.flatnonzero((seen_submit < now) & (w.submit_s >= now - 86400) & (np.arange(len(w)) != predecessor))
    use = np.minimum(w.run_s, w.limit_s) / w.limit_s
    return Snapshot(
        now_s=now,
        capacity=CAPACITY,
        usable=CAPACITY,
        pending_nodes=w.size[pending],
        pending_limit_s=w.limit_s[pending],
        pending_submit_s=w.submit_s[pending],
        pending_held=0 * pending,
        pending_user=0 * pending,
        running_nodes=w.size[running],
        running_limit_s=w.limit_s[running],
        running_start_s=starts[running],
        running_user=0 * running,
        recent_start_s=starts[recent],
        recent_wait_s=starts[recent] - w.submit_s[recent],
        recent_nodes=w.size[recent],
        ended_use=use[last_ended],
        arrived_submit_s=w.submit_s[arrived],
        arrived_node_s=(w.size * w.limit_s)[arrived],
        predecessor_start_s=int(starts[predecessor]),
        predecessor_wait_s=int(starts[predecessor] - w.submit_s[predecessor]),
        predecessor_end_s=int(ends[predecessor]),
        successor_nodes=NODES,
        successor_limit_s=LIMIT_S,
        successor_user=0,
        successor_place=len(pending),
        user_max_jobs=NO_LIMIT,
        user_max_nodes=NO_LIMIT,
    )


def test_the_engine_changes_nothing_and_a_file_holds_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = trace(5)
    submits = base.submit_s[40] + np.arange(9) * 4 * 3600

    def built(engine: Engine, chunk: int) -> PairTable:
        monkeypatch.setattr(module, "CHUNK", chunk)
        world = plain(base, scheduler="mirage", capacity=CAPACITY)
        return build_pairs(world, submits_s=submits, pair_nodes=NODES, limit_s=LIMIT_S, engine=engine)

    one, many = built(partial(each_here, processes=1), 9), built(partial(each_here, processes=3), 2)
    assert built(each_pickled, 4).digest == one.digest
    save(many, tmp_path / "pairs.npz")
    read = load(tmp_path / "pairs.npz")
    for name in one.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(one, name), getattr(read, name))


def few(limit_s: int, **options: Any) -> PairTable:
    """Three pairs of two nodes."""
    base = trace(1)
    world = plain(base, scheduler="easy", capacity=CAPACITY)
    return build_pairs(world, submits_s=base.submit_s[50:53], pair_nodes=2, limit_s=limit_s, **options)


@pytest.mark.parametrize("limit_s", [600, 601, 1799, 1801])
def test_decisions_are_ten_minutes_apart_and_the_last_is_the_exact_end(limit_s: int) -> None:
    table = few(limit_s)
    decisions = table.decision_s.reshape(3, -1) - table.predecessor_start_s[:, None]
    assert decisions.tolist() == [[*range(0, limit_s, 600), limit_s]] * 3


def test_a_limit_shorter_than_the_time_between_decisions_is_refused() -> None:
    with pytest.raises(InputError, match="a limit of 599 s is shorter than the 600 s between decisions"):
        few(599)


def test_more_jobs_that_wait_than_there_is_room_for_get_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one is too little for the queue of this trace."""
    expected, rooms = few(3600), []
    chunk = module._chunk

    def counted_chunk(*arguments: Any) -> int:
        result: int = chunk(*arguments)
        rooms.append(result)
        return result

    monkeypatch.setattr(module, "_FIRST_ROOM", 1)
    monkeypatch.setattr(module, "_chunk", counted_chunk)
    assert few(3600, engine=partial(each_here, processes=1)).digest == expected.digest
    assert rooms.count(NO_ROOM) >= 1


def test_what_fails_in_a_thread_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_chunk", lambda *arguments: NONE if len(arguments[6]) else 0)
    with pytest.raises(InputError, match="a job of 2 nodes submitted among the others never starts"):
        few(3600, engine=partial(each_here, processes=2))


def test_a_file_of_pairs_runs_nothing_when_it_is_read(tmp_path: Path) -> None:
    held = {name: np.array([None]) for name in PairTable.__dataclass_fields__}
    np.savez(tmp_path / "pairs.npz", allow_pickle=True, **held)  # an array of objects is a pickle
    with pytest.raises(ValueError, match="allow_pickle"):
        load(tmp_path / "pairs.npz")


@pytest.mark.parametrize("nodes", [0, CAPACITY + 1])
def test_a_pair_that_cannot_run_is_refused(nodes: int) -> None:
    with pytest.raises(InputError, match=str(nodes)):
        build_pairs(
            plain(trace(1), scheduler="easy", capacity=CAPACITY),
            submits_s=np.array([0]),
            pair_nodes=nodes,
            limit_s=9999,
        )
