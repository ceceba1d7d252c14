"""The machine of a record: GPUs that come and go, jobs beside the scheduler's, and limits of users."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import simulator.gpu.kernel
from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.events.recorded_machine import (
    NO_LIMIT,
    NOBODY,
    MachineChanges,
    RecordedMachine,
    RecordedSurroundings,
    from_origin,
    machine_of,
)
from simulator.gpu.events.state import GPUS, RUNNING, STATUS, TYPE_FREE, GpuState, build
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.policies.lyra import Lyra
from simulator.gpu.registry import IN_RECORDED_MACHINE, NOT_IN_RECORDED_MACHINE, SCHEDULERS, scheduler
from simulator.gpu.round_policy import Placed, RoundPolicy, View
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.run import _queues, simulate
from simulator.gpu.scheduler import EventScheduler, RoundScheduler
from tests.simulator.gpu.twins import Between
from traces.arrays import Float64s, Int64s

A_NODE = 3  # GPUs
NODES = 6
NONE = np.zeros(0, np.int64)
ROUNDS = [name for name in IN_RECORDED_MACHINE if isinstance(scheduler(name), RoundScheduler)]


def jobs_of_users(seed: int, count: int = 60) -> tuple[GpuJobs, Int64s]:
    """Jobs of whole nodes, several in a second, of four users, who are the groups; also the users."""
    rng = np.random.default_rng(seed)
    size, user = rng.choice([1, 1, 2, 4], count), rng.integers(0, 4, count)
    submit_s, run_s = np.sort(rng.integers(0, 6000, count)).astype(float), rng.integers(1, 3000, count).astype(float)
    return of_arrays(submit_s, size * A_NODE, run_s, user), user


def busy_machine(seed: int, jobs: GpuJobs, owner: Int64s, most: tuple[int, int]) -> RecordedMachine:
    """Up to all nodes go out and return, and jobs of two nodes start and end beside the scheduler's."""
    rng = np.random.default_rng(seed + 100)
    at_s, more, user = [], [], []
    for kind in range(8):
        begin_s, nodes = int(rng.integers(-10, 7000)), 2 if kind % 2 else int(rng.integers(1, NODES + 1))
        at_s += [begin_s, begin_s + int(rng.integers(1, 2500))]
        more += [-nodes, nodes]
        user += 2 * [int(rng.integers(0, 4)) if kind % 2 else NOBODY]
    gpus, users = np.array(more) * A_NODE, np.array(user)
    changes = MachineChanges(np.array(at_s, float), gpus, users, np.where(users == NOBODY, 0, np.abs(gpus) // A_NODE))
    return machine_of(changes, owner, jobs.gpus // A_NODE, most)


def cluster(name: str = "fifo") -> GpuCluster:
    """All nodes, as one for a scheduler in rounds."""
    return of_nodes(np.array([NODES * A_NODE]) if name in ROUNDS else np.full(NODES, A_NODE))


def test_the_docs_name_the_reason_of_each_refusal() -> None:
    page = (Path(__file__).parents[3] / "docs/gpu-schedulers.md").read_text(encoding="utf-8")
    assert NOT_IN_RECORDED_MACHINE.keys() <= SCHEDULERS.keys()
    assert all(f"| `{name}` | {why} |" in page for name, why in NOT_IN_RECORDED_MACHINE.items())


@pytest.mark.parametrize("name", IN_RECORDED_MACHINE)
def test_without_outages_other_jobs_and_limits_it_is_the_plain_replay(name: str) -> None:
    jobs, user = jobs_of_users(0)
    nothing = machine_of(MachineChanges(np.zeros(0), NONE, NONE, NONE), user, jobs.gpus // A_NODE, (NO_LIMIT, NO_LIMIT))
    plain, within = (simulate(cluster(name), jobs, name, in_machine=machine).result for machine in (None, nothing))
    for column in ("start_s", "end_s", "ran_s", "lost_gpu_s", "preemptions"):
        assert getattr(plain, column).tobytes() == getattr(within, column).tobytes()


@pytest.mark.parametrize("name", ["srtf", "yarn"])  # both stop jobs, each in a way of its own
@pytest.mark.parametrize("seed", range(4))
def test_no_job_starts_on_nodes_that_are_out_and_no_user_exceeds_the_limits(name: str, seed: int) -> None:
    jobs, owner = jobs_of_users(seed)
    machine = from_origin(busy_machine(seed, jobs, owner, (5, 6)), 0.0)
    found = scheduler(name)
    assert isinstance(found, EventScheduler)
    queues = _queues(cluster(), jobs, name, found, {}, ())[0]
    state = build(cluster(), jobs, np.array(found.knobs({})), queues=queues)
    drained = 0

    def decide(now_state: GpuState, now: float) -> None:
        nonlocal drained
        offered = NODES * A_NODE + int(machine.gpus[machine.at_s <= now].sum())
        before = int(now_state.whole[GPUS][now_state.whole[STATUS] == RUNNING].sum())
        found.decide(now_state, now)
        runs = now_state.whole[STATUS] == RUNNING
        busy = int(now_state.whole[GPUS][runs].sum())
        assert busy <= max(offered, before) and now_state.of_type[TYPE_FREE, 0] == offered - busy
        drained += busy > offered
        for user in range(4):
            done = (machine.at_s <= now) & (machine.user == user)
            beside = -int(np.sign(machine.gpus[done]).sum())
            own = runs[:-1] & (owner == user)
            assert own.sum() <= max(5 - beside, 0) or beside > 0  # a job beside them may start over the limit
            assert machine.job_nodes[own].sum() <= 6

    clock = FunctionType(simulator.gpu.kernel._run.__code__, {**vars(simulator.gpu.kernel), "_decide": decide})
    assert clock(state, machine)[1] == -1
    assert drained  # nodes left while jobs ran on them, and no job was stopped for it


class Watched(Between):
    """A policy whose every decision in a machine of a record is checked."""

    def __init__(self, policy: RoundPolicy, machine: RecordedMachine, owner: Int64s, most: tuple[int, int]) -> None:
        super().__init__(policy)
        self.machine, self.owner, self.most = machine, owner, most
        self.drained = 0  # decisions at which jobs run on more GPUs than are in service

    def decide(self, view: View) -> dict[int, Placed]:
        past = self.machine.at_s <= view.now_s
        offered, before = NODES * A_NODE + int(self.machine.gpus[past].sum()), sum(int(job.held) for job in view.jobs)
        assert view.machine.total == max(offered, before)
        wanted = self.policy.decide(view)
        self.drained += sum(sum(placed.values()) for placed in wanted.values()) > offered
        for user in range(4):
            beside = -int(np.sign(self.machine.gpus[past & (self.machine.user == user)]).sum())
            own = [job for job in view.jobs if self.owner[job.number] == user]
            assert len(own) <= max(self.most[0] - beside, 0) or beside > 0  # one beside them may start over the limit
            assert sum(job.gpus // A_NODE for job in own) <= self.most[1]
        return wanted


@pytest.mark.parametrize("name", ROUNDS)
def test_in_rounds_too(name: str) -> None:
    jobs, owner = jobs_of_users(1)
    origin, most = float(np.floor(jobs.submit_s.min())), (5, 6)
    machine = from_origin(busy_machine(1, jobs, owner, most), origin)
    found = scheduler(name)
    assert isinstance(found, RoundScheduler)
    watched = Watched(found.build({"round_s": 60.0}), machine, owner, most)
    around = RecordedSurroundings(machine, NODES * A_NODE)
    result = simulate_rounds(jobs.objects(), cluster(name).machine(), watched, around)
    assert np.isfinite(result.end_s).all() and (result.end_s - result.start_s >= jobs.run_s - 1e-6).all()
    assert watched.drained  # nodes left while jobs ran on them, and no job was stopped for it


class ShortestFirst(Lyra):
    """Shortest job first, which is asked again only when a job or the machine changes."""

    settled = True


def test_in_rounds_of_a_second_equal_to_counting_nodes() -> None:
    for seed in range(6):
        jobs, owner = jobs_of_users(seed)
        most = (3, 4) if seed % 2 else (NO_LIMIT, NO_LIMIT)
        machine, origin = busy_machine(seed, jobs, owner, most), float(np.floor(jobs.submit_s.min()))
        shortest_first = ShortestFirst(0.0, loans=False, grows=False, round_s=1.0)
        around = RecordedSurroundings(from_origin(machine, origin), NODES * A_NODE)
        result = simulate_rounds(jobs.objects(), cluster(ROUNDS[0]).machine(), shortest_first, around)
        expected = counted_starts(jobs, owner, machine, most, is_fifo=False)
        np.testing.assert_allclose(result.start_s + origin, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["fifo", "sjf"])
def test_equal_to_counting_nodes(name: str) -> None:
    for seed in range(12):
        jobs, owner = jobs_of_users(seed)
        most = (3, 4) if seed % 2 else (NO_LIMIT, NO_LIMIT)
        machine = busy_machine(seed, jobs, owner, most)
        result = simulate(cluster(), jobs, name, in_machine=machine).result
        origin = float(np.floor(jobs.submit_s.min()))
        expected = counted_starts(jobs, owner, machine, most, name == "fifo")
        np.testing.assert_allclose(result.start_s + origin, expected, atol=1e-6)


def counted_starts(
    jobs: GpuJobs, owner: Int64s, machine: RecordedMachine, most: tuple[int, int], is_fifo: bool
) -> Float64s:
    """The starts of jobs in order of arrival, or of run time, by counting nodes at every second that matters."""
    size, ends = jobs.gpus // A_NODE, dict[int, float]()
    queue, outside = list[int](), list[int]()
    starts = np.full(len(jobs), -1.0)
    moments = {*jobs.submit_s.tolist(), *machine.at_s.tolist()}
    while moments:
        now = min(moments)
        moments.discard(now)
        ends = {job: end for job, end in ends.items() if end > now}
        outside += [job for job in range(len(jobs)) if jobs.submit_s[job] == now]
        for job in list(outside):
            mine = [other for other in (*queue, *ends) if owner[other] == owner[job]]
            past = (machine.at_s <= now) & (machine.user == owner[job])
            sign = -np.sign(machine.gpus[past])
            held = sum(size[other] for other in mine) + int((sign * machine.nodes[past]).sum())
            if len(mine) + sign.sum() < most[0] and held + size[job] <= max(most[1], size[job]):
                outside.remove(job)
                queue.append(job)
        offered = NODES + int(machine.gpus[machine.at_s <= now].sum()) // A_NODE
        for job in list(queue) if is_fifo else sorted(queue, key=lambda job: (jobs.run_s[job], job)):
            if size[job] <= offered - sum(size[other] for other in ends):
                queue.remove(job)
                starts[job], ends[job] = now, now + jobs.run_s[job]
                moments.add(ends[job])
            elif is_fifo:
                break
    return starts


def test_a_drained_node_is_gone_once_its_job_ends() -> None:
    jobs = of_arrays(np.array([0.0, 10.0, 10.0]), np.full(3, 2), np.array([100.0, 50.0, 50.0]))
    at_s, gpus = np.array([5.0, 5.0, 300.0]), np.array([-2, -2, 2])
    changes = MachineChanges(at_s, gpus, np.full(3, NOBODY), np.zeros(3, np.int64))
    machine = machine_of(changes, np.zeros(3, np.int64), np.ones(3, np.int64), (NO_LIMIT, NO_LIMIT))
    result = simulate(of_nodes(np.full(2, 2)), jobs, "fifo", in_machine=machine).result
    assert result.start_s.tolist() == [0.0, 300.0, 350.0] and result.end_s[0] == 100.0
    never = machine_of(
        MachineChanges(np.array([5.0]), np.array([-4]), np.array([NOBODY]), np.zeros(1, np.int64)),
        np.zeros(3, np.int64), np.ones(3, np.int64), (NO_LIMIT, NO_LIMIT),
    )  # fmt: skip
    for name in ("fifo", "themis"):
        pool = of_nodes(np.array([4]))
        assert simulate(pool, jobs, name, in_machine=never).result.end_s.tolist()[1:] == [np.inf] * 2


def test_later_limits_count_from_their_time_on() -> None:
    """One user's jobs of 1,000 s on 1 node each: one at a time, from 500 s of the trace on two."""
    jobs = of_arrays(np.array([100.0, 101.0, 102.0]), np.full(3, A_NODE), np.full(3, 1000.0), np.zeros(3, np.int64))
    nothing = MachineChanges(np.zeros(0), NONE, NONE, NONE)
    machine = machine_of(nothing, np.zeros(3, np.int64), np.ones(3, np.int64), (1, NO_LIMIT), [(500.0, (2, NO_LIMIT))])
    start_s = simulate(cluster(), jobs, "fifo", in_machine=machine).result.start_s
    assert start_s.tolist() == [0.0, 400.0, 1000.0]  # from the first submission
