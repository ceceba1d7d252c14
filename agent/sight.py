"""What a live Slurm shows, as the snapshot and the observation that policies were trained on.

The meaning of each number is `features.snapshot` and `features.observe`; here stands where it is read from.

- Nodes are those of the successor's partitions. A running job of any partition counts with as many of these as it
  holds, and one that holds a part of a node holds that node, as in a trace; so where jobs share nodes more may be held
  than there are, and then as many count as usable.
- Pending are the jobs of every partition that shares a node with the successor's, in the order in which Slurm looks at
  them: tier of the partition, priority, id. The waiting tasks of an array count one by one.
- Held is a job whose Reason is neither the queue's own nor a limit on its user (`is_held`).
- The successor's place: it would enter with the priority of its predecessor less what that one had gained by waiting,
  behind the jobs of that priority or more. Under priority/basic it would enter last. A job that no other precedes would
  enter with the priority of the pending job that came last, its user's own if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agent.ahead import Live
from agent.memory import Memory, RecentJobs, holds_nodes
from agent.slurm.accounting import PastJob
from agent.slurm.limits import UserLimits
from agent.slurm.nodes import SinfoStates
from agent.slurm.queue import JOBS, UNLIMITED_S, Queue, SqueueJob
from agent.slurm.settings import BASIC, Partition, SlurmSettings
from features.observe import FEATURES, HIDDEN_TOGETHER, observe
from features.snapshot import Int64s, Snapshot
from traces.slurm.text import expand_nodes, parse_job_id, parse_state

# Reasons of the queue itself. What is none of these and no limit on the job's user holds the job.
QUEUE_REASONS = frozenset({
    "", "None", "Priority", "Resources", "ReqNodeNotAvail", "NodeDown", "Prolog", "Cleaning", "SchedDefer",
    "WaitingForScheduling", "Nodes_required_for_job_are_DOWN",
})  # fmt: skip
USER_REASONS = frozenset({"AssocMaxJobsLimit", "AssociationJobLimit", "AssociationResourceLimit"})
OTHERS_HIDDEN = "other users' jobs are not shown (slurm.conf: PrivateData)"
PER_USER = "PerUser"  # QOSMaxJobsPerUserLimit, QOSMaxGRESPerUser ...
WITHOUT_OTHERS = frozenset({  # what stays known where other users' jobs are not shown
    "remaining_h", "predecessor_elapsed_h", "predecessor_wait_h", "successor_nodes", "successor_limit_h",
    "capacity_nodes", "usable_nodes", *HIDDEN_TOGETHER["limits"], "hour_sin", "hour_cos", "weekday_sin", "weekday_cos",
})  # fmt: skip


@dataclass(frozen=True)
class SlurmRequest:
    """What the successor will ask for. partition: one or several with commas; "" the cluster's default."""

    nodes: int
    limit_s: int
    user: str
    partition: str = ""
    account: str = ""
    qos: str = ""


@dataclass(frozen=True)
class SlurmContext:
    """What is read of a Slurm beside its queue; None for what could not be read or is not shown."""

    partitions: dict[str, Partition]
    nodes: SinfoStates | None
    settings: SlurmSettings | None
    limits: UserLimits | None
    limits_why: str = ""  # one line where limits is None
    past_why: str = ""  # one line where the past is not known


@dataclass(frozen=True)
class ClusterObservation:
    """What is seen at an instant. `observation` lacks the features in `hidden`, which says of each why.

    ahead: what was played of futures, for people; "" where the policy does not look ahead.
    """

    snapshot: Snapshot
    observation: dict[str, float]
    hidden: dict[str, str]
    ahead: str = ""


def asked_partitions(partitions: dict[str, Partition], names: str) -> list[Partition]:
    """The partitions of a request, at least one. Raises ValueError."""
    wanted = names.split(",") if names else [name for name, one in partitions.items() if one.is_default]
    unknown = [name for name in wanted if name not in partitions]
    if unknown or not wanted:
        known = ", ".join(partitions)
        raise ValueError(f"partition {', '.join(unknown) or 'not given, and none is the default'}; there are {known}")
    return [partitions[name] for name in wanted]


def is_held(reason: str) -> bool:
    """Whether a pending job is kept from starting by something other than the queue and the limits on its user.

    A dependency, a begin time, its user, an operator, the throttle of its array, a reservation, a licence, a limit on
    its account as a whole, or one that it will never satisfy.
    """
    word = reason.partition(",")[0].strip("()").partition(" ")[0]
    return not (word in QUEUE_REASONS or word in USER_REASONS or PER_USER in word)


def hidden_features(queue: Queue, scene: SlurmContext) -> dict[str, str]:
    """The features that cannot be known at an instant, and of each why."""
    hidden: dict[str, str] = {}
    if scene.nodes is None:
        hidden |= dict.fromkeys(HIDDEN_TOGETHER["nodes"], "sinfo shows no nodes")
    if scene.limits is None:
        hidden |= dict.fromkeys(HIDDEN_TOGETHER["limits"], scene.limits_why)
    if scene.past_why:
        hidden |= dict.fromkeys(HIDDEN_TOGETHER["recent"], scene.past_why)
    if JOBS in queue.hidden:
        others = [name for name in FEATURES if name not in WITHOUT_OTHERS]
        hidden |= dict.fromkeys(others, OTHERS_HIDDEN)
    return hidden


def sight_of(
    queue: Queue, scene: SlurmContext, memory: Memory, predecessor: SqueueJob | None, request: SlurmRequest
) -> ClusterObservation:
    """The sight of one instant; of a job that no other precedes the features of a predecessor mean nothing.

    Raises ValueError for a predecessor that does not run, or an unknown partition.
    """
    hidden = hidden_features(queue, scene)
    snapshot = snapshot_of(queue, scene, memory, predecessor, request)
    seen = zip(FEATURES, observe(snapshot).tolist(), strict=True)
    return ClusterObservation(snapshot, {name: value for name, value in seen if name not in hidden}, hidden)


def snapshot_of(
    queue: Queue, scene: SlurmContext, memory: Memory, predecessor: SqueueJob | None, request: SlurmRequest
) -> Snapshot:
    """The snapshot of one instant; without limits that are not known, and without a past that is not known."""
    begun_s, waited_s, end_s = queue.now_s, 0, queue.now_s
    if predecessor is not None:
        if predecessor.start_s is None or not holds_nodes(predecessor):
            raise ValueError(f"job {predecessor.id} is {predecessor.state}: a predecessor runs")
        begun_s, end_s = predecessor.start_s, predecessor.start_s + predecessor.limit_s
        waited_s = max(begun_s - predecessor.submit_s, 0)
    asked, place, sharing = _around(scene, request)
    pending, running = _pending(queue.jobs, sharing), _running(queue.jobs, place, sharing)
    users = _numbers([request.user, *(job.user for job in pending), *(job.user for job, _ in running)])
    usable = len(place) if scene.nodes is None else scene.nodes.in_service(place)
    usable = max(usable, sum(held for _, held in running))
    limits = UserLimits() if scene.limits is None else scene.limits
    recent = memory.recent(queue.now_s, _counts(sharing))
    if scene.past_why:
        nothing = np.zeros(0, np.int64)
        recent = RecentJobs(nothing, nothing, nothing, np.zeros(0), recent.arrived_submit_s, recent.arrived_node_s)
    return Snapshot(
        now_s=queue.now_s,
        capacity=max(len(place), usable),
        usable=usable,
        pending_nodes=_ints(job.nodes for job in pending),
        pending_limit_s=_ints(_limit_s(job, sharing) for job in pending),
        pending_submit_s=_ints(job.submit_s for job in pending),
        pending_held=_ints(int(is_held(job.reason)) for job in pending),
        pending_user=_ints(users[job.user] for job in pending),
        running_nodes=_ints(held for _, held in running),
        running_limit_s=_ints(_limit_s(job, sharing) for job, _ in running),
        running_start_s=_ints(job.start_s or queue.now_s for job, _ in running),
        running_user=_ints(users[job.user] for job, _ in running),
        **recent._asdict(),
        predecessor_start_s=begun_s,
        predecessor_wait_s=waited_s,
        predecessor_end_s=end_s,
        successor_nodes=request.nodes,
        successor_limit_s=request.limit_s,
        successor_user=users[request.user],
        successor_place=_place(pending, sharing, asked, _enters_with(pending, predecessor, request, scene.settings)),
        user_max_jobs=limits.jobs,
        user_max_nodes=limits.nodes,
    )


def live_of(queue: Queue, scene: SlurmContext, memory: Memory, predecessor: SqueueJob, request: SlurmRequest) -> Live:
    """What futures are made of, beside the snapshot of the same instant. Raises ValueError for an unknown partition."""
    asked, place, sharing = _around(scene, request)
    return Live(
        pending=_pending(queue.jobs, sharing),
        running=_running(queue.jobs, place, sharing),
        past=memory.past(_counts(sharing)),
        tier=lambda names: max((sharing[name].tier for name in names.split(",") if name in sharing), default=0),
        limit_s=lambda job: _limit_s(job, sharing),
        is_held=lambda job: is_held(job.reason),
        partition=max(asked, key=lambda one: one.tier).name,
        user=request.user,
        priority=max(_priority(predecessor, scene.settings), 0),
        settings=scene.settings,
        limits=scene.limits,
    )


def sharing_partitions(partitions: dict[str, Partition], request: SlurmRequest) -> list[str]:
    """The names of the partitions that share a node with those of a request. Raises ValueError."""
    return list(_around(SlurmContext(partitions, None, None, None), request)[2])


def hides_futures(queue: Queue, scene: SlurmContext) -> str:
    """Why futures cannot be played: they need everybody's jobs, those that ended among them; ""."""
    return OTHERS_HIDDEN if JOBS in queue.hidden else scene.past_why


def _around(scene: SlurmContext, request: SlurmRequest) -> tuple[list[Partition], frozenset[str], dict[str, Partition]]:
    """The partitions asked for, their nodes, and every partition that shares some of these. Raises ValueError."""
    asked = asked_partitions(scene.partitions, request.partition)
    place = frozenset[str]().union(*(one.nodes for one in asked))
    return asked, place, {name: one for name, one in scene.partitions.items() if one.nodes & place}


def _counts(sharing: dict[str, Partition]) -> Callable[[str], bool]:
    """Whether a job of those partitions (names with commas) is one of these."""
    return lambda names: not sharing.keys().isdisjoint(names.split(","))


def _running(
    jobs: Iterable[SqueueJob], place: frozenset[str], sharing: dict[str, Partition]
) -> list[tuple[SqueueJob, int]]:
    """Who runs on those nodes, and on how many of them."""
    return [(job, held) for job in jobs if holds_nodes(job) and (held := _held_nodes(job, place, sharing))]


def _pending(jobs: Iterable[SqueueJob], sharing: dict[str, Partition]) -> list[SqueueJob]:
    """Who waits for these partitions, first to be looked at first."""
    waiting = [job for job in jobs if parse_state(job.state) == "PENDING" and _tier(job, sharing) is not None]
    return sorted(waiting, key=lambda job: _rank(job, sharing))


def _rank(job: SqueueJob, sharing: dict[str, Partition]) -> tuple[int, int, int, int]:
    identity = parse_job_id(job.id)
    return -(_tier(job, sharing) or 0), -job.priority, identity.job, identity.task or 0


def _tier(job: SqueueJob, sharing: dict[str, Partition]) -> int | None:
    """The highest tier of the job's partitions; None where none of them shares nodes with the successor's."""
    return max((sharing[name].tier for name in job.partition.split(",") if name in sharing), default=None)


def _limit_s(job: SqueueJob | PastJob, sharing: dict[str, Partition]) -> int:
    """The job's limit; where it has none, the longest that its partitions allow."""
    if job.limit_s < UNLIMITED_S:
        return job.limit_s
    return max((sharing[name].limit_s for name in job.partition.split(",") if name in sharing), default=UNLIMITED_S)


def _held_nodes(job: SqueueJob, place: frozenset[str], sharing: dict[str, Partition]) -> int:
    """How many nodes of `place` a running job holds; by its partition where its nodes cannot be read."""
    try:
        names = _expanded(job.node_list)
    except ValueError:
        names = frozenset()
    if names:
        return len(names & place)
    return job.nodes if _tier(job, sharing) is not None else 0


@lru_cache(maxsize=1 << 14)
def _expanded(node_list: str) -> frozenset[str]:
    return frozenset(expand_nodes(node_list))


def _place(
    pending: list[SqueueJob],
    sharing: dict[str, Partition],
    asked: list[Partition],
    priority: int,
) -> int:
    """How many of the pending jobs would go ahead of one that were submitted now with that priority."""
    tier = max(one.tier for one in asked)
    ahead = (-tier, -priority)
    return sum(_rank(job, sharing)[:2] <= ahead for job in pending)


def _enters_with(
    pending: list[SqueueJob], predecessor: SqueueJob | None, request: SlurmRequest, settings: SlurmSettings | None
) -> int:
    """The priority of the successor, or of a job that no other precedes; -1: behind all others."""
    if predecessor is not None:
        return _priority(predecessor, settings)
    if settings is not None and settings.priority_type == BASIC:
        return -1
    alike = [job for job in pending if job.user == request.user] or pending
    return max(alike, key=lambda job: (job.submit_s, -job.priority)).priority if alike else -1


def _priority(predecessor: SqueueJob, settings: SlurmSettings | None) -> int:
    """The priority that the successor would enter with; -1: behind all others."""
    if settings is not None and settings.priority_type == BASIC:
        return -1
    priority = predecessor.priority
    if settings is not None and settings.age_most_s:
        waited_s = max((predecessor.start_s or 0) - predecessor.submit_s, 0)
        priority -= round(settings.age_weight * min(waited_s / settings.age_most_s, 1.0))
    return max(priority, -1)


def _numbers(users: list[str]) -> dict[str, int]:
    return {user: number for number, user in enumerate(dict.fromkeys(users))}


def _ints(numbers: Iterable[int]) -> Int64s:
    return np.array(list(numbers), np.int64)
