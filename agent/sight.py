"""Convert what a live Slurm shows into the snapshot and the observation that policies were trained on.

`features.snapshot` and `features.observe` define each number. This module says where it is read from.

- Nodes: those of the successor's partitions. A running job of any partition counts with the number of these nodes
  that it holds. A job on part of a node holds the whole node, as in a trace. If jobs share nodes, more nodes may be
  held than exist; we then take the held nodes as usable.
- Pending jobs: those of every partition that shares a node with the successor's, in the order in which Slurm considers
  them: tier of the partition, priority, id. Waiting array tasks count one by one.
- Held jobs: those whose Reason is neither the queue itself nor a limit on their user (`is_held`).
- Place of the successor: it enters with its predecessor's priority, minus what the predecessor gained by waiting,
  behind jobs of equal or higher priority. Under priority/basic it enters last. A job without predecessor enters with
  the priority of the pending job submitted last, of its own user if there is one. Another QOS than that of this job
  shifts the priority by PriorityWeightQOS.
- Limits on users: those of the request's own QOS, for everyone. A limit that a QOS sets on running jobs counts the
  user's jobs of that QOS alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from agent.futures import Live
from agent.memory import AccountedJobs, Memory, holds_nodes
from agent.slurm.accounting import PastJob
from agent.slurm.limits import QosTable, UserLimits
from agent.slurm.nodes import SinfoStates
from agent.slurm.numbers import UNLIMITED_S
from agent.slurm.queue import JOBS, Queue, SqueueJob
from agent.slurm.settings import BASIC, Partition, ScontrolConfig
from features.observe import FEATURES, HIDDEN_TOGETHER, NEED_OTHERS, observe, time_left_s
from features.snapshot import Snapshot
from features.start_estimate import headroom_wait_s
from traces.arrays import Int64s
from traces.slurm.text import expand_nodes, parse_job_id, parse_state
from traces.units import HOUR_S

# Reasons that come from the queue itself. Any other reason, except a limit on the job's user, means that a job is held.
QUEUE_REASONS = frozenset({
    "", "None", "Priority", "Resources", "ReqNodeNotAvail", "NodeDown", "Prolog", "Cleaning", "SchedDefer",
    "WaitingForScheduling", "Nodes_required_for_job_are_DOWN",
})  # fmt: skip
USER_REASONS = frozenset({"AssocMaxJobsLimit", "AssociationJobLimit", "AssociationResourceLimit"})
OTHERS_HIDDEN = "other users' jobs are not shown (slurm.conf: PrivateData)"
PER_USER = "PerUser"  # QOSMaxJobsPerUserLimit, QOSMaxGRESPerUser ...


@dataclass(frozen=True)
class SlurmRequest:
    """The request of a job. partition: one, or several separated by commas; "" for the cluster's default."""

    nodes: int
    limit_s: int
    user: str
    partition: str = ""
    account: str = ""
    qos: str = ""


@dataclass(frozen=True)
class SlurmContext:
    """Everything read from a Slurm besides its queue; None for what cannot be read or is not shown."""

    partitions: dict[str, Partition]
    nodes: SinfoStates | None
    settings: ScontrolConfig | None
    limits: UserLimits | None
    limits_why: str = ""  # one line if limits is None
    past_why: str = ""  # one line if past jobs are not known
    partitions_why: str = ""  # one line if partitions are not shown; `partitions` then holds stand-ins
    qos: QosTable = field(default_factory=QosTable)  # those that the user may use

    def other_limits(self, request: SlurmRequest) -> UserLimits | None:
        """Return the limits of a request under another QOS than the own one, which `limits` are of; None under that."""
        known = None if request.qos == self.qos.own else self.qos.by_name.get(request.qos)
        return None if known is None or self.limits is None else known.limits

    def is_apart(self, job: SqueueJob, request: SlurmRequest) -> bool:
        """Whether a job of the request's user does not count against the limits on the request."""
        name = request.qos or self.qos.own
        known = self.qos.by_name.get(name)
        return known is not None and known.is_alone and job.user == request.user and job.qos != name


@dataclass(frozen=True)
class ClusterObservation:
    """The snapshot and the observation at an instant. hidden: features missing from the observation, with the reason.

    ahead: a text about the simulated futures; "" if the policy does not look ahead.
    """

    snapshot: Snapshot
    observation: dict[str, float]
    hidden: dict[str, str]
    ahead: str = ""


@dataclass(frozen=True)
class LinkStarts:
    """When a link would start, and what is observed before it is submitted. why: one line if nothing was simulated."""

    seen: ClusterObservation
    starts_s: list[int]  # epoch s, one for each simulated future
    why: str = ""

    @property
    def estimate_s(self) -> float | None:
        """The start estimate by limits: wait, s."""
        hours = self.seen.observation.get("start_estimate_h")
        return None if hours is None else HOUR_S * hours


def asked_partitions(partitions: dict[str, Partition], names: str) -> list[Partition]:
    """Return the partitions of a request, at least one. Raises ValueError."""
    requested = names.split(",") if names else [name for name, one in partitions.items() if one.is_default]
    unknown = [name for name in requested if name not in partitions]
    known = ", ".join(partitions)
    if unknown:
        raise ValueError(f"unknown partition {', '.join(unknown)}; known: {known}")
    if not requested:
        raise ValueError(f"no partition is given and the cluster has no default; give one of {known}")
    return [partitions[name] for name in requested]


def is_held(reason: str) -> bool:
    """Whether something other than the queue and its user's limits keeps a pending job from starting.

    Examples: a dependency, a begin time, its user, an operator, the throttle of its array, a reservation, a licence, a
    limit on its whole account, or a limit that it can never satisfy.
    """
    word = reason.partition(",")[0].strip("()").partition(" ")[0]
    return not (word in QUEUE_REASONS or word in USER_REASONS or PER_USER in word)


def hidden_features(queue: Queue, context: SlurmContext) -> dict[str, str]:
    """Return the features that cannot be observed, each with the reason."""
    hidden: dict[str, str] = {}
    if context.nodes is None:
        hidden |= dict.fromkeys(HIDDEN_TOGETHER["nodes"], "sinfo shows no nodes (slurm.conf: PrivateData)")
    if context.limits is None:
        hidden |= dict.fromkeys(HIDDEN_TOGETHER["limits"], context.limits_why)
    if context.past_why:
        hidden |= dict.fromkeys(HIDDEN_TOGETHER["recent"], context.past_why)
    if JOBS in queue.hidden:
        hidden |= dict.fromkeys(NEED_OTHERS, OTHERS_HIDDEN)
    if context.partitions_why:
        hidden |= dict.fromkeys((*NEED_OTHERS, *HIDDEN_TOGETHER["nodes"], "capacity_nodes"), context.partitions_why)
    return hidden


def sight_of(
    queue: Queue, context: SlurmContext, memory: Memory, predecessor: SqueueJob | None, request: SlurmRequest
) -> ClusterObservation:
    """Build the observation at one instant. For a job without predecessor, the predecessor's features have no meaning.

    Raises ValueError for a predecessor that is not running, or an unknown partition.
    """
    hidden = hidden_features(queue, context)
    snapshot = snapshot_of(queue, context, memory, predecessor, request)
    limits = context.other_limits(request)
    free = snapshot if limits is None else snapshot._replace(successor_user=len(queue.jobs) + 1)
    seen = dict(zip(FEATURES, observe(free).tolist(), strict=True))
    if limits is not None:
        own = snapshot._replace(user_max_jobs=limits.jobs, user_max_nodes=limits.nodes)
        allowed_h = headroom_wait_s(own, time_left_s(own), 1.0) / HOUR_S
        seen |= {"headroom_wait_h": allowed_h, "start_estimate_h": max(seen["start_estimate_h"], allowed_h)}
    return ClusterObservation(snapshot, {name: value for name, value in seen.items() if name not in hidden}, hidden)


def snapshot_of(
    queue: Queue, context: SlurmContext, memory: Memory, predecessor: SqueueJob | None, request: SlurmRequest
) -> Snapshot:
    """Build the snapshot of one instant; unknown limits and unknown past jobs are left out."""
    begun_s, waited_s, end_s = queue.now_s, 0, queue.now_s
    if predecessor is not None:
        if predecessor.start_s is None or not holds_nodes(predecessor):
            raise ValueError(f"job {predecessor.id} is {predecessor.state}; a predecessor must be running")
        begun_s, end_s = predecessor.start_s, predecessor.start_s + predecessor.limit_s
        waited_s = max(begun_s - predecessor.submit_s, 0)
    asked, place, sharing = _around(context, request)
    pending, running = _pending(queue.jobs, sharing), _running(queue.jobs, place, sharing)
    counted_as = partial(_counted_as, context, request)
    users = _numbers([request.user, *map(counted_as, pending), *(counted_as(job) for job, _ in running)])
    usable = len(place) if context.nodes is None else context.nodes.in_service(place)
    usable = max(usable, sum(held for _, held in running))
    limits = UserLimits() if context.limits is None else context.limits
    recent = memory.recent(queue.now_s, _counts(sharing))
    if context.past_why:
        nothing = np.zeros(0, np.int64)
        recent = AccountedJobs(nothing, nothing, nothing, np.zeros(0), recent.arrived_submit_s, recent.arrived_node_s)
    return Snapshot(
        now_s=queue.now_s,
        capacity=max(len(place), usable),
        usable=usable,
        pending_nodes=_ints(job.nodes for job in pending),
        pending_limit_s=_ints(_limit_s(job, sharing) for job in pending),
        pending_submit_s=_ints(job.submit_s for job in pending),
        pending_held=_ints(int(is_held(job.reason)) for job in pending),
        pending_user=_ints(users[counted_as(job)] for job in pending),
        running_nodes=_ints(held for _, held in running),
        running_limit_s=_ints(_limit_s(job, sharing) for job, _ in running),
        running_start_s=_ints(job.start_s or queue.now_s for job, _ in running),
        running_user=_ints(users[counted_as(job)] for job, _ in running),
        **recent._asdict(),
        predecessor_start_s=begun_s,
        predecessor_wait_s=waited_s,
        predecessor_end_s=end_s,
        successor_nodes=request.nodes,
        successor_limit_s=request.limit_s,
        successor_user=users[request.user],
        successor_place=_place(pending, sharing, asked, _enters_with(pending, predecessor, request, context)),
        user_max_jobs=limits.jobs,
        user_max_nodes=limits.nodes,
    )


def live_of(
    queue: Queue, context: SlurmContext, memory: Memory, predecessor: SqueueJob | None, request: SlurmRequest
) -> Live:
    """Collect the inputs of futures besides the snapshot of the same instant. Raises ValueError: unknown partition."""
    asked, place, sharing = _around(context, request)
    pending = _pending(queue.jobs, sharing)
    return Live(
        pending=pending,
        running=_running(queue.jobs, place, sharing),
        past=memory.past(_counts(sharing)),
        tier=lambda names: max((sharing[name].tier for name in names.split(",") if name in sharing), default=0),
        limit_s=lambda job: _limit_s(job, sharing),
        is_held=lambda job: is_held(job.reason),
        partition=max(asked, key=lambda one: one.tier).name,
        user=request.user,
        priority=max(_enters_with(pending, predecessor, request, context), 0),
        settings=context.settings,
        limits=context.limits,
        own_limits=context.other_limits(request),
        is_apart=lambda job: context.is_apart(job, request),
    )


def sharing_partitions(partitions: dict[str, Partition], request: SlurmRequest) -> list[str]:
    """List the partitions that share a node with those of a request, whatever its limit. Raises ValueError."""
    return list(_around(SlurmContext(partitions, None, None, None), replace(request, limit_s=0))[2])


def hides_futures(queue: Queue, context: SlurmContext) -> str:
    """Explain why futures cannot be simulated, or return "". They need all users' jobs, including ended ones."""
    return context.partitions_why or (OTHERS_HIDDEN if JOBS in queue.hidden else context.past_why)


def _around(
    context: SlurmContext, request: SlurmRequest
) -> tuple[list[Partition], frozenset[str], dict[str, Partition]]:
    """Return the requested partitions, their nodes, and all partitions that share these nodes. Raises ValueError.

    Of several, only those count that allow the request's limit, because Slurm starts it in no other.
    """
    asked = asked_partitions(context.partitions, request.partition)
    asked = [one for one in asked if one.limit_s >= request.limit_s] or asked
    place = frozenset[str]().union(*(one.nodes for one in asked))
    return asked, place, {name: one for name, one in context.partitions.items() if one.nodes & place}


def _counts(sharing: dict[str, Partition]) -> Callable[[str], bool]:
    """Return a test whether a job's partitions (names separated by commas) include any of `sharing`."""
    return lambda names: not sharing.keys().isdisjoint(names.split(","))


def _running(
    jobs: Iterable[SqueueJob], place: frozenset[str], sharing: dict[str, Partition]
) -> list[tuple[SqueueJob, int]]:
    """List the jobs that run on those nodes, each with the number of these nodes that it holds."""
    return [(job, held) for job in jobs if holds_nodes(job) and (held := _held_nodes(job, place, sharing))]


def _pending(jobs: Iterable[SqueueJob], sharing: dict[str, Partition]) -> list[SqueueJob]:
    """List the jobs that wait for these partitions, in the order in which Slurm considers them."""
    waiting = [job for job in jobs if parse_state(job.state) == "PENDING" and _tier(job, sharing) is not None]
    return sorted(waiting, key=lambda job: _rank(job, sharing))


def _rank(job: SqueueJob, sharing: dict[str, Partition]) -> tuple[int, int, int, int]:
    identity = parse_job_id(job.id)
    return -(_tier(job, sharing) or 0), -job.priority, identity.job, identity.task or 0


def _tier(job: SqueueJob, sharing: dict[str, Partition]) -> int | None:
    """Return the highest tier of the job's partitions; None if none shares nodes with the successor's."""
    return max((sharing[name].tier for name in job.partition.split(",") if name in sharing), default=None)


def _limit_s(job: SqueueJob | PastJob, sharing: dict[str, Partition]) -> int:
    """Return the job's time limit, s; if it has none, the longest that its partitions allow."""
    if job.limit_s < UNLIMITED_S:
        return job.limit_s
    return max((sharing[name].limit_s for name in job.partition.split(",") if name in sharing), default=UNLIMITED_S)


def _held_nodes(job: SqueueJob, place: frozenset[str], sharing: dict[str, Partition]) -> int:
    """Count the nodes of `place` that a running job holds; infer from its partition if its nodes are unreadable."""
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
    """Count the pending jobs ahead of a job submitted now with that priority."""
    tier = max(one.tier for one in asked)
    ahead = (-tier, -priority)
    return sum(_rank(job, sharing)[:2] <= ahead for job in pending)


def _enters_with(
    pending: list[SqueueJob], predecessor: SqueueJob | None, request: SlurmRequest, context: SlurmContext
) -> int:
    """Return the priority of the successor, or of a job without predecessor; -1: behind all others."""
    settings = context.settings
    if settings is not None and settings.priority_type == BASIC:
        return -1
    comparable = [job for job in pending if job.user == request.user] or pending
    like = predecessor or max(comparable, key=lambda job: (job.submit_s, -job.priority), default=None)
    if like is None:
        return -1
    priority = like.priority
    if settings is not None:
        priority += context.qos.shift(settings.qos_weight, request.qos, like.qos)
    if predecessor is not None and settings is not None and settings.age_most_s:
        waited_s = max((predecessor.start_s or 0) - predecessor.submit_s, 0)
        priority -= round(settings.age_weight * min(waited_s / settings.age_most_s, 1.0))
    return max(priority, -1)


def _counted_as(context: SlurmContext, request: SlurmRequest, job: SqueueJob) -> str:
    """Return the job's user, or another word if it does not count against the limits on the request."""
    return f"{job.user} apart" if context.is_apart(job, request) else job.user


def _numbers(users: list[str]) -> dict[str, int]:
    return {user: number for number, user in enumerate(dict.fromkeys(users))}


def _ints(numbers: Iterable[int]) -> Int64s:
    return np.array(list(numbers), np.int64)
