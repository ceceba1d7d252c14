"""Training and life see the same: a simulated history, told in Slurm's text, is observed as the simulation is."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.eyes import CALLS_A_LOOK, CALLS_A_REFRESH, REFRESH_S, Eyes
from agent.sight import SlurmRequest
from agent.slurm.queue import SqueueJob
from features.observe import FEATURES, RECENT, observe
from features.snapshot import Snapshot
from simulator.cluster import Branch, Cluster, Visible, advance, plain, visible_state, world
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedRules
from simulator.workload import Workload
from tests.agent.replayed_slurm import FOR_EVER, RecordedJob, ReplayedSlurm
from tests.twins import flat as flat_twin

HOUR, DAY = 3600, 86400
BEGIN_S = 1_700_000_000
CAPACITY, JOBS, USERS, MAX_JOBS, MAX_NODES = 32, 700, 5, 10, 14
HIGHEST = 1_000_000  # priority of the first job; each later one has one less


@lru_cache(maxsize=2)
def history(has_holds: bool) -> tuple[Workload, NDArray[np.int64], NDArray[np.int64]]:
    """A workload of three days, the starts of EASY, and when each job is cancelled in the queue (NEVER: it is not).

    has_holds: EASY is told of some jobs hours after their submission, as if something had held them.
    """
    rng = np.random.default_rng(5)
    submit = BEGIN_S + np.sort(rng.integers(0, 3 * DAY, JOBS))
    limit = rng.choice([HOUR, 2 * HOUR, 4 * HOUR, 12 * HOUR], JOBS)
    run = np.maximum((limit * rng.choice([0.1, 0.4, 1.0], JOBS)).astype(np.int64), 60)
    size = rng.choice([1, 1, 1, 2, 3], JOBS) + 7 * (rng.random(JOBS) < 0.01)
    cancelled = np.where(rng.random(JOBS) < 0.04, submit + 2 * HOUR, NEVER)
    workload = Workload(np.arange(1, JOBS + 1), submit, size, run, limit, np.full(JOBS, -1))
    found = submit + np.where((rng.random(JOBS) < 0.06) & has_holds, 5 * HOUR, 0)
    rows = np.argsort(found, kind="stable")
    rows = rows[cancelled[rows] == NEVER]
    start = np.full(JOBS, NEVER)
    kept = replace(workload, submit_s=found).take(rows)
    start[rows] = flat_twin.simulate(kept, scheduler="easy", capacity=CAPACITY, kill_at_limit=True)
    return workload, start, cancelled


def record(has_holds: bool) -> RecordedTrace:
    workload, start, cancelled = history(has_holds)
    end = np.where(start < NEVER, start + np.minimum(workload.run_s, workload.limit_s), cancelled)
    users, none = np.arange(JOBS) % USERS, np.zeros(JOBS, np.int64)
    keys = [str(job) for job in workload.job_id]
    return RecordedTrace(workload.submit_s, start, end, workload.size, workload.limit_s, users, none, keys)


def recorded_at(now_s: int) -> Visible:
    rules = RecordedRules(
        CAPACITY, window_s=0, stall_s=300, max_jobs=MAX_JOBS, max_nodes=MAX_NODES, overtaken=1, siblings=1
    )
    built = world("recorded")(
        record(True), rules=rules, points_per_hour=None, extra=1, nodes=1, limit_s=HOUR, threads=1
    )
    return seen_at(built.clusters[0], built.branch(JOBS, RECENT), now_s)


def flat_at(now_s: int) -> Visible:
    workload, _, cancelled = history(False)
    kept = workload.take(cancelled == NEVER)
    built = plain(kept, scheduler="easy", capacity=CAPACITY)(extra=1, nodes=1, limit_s=HOUR, threads=1)
    return seen_at(built.clusters[0], built.branch(JOBS, RECENT), now_s)


def seen_at(cluster: Cluster, branch: Branch, now_s: int) -> Visible:
    assert advance(cluster, branch, now_s - 1) == 0
    return visible_state(cluster, branch, now_s)


def told_jobs(past: RecordedTrace, is_flat: bool) -> list[RecordedJob]:
    """The record as jobs of a live Slurm, on nodes of their own."""
    return [
        RecordedJob(
            id=key,
            user="all" if is_flat else f"u{past.user[row]}",
            nodes=int(past.size[row]),
            limit_s=int(past.limit_s[row]),
            submit_s=int(past.submit_s[row]),
            start_s=int(past.start_s[row]) if past.start_s[row] < NEVER else FOR_EVER,
            end_s=int(past.end_s[row]),
            priority=HIGHEST - row,
        )
        for row, key in enumerate(past.job_key)
    ]


def told_slurm(seen: Visible, now_s: int, is_flat: bool) -> ReplayedSlurm:
    """The Slurm whose history the world has simulated, with the world's word on who is held."""
    past = record(not is_flat)
    if is_flat:
        past = past.take(past.start_s < NEVER)
    jobs = told_jobs(past, is_flat)
    waiting = [row for row, job in enumerate(jobs) if job.state(now_s) == "PENDING"]
    assert len(waiting) == len(seen.pending_held)
    for row, held in zip(waiting, seen.pending_held, strict=True):  # the queue is in order of submission
        jobs[row] = RecordedJob(**{**vars(jobs[row]), "reason": "Dependency" if held else "Priority"})
    free = [f"n{node}" for node in range(1, CAPACITY + 1)]
    for row, job in enumerate(jobs):
        if job.state(now_s) == "RUNNING":
            taken, free = free[: job.nodes], free[job.nodes :]
            jobs[row] = RecordedJob(**{**vars(job), "node_list": ",".join(taken)})
        elif job.state(now_s) == "COMPLETED":
            jobs[row] = RecordedJob(**{**vars(job), "node_list": "n1"})
    states = {f"n{node}": "mixed" for node in range(1, CAPACITY + 1)} | dict.fromkeys(free, "idle")
    limits = {} if is_flat else {"max_jobs": str(MAX_JOBS), "max_tres": f"cpu=9999,node={MAX_NODES}"}
    return ReplayedSlurm(jobs, now_s, nodes=states, partitions={"gpu": f"n[1-{CAPACITY}]"}, **limits)  # type: ignore[arg-type]


def expected(seen: Visible, now_s: int, predecessor: SqueueJob, request: SlurmRequest, place: int) -> Snapshot:
    assert predecessor.start_s is not None
    fields = seen._asdict()
    most_jobs, most_nodes = fields.pop("user_max_jobs"), fields.pop("user_max_nodes")
    return Snapshot(
        now_s=now_s,
        **fields,
        predecessor_start_s=predecessor.start_s,
        predecessor_wait_s=predecessor.start_s - predecessor.submit_s,
        predecessor_end_s=predecessor.start_s + predecessor.limit_s,
        successor_nodes=request.nodes,
        successor_limit_s=request.limit_s,
        successor_user=0 if request.user == "all" else int(request.user[1:]),
        successor_place=place,
        user_max_jobs=most_jobs,
        user_max_nodes=most_nodes,
    )


INSTANTS = np.random.default_rng(9).integers(BEGIN_S + DAY, BEGIN_S + 4 * DAY, 24).tolist()


@pytest.mark.parametrize("is_flat", [True, False], ids=["flat", "recorded"])
def test_a_told_slurm_is_observed_as_the_world_is(is_flat: bool) -> None:
    varied: dict[str, set[float]] = {name: set() for name in FEATURES}
    for number, now_s in enumerate(INSTANTS):
        seen = flat_at(now_s) if is_flat else recorded_at(now_s)
        slurm = told_slurm(seen, now_s, is_flat)
        probe = Eyes(slurm, SlurmRequest(1, HOUR, "nobody"))
        running = [job for job in probe.look(now_s).jobs if job.state == "RUNNING"]
        if not running:
            continue
        rank = int(np.random.default_rng(number).integers(0, JOBS))  # the successor goes anywhere into the queue
        predecessor = replace(running[number % len(running)], priority=HIGHEST - rank)
        request = SlurmRequest(1 + number % 6, HOUR * (1 + number % 9), predecessor.user)
        eyes = Eyes(slurm, request)
        eyes.look(now_s)
        sight = eyes.sight(predecessor)
        place = sum(job.priority >= predecessor.priority for job in slurm.jobs if job.state(now_s) == "PENDING")
        wanted = observe(expected(seen, now_s, predecessor, request, place))
        assert sight.hidden == {}
        for name, value in zip(FEATURES, wanted.tolist(), strict=True):
            assert sight.observation[name] == pytest.approx(value, rel=1e-6, abs=1e-6), (name, number)
            varied[name].add(value)
    constant = {name for name, values in varied.items() if len(values) == 1}
    assert is_flat or constant == {"capacity_nodes", "usable_nodes"}


def test_a_day_of_looking_on_tells_what_the_accounting_would() -> None:
    """Without any accounting, five minutes between looks, and ended jobs shown for as long."""
    _, start, _ = history(True)
    first_s, last_s = BEGIN_S + DAY // 2, BEGIN_S + 2 * DAY
    seen = recorded_at(last_s)
    slurm = told_slurm(seen, last_s, is_flat=False)
    slurm.broken = frozenset({"sacct"})
    slurm.remembers_s = 301
    predecessor = next(job for job in slurm.jobs if job.state(last_s) == "RUNNING")
    eyes, shown = Eyes(slurm, SlurmRequest(2, HOUR, predecessor.user)), {}
    for now_s in range(first_s, last_s + 1, 300):
        slurm.now_s = now_s
        queue = eyes.look(now_s)
        if now_s - first_s == DAY - 300:
            running = next(job for job in queue.jobs if job.state == "RUNNING")
            shown = eyes.sight(running).hidden
    assert set(shown) == {name for name in FEATURES if name.startswith(("recent_", "started_", "limit_use"))}
    sight = eyes.sight(next(job for job in queue.jobs if job.id == predecessor.id))
    assert sight.hidden == {}
    assert np.count_nonzero((start < last_s) & (start > first_s)) > RECENT
    assert sorted(sight.snapshot.recent_start_s) == sorted(seen.recent_start_s)
    assert sorted(sight.snapshot.recent_wait_s) == sorted(seen.recent_wait_s)
    assert sorted(sight.snapshot.ended_use) == pytest.approx(sorted(seen.ended_use))
    assert sorted(sight.snapshot.arrived_submit_s) == sorted(seen.arrived_submit_s)
    assert sight.snapshot.arrived_node_s.sum() == seen.arrived_node_s.sum()


def test_calls_are_bounded() -> None:
    """Two a look, and six an hour beside."""
    slurm = told_slurm(recorded_at(BEGIN_S + DAY), BEGIN_S + DAY, is_flat=False)
    eyes = Eyes(slurm, SlurmRequest(1, HOUR, "u1"))
    looks = range(BEGIN_S + DAY, BEGIN_S + DAY + 2 * REFRESH_S, 60)
    for now_s in looks:
        slurm.now_s = now_s
        eyes.look(now_s)
    assert slurm.calls["squeue"] == slurm.calls["sinfo"] == len(looks)
    assert slurm.calls.total() <= CALLS_A_LOOK * len(looks) + 2 * CALLS_A_REFRESH
    assert slurm.calls["scontrol"] == slurm.calls["sacctmgr"] == 4
    assert 1 <= slurm.calls["sacct"] <= 2
