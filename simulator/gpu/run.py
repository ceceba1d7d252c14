"""Run one GPU scheduler on one cluster's jobs, on either clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.gpu.algorithms.placement import node_gpus
from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, origin_s
from simulator.gpu.registry import check, scheduler
from simulator.gpu.result import GpuResult
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.scheduler import EventScheduler, RoundScheduler, Setting
from traces.arrays import Bools, Float64s
from traces.counted import counted
from traces.errors import InputError, WorkError
from traces.files.queue_tree import DeclaredQueue

if TYPE_CHECKING:
    from simulator.gpu.events.recorded_machine import RecordedMachine
    from simulator.gpu.events.state import JobQueues


class GpuReplay(NamedTuple):
    """The results of the jobs, and the assumptions of the scheduler as sentences."""

    result: GpuResult
    said: list[str]


def simulate(
    cluster: GpuCluster,
    jobs: GpuJobs,
    name: str,
    settings: Mapping[str, Setting] | None = None,
    quotas: dict[str, int] | None = None,
    queues: Sequence[DeclaredQueue] = (),
    in_machine: RecordedMachine | None = None,
) -> GpuReplay:
    """Run `jobs` under the scheduler `name`; `settings` overrides its parameters, `quotas` gives GPUs per group.

    `queues` is the declared tree of YARN's schedulers; with it, quotas do not count. `in_machine` is what a record
    shows besides (times in the trace's own seconds), for one of IN_RECORDED_MACHINE and alike nodes; for a scheduler in
    rounds, the cluster is one node. Raises InputError for an unknown name or invalid value, and for an empty list of
    jobs. Raises InputError also for a job that no part of the cluster can hold (`fits`), or that its queue can never
    start. Raises WorkError if the scheduler never starts a job; with `in_machine`, such a job ends at infinity.
    """
    settings = settings or {}
    check(name, settings)
    if not len(jobs):
        raise InputError("there is no job to run: give at least one job")
    outside = np.flatnonzero(~fits(cluster, jobs))
    if len(outside):
        job = int(outside[0])
        raise InputError(
            f"{counted(len(outside), 'job', 'fits')} no configuration of the cluster; the first is number "
            f"{jobs.number[job]}, of "
            f"{counted(jobs.gpus[job], 'GPU')}; the cluster has at most {most_of_a_type(cluster)} GPUs of one type: "
            "leave such jobs out or declare a larger cluster"
        )
    found = scheduler(name)
    jobs = jobs.at_their_batch(trains=isinstance(found, RoundScheduler))
    if isinstance(found, RoundScheduler):
        policy: Any = found.build(settings)
        machine, lines = cluster.machine(), list[str]()
        if getattr(policy, "uses_quotas", False):
            share, lines = quota(cluster, jobs, quotas or {})
            machine = replace(machine, quotas=dict(zip(jobs.groups, share.tolist(), strict=True)))
        around = None
        if in_machine is not None:
            from simulator.gpu.events.recorded_machine import RecordedSurroundings, from_origin

            around = RecordedSurroundings(from_origin(in_machine, origin_s(jobs)), machine.total)
        result = simulate_rounds(jobs.objects(), machine, policy, around)
        return GpuReplay(
            result, [f"{name}: {line}" for line in lines] + (policy.said() if hasattr(policy, "said") else [])
        )
    tree, said = _queues(cluster, jobs, name, found, quotas or {}, queues)
    if found.shares and len(jobs.groups) < 2:
        said.append(f"{name}: the trace names neither virtual clusters nor users: all jobs form one group")
    if found.shares == "resources" and cluster.capacity.shape[1] == 1:
        why = "the trace has no CPUs and memory of its nodes" if in_machine is None else "jobs have whole nodes"
        said.append(f"{name}: {why}: GPUs are the only resource")
    return GpuReplay(_events(cluster, jobs, name, found, tree, settings, in_machine), said)


def _queues(
    cluster: GpuCluster,
    jobs: GpuJobs,
    name: str,
    found: EventScheduler,
    quotas: dict[str, int],
    declared: Sequence[DeclaredQueue],
) -> tuple[JobQueues | None, list[str]]:
    """Return the queues of a scheduler that has some, and the assumptions. Raises InputError as `simulate` does."""
    if found.shares not in ("quotas", "weights"):
        return None, []
    from simulator.gpu.yarn_queues import above_most, flat_queues, tree_queues

    is_fair = found.shares == "weights"
    if not declared and is_fair:
        equal = np.full(max(1, len(jobs.groups)), cluster.gpus / max(1, len(jobs.groups)))
        return flat_queues(cluster.gpus, jobs, equal), [f"{name}: no queues are declared: all groups weigh the same"]
    if not declared:
        share, said = quota(cluster, jobs, quotas)
        return flat_queues(cluster.gpus, jobs, share), [f"{name}: {line}" for line in said]
    outside = np.flatnonzero(above_most(cluster, jobs, declared))
    if len(outside):
        raise InputError(
            f"{counted(len(outside), 'job', 'asks')} for more than the most capacity of a queue; the first is number "
            f"{jobs.number[outside[0]]}, of {counted(jobs.gpus[outside[0]], 'GPU')}: leave it out or raise the most "
            "capacity"
        )
    limits_users = any(queue.user_limit < 100.0 or queue.user_limit_factor is not None for queue in declared)
    said = (
        [f"{name}: limits of users do not count: the trace names no users"] if not jobs.users and limits_users else []
    )
    return tree_queues(cluster.gpus, jobs, declared, with_users=not is_fair), [] if is_fair else said


def _events(
    cluster: GpuCluster,
    jobs: GpuJobs,
    name: str,
    found: EventScheduler,
    queues: JobQueues | None,
    settings: Mapping[str, Setting],
    in_machine: RecordedMachine | None,
) -> GpuResult:
    from simulator.gpu.events.recorded_machine import from_origin, unlimited
    from simulator.gpu.events.state import (
        ATTAINED,
        BEGUN,
        DECISIONS,
        END,
        LOST,
        NO_TABLE,
        PREEMPTIONS,
        RAN,
        RESTARTS,
        build,
    )
    from simulator.gpu.kernel import ENDLESS

    knobs = np.array(found.knobs(settings), dtype=np.float64)
    table = found.table(settings) if found.table else NO_TABLE
    state = build(cluster, jobs, knobs, found.prices(settings), table, queues)
    own = unlimited(len(jobs)) if in_machine is None else from_origin(in_machine, origin_s(jobs))
    stranded, stuck = found.run(state, own)
    if stuck == ENDLESS:
        raise WorkError(
            f"{name}: jobs are stopped and restarted without end; lower restart_s, or change the parameters so that a "
            "job runs for longer than it takes to restart"
        )
    if stuck >= 0 and in_machine is None:
        raise WorkError(f"{name}: job {jobs.number[stuck]} of {counted(jobs.gpus[stuck], 'GPU')} is never started")
    return GpuResult(
        start_s=state.real[BEGUN],
        end_s=state.real[END],
        ran_s=state.real[RAN],
        gpu_s=state.real[ATTAINED],
        gpu_s_by_type=dict(zip(sorted(set(cluster.types)), state.by_type, strict=True)),
        lost_gpu_s=state.real[LOST],
        restarts=state.whole[RESTARTS, :-1],
        preemptions=state.whole[PREEMPTIONS, :-1],
        decisions=int(state.counts[DECISIONS]),
        stranded_gpu_s=float(stranded),
    )


def fits(cluster: GpuCluster, jobs: GpuJobs) -> Bools:
    """Return which jobs an empty cluster can hold on GPUs of one type, each pod on one node, (jobs,)."""
    able = np.zeros(len(jobs), dtype=np.bool_)
    resources = cluster.capacity.shape[1]
    needs, of = np.unique(np.column_stack([jobs.pod_gpus, jobs.needs(resources)]), axis=0, return_inverse=True)
    for kind in sorted(set(cluster.types)):
        nodes = cluster.capacity[np.array(cluster.types) == kind]
        room = [int(node_gpus(nodes, np.array(need), pod).sum()) for pod, *need in needs.tolist()]
        able |= jobs.gpus <= np.array(room)[of.reshape(-1)]
    return able


def most_of_a_type(cluster: GpuCluster) -> int:
    """Return the number of GPUs of the most common type."""
    gpus = cluster.capacity[:, 0]
    return max(int(gpus[np.array(cluster.types) == kind].sum()) for kind in set(cluster.types))


def quota(cluster: GpuCluster, jobs: GpuJobs, declared: dict[str, int]) -> tuple[Float64s, list[str]]:
    """Return the GPUs of each group, (groups,), and the assumptions: declared quotas, else by used GPU time.

    Raises InputError if quotas are declared for unknown groups or add up to more GPUs than the cluster has.
    """
    unknown = [group for group in declared if group not in jobs.groups]
    if unknown:
        raise InputError(f"quota of unknown group {unknown[0]!r}: known are {', '.join(jobs.groups)}")
    if sum(declared.values()) > cluster.gpus:
        raise InputError(
            f"the quotas add to {sum(declared.values())} GPUs, but the cluster has {cluster.gpus}: lower the quotas"
        )
    work = np.bincount(jobs.group, weights=jobs.run_s * jobs.gpus, minlength=max(1, len(jobs.groups)))
    is_known = np.array([group in declared for group in jobs.groups] or [False])
    left = cluster.gpus - sum(declared.values())
    open_work = float(work[~is_known].sum())
    share = np.where(is_known, 0.0, left * work / open_work if open_work else 0.0)
    for index, group in enumerate(jobs.groups):
        if group in declared:
            share[index] = declared[group]
    guessed = int((~is_known).sum())
    said = [f"{guessed} quotas are not declared: they follow the GPU time in the trace"] if guessed else []
    return share, said
