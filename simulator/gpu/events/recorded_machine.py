"""The machine of a record for the compiled clock: GPUs that come and go, and the limits of users.

Three things happen there that no scheduler decides. GPUs go out of service and return, and jobs that the scheduler does
not place take GPUs and free them. Both are changes of the number of GPUs that the scheduler may use. If more are taken
than are free, no running job is stopped: the scheduler starts nothing until enough of its jobs have ended.

Under a scheduler that decides in rounds, the same holds at its ticks (`RecordedSurroundings`): it sees as many GPUs as
it may use, or as its running jobs hold if that is more, and no job that is wider than that.

Limits of users are kept at the entrance of the queue. A job enters it once its user has less than the most jobs and
nodes in it, pending and running ones, those that the scheduler does not place included. A wider job than the most nodes
enters it alone. Jobs wait outside in order of arrival, and one that is held back lets others of its user pass.

GPUs are counted and not named, so all must be alike, and any free ones must do for a job: whole nodes, or one pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    PENDED,
    PENDING,
    STATUS,
    TYPE_FREE,
    TYPE_GPUS,
    GpuState,
)
from simulator.gpu.round_policy import GpuMachine
from simulator.gpu.surroundings import Surroundings
from traces.arrays import Float64s, Int64s

NOBODY = -1  # user of a change that is of no job
NO_LIMIT = 2**40
JOBS, NODES = range(2)  # columns of `most`, rows of `of_user`
CHANGED, OUTSIDE, LIMITS = range(3)  # in `progress`: changes made, jobs outside the queue, row of `most` in force


class MachineChanges(NamedTuple):
    """Changes of the GPUs that a scheduler may use, (changes,) each. Times in s of the trace, or from the origin."""

    at_s: Float64s
    gpus: Int64s  # GPUs that the scheduler gets (below 0: loses)
    user: Int64s  # user of the job that ends (gpus above 0) or starts; NOBODY for nodes in and out of service
    nodes: Int64s  # nodes of that job


class RecordedMachine(NamedTuple):
    """What the clock adds to a scheduler's own cluster, for n jobs and e changes in order of time."""

    at_s: Float64s  # (e,) as those of MachineChanges
    gpus: Int64s
    user: Int64s
    nodes: Int64s
    owner: Int64s  # (n,) user of each job
    job_nodes: Int64s  # (n,)
    most: Int64s  # (phases, 2) of a user: jobs, and nodes
    most_until_s: Float64s  # (phases,) the end of each phase, infinity for the last
    of_user: Int64s  # (2, users) the same now, in the queue or running
    outside: Int64s  # (n,) jobs outside the queue; the first `progress[OUTSIDE]` are used
    entered: Int64s  # (n,) jobs that `let_in` let in last
    progress: Int64s  # (3,)


def machine_of(
    changes: MachineChanges,
    owner: Int64s,
    job_nodes: Int64s,
    most: tuple[int, int],
    later: Sequence[tuple[float, tuple[int, int]]] = (),
) -> RecordedMachine:
    """Return the machine before its first change, for jobs of the users `owner` on `job_nodes` nodes, both (n,).

    `most` is the limits of a user: jobs, and nodes. Each of `later` replaces them from a time on, s of the trace.
    """
    order = np.argsort(changes.at_s, kind="stable")
    users = 1 + max(int(changes.user.max(initial=0)), int(owner.max(initial=0)))
    return RecordedMachine(
        changes.at_s[order],
        changes.gpus[order],
        changes.user[order],
        changes.nodes[order],
        owner,
        job_nodes,
        np.minimum(np.array([most, *(limits for _from_s, limits in later)], np.int64), NO_LIMIT),
        np.array([*(from_s for from_s, _limits in later), np.inf]),
        np.zeros((2, users), np.int64),
        np.zeros(len(owner), np.int64),
        np.zeros(len(owner), np.int64),
        np.zeros(3, np.int64),
    )


def unlimited(jobs: int) -> RecordedMachine:
    """Return a machine in which nothing happens, for so many jobs: the scheduler has its cluster for itself."""
    none, of_jobs = np.zeros(0, np.int64), np.zeros(jobs, np.int64)
    return machine_of(MachineChanges(np.zeros(0), none, none, none), of_jobs, of_jobs, (NO_LIMIT, NO_LIMIT))


def from_origin(machine: RecordedMachine, origin_s: float) -> RecordedMachine:
    """Return a copy to run, with times from the origin; the clock writes into it."""
    return machine._replace(
        at_s=machine.at_s - origin_s,
        most_until_s=machine.most_until_s - origin_s,
        of_user=machine.of_user.copy(),
        outside=machine.outside.copy(),
        entered=machine.entered.copy(),
        progress=machine.progress.copy(),
    )


@kernel
def next_change_s(machine: RecordedMachine) -> float:
    """Return the time of the next change, infinity after the last."""
    at, of_limits_s = machine.progress[CHANGED], machine.most_until_s[machine.progress[LIMITS]]
    return float(min(machine.at_s[at], of_limits_s) if at < len(machine.at_s) else of_limits_s)


@kernel
def pass_changes(machine: RecordedMachine, now: float) -> int:
    """Pass the changes whose time has come; return the GPUs that the scheduler gains by them."""
    gained = 0
    while machine.most_until_s[machine.progress[LIMITS]] <= now:
        machine.progress[LIMITS] += 1
    while next_change_s(machine) <= now:
        at = machine.progress[CHANGED]
        gained += machine.gpus[at]
        if machine.user[at] != NOBODY:
            count_job(machine, machine.user[at], machine.nodes[at], -1 if machine.gpus[at] > 0 else 1)
        machine.progress[CHANGED] += 1
    return int(gained)


@kernel
def make_changes(state: GpuState, machine: RecordedMachine, now: float) -> None:
    """Make the changes whose time has come; the cluster has one GPU type."""
    gained = pass_changes(machine, now)
    state.of_type[TYPE_GPUS, 0] += gained
    state.of_type[TYPE_FREE, 0] += gained


@kernel
def count_job(machine: RecordedMachine, user: int, nodes: int, sign: int) -> None:
    """Count a job of the user (1), or no longer (-1)."""
    machine.of_user[JOBS, user] += sign
    machine.of_user[NODES, user] += sign * nodes


@kernel
def arrive(machine: RecordedMachine, job: int) -> None:
    """Put a job behind those that wait outside the queue."""
    machine.outside[machine.progress[OUTSIDE]] = job
    machine.progress[OUTSIDE] += 1


@kernel
def let_in(machine: RecordedMachine) -> int:
    """Take from outside the jobs whose users are within the limits, in order of arrival; return how many `entered`."""
    kept, entered, limits = 0, 0, machine.progress[LIMITS]
    most_jobs, most_nodes = machine.most[limits, JOBS], machine.most[limits, NODES]
    for at in range(machine.progress[OUTSIDE]):
        job = machine.outside[at]
        user, nodes = machine.owner[job], machine.job_nodes[job]
        allowed = max(most_nodes, nodes)
        if machine.of_user[JOBS, user] >= most_jobs or machine.of_user[NODES, user] + nodes > allowed:
            machine.outside[kept] = job
            kept += 1
        else:
            count_job(machine, user, nodes, 1)
            machine.entered[entered] = job
            entered += 1
    machine.progress[OUTSIDE] = kept
    return entered


@kernel
def admit(state: GpuState, machine: RecordedMachine, now: float) -> None:
    """Let the jobs outside into the queue whose users are within the limits."""
    for at in range(let_in(machine)):
        job = machine.entered[at]
        state.whole[STATUS, job], state.real[PENDED, job] = PENDING, now
        state.whole[ACTIVE_JOB, state.counts[ACTIVE]] = job
        state.counts[ACTIVE] += 1


class RecordedSurroundings(Surroundings):
    """The machine of a record for the clock of rounds. The cluster is one pool of GPUs, a single node."""

    may_strand = True

    def __init__(self, machine: RecordedMachine, gpus: int) -> None:
        """Begin with a pool of `gpus`; `machine` has times from the origin and is written into."""
        self._machine, self._in_service = machine, gpus
        self.change_s = next_change_s(machine)

    @property
    def outside(self) -> int:  # type: ignore[override]
        """Number of jobs that wait outside the queue."""
        return int(self._machine.progress[OUTSIDE])

    def entering(self, now_s: float, come: Sequence[int], ended: Sequence[int]) -> Sequence[int]:
        """As `Surroundings`; at an instant jobs end first, then the machine changes, then jobs arrive."""
        if not come and not ended and self.change_s > now_s:
            return ()
        for job in ended:
            count_job(self._machine, self._machine.owner[job], self._machine.job_nodes[job], -1)
        self._in_service += pass_changes(self._machine, now_s)
        self.change_s = next_change_s(self._machine)
        for job in come:
            arrive(self._machine, job)
        entered = let_in(self._machine)
        return [int(job) for job in self._machine.entered[:entered]]

    def machine(self, machine: GpuMachine, held: float) -> GpuMachine:
        """As `Surroundings`: the GPUs in service, or those that running jobs hold if that is more."""
        gpus = max(self._in_service, int(held))
        return machine if gpus == machine.total else replace(machine, gpus=np.array([gpus]))
