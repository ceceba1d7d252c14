"""The declared inputs and results of the `slurm` scheduler: everything that a run depends on, as arrays.

docs/schedulers/slurm.md defines the effect of each field. Times are whole seconds of the trace's clock, never negative;
durations are in seconds. Tables refer to one another by row number. NONE (-1) means "no such row", NO_LIMIT (-1) "no
limit" and NEVER "not in this run". A vector of TRES (trackable resources) has the columns CPU, MEMORY, NODE, GPU.
Arrays are int64 unless noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.marks import NEVER as NEVER
from simulator.marks import NONE as NONE
from traces.arrays import Bools, Float64s, Int64s

NO_LIMIT = -1

CPU, MEMORY, NODE, GPU = 0, 1, 2, 3  # columns of a TRES vector: cores, MB, nodes, GPUs
TRES = 4

AFTER, AFTERANY, AFTEROK, AFTERNOTOK, SINGLETON = 0, 1, 2, 3, 4  # kinds of dependency, sbatch(1) --dependency

DRAIN, RESERVATION = 0, 1  # kinds of outage

PREEMPT_OFF, PREEMPT_REQUEUE, PREEMPT_CANCEL = 0, 1, 2

# The states of a job in `SlurmResult.state`.
FUTURE, PENDING, RUNNING, COMPLETED, FAILED, TIMEOUT, CANCELLED, PREEMPTED, UNPLACEABLE = 0, 1, 2, 3, 4, 5, 6, 7, 8
STATES = ("FUTURE", "PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "PREEMPTED", "UNPLACEABLE")

# The reasons why a job can never start, in `SlurmResult.reason`.
REASONS = (
    "",
    "unknown partition",
    "larger than its partition",
    "more nodes than the partition allows",
    "longer than the partition allows",
    "more than a limit of its QOS or association allows",
    "cyclic dependency",
    "dependency never satisfied",
)
(
    PLACEABLE,
    UNKNOWN_PARTITION,
    TOO_LARGE,
    OVER_MAX_NODES,
    OVER_MAX_TIME,
    OVER_LIMIT,
    CYCLIC_DEPENDENCY,
    NEVER_SATISFIED,
) = range(len(REASONS))


@dataclass(frozen=True)
class SlurmNodes:
    """The nodes, one row each in the order of slurm.conf; arrays of shape (nodes,)."""

    names: tuple[str, ...]
    cpus: Int64s
    memory_mb: Int64s
    gpus: Int64s
    gpu_type: Int64s  # a node has GPUs of one type; any numbering, NONE without GPUs
    weight: Int64s  # Weight of slurm.conf: a lower weight is used first

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Partitions:
    """The partitions, one row each; arrays of shape (partitions,) unless noted."""

    names: tuple[str, ...]
    nodes: Bools  # (partitions, nodes); partitions may share nodes
    priority_tier: Int64s
    priority_job_factor: Int64s
    max_time_s: Int64s  # NO_LIMIT for UNLIMITED
    max_nodes: Int64s  # NO_LIMIT for UNLIMITED
    exclusive: Bools  # every job takes its nodes whole (OverSubscribe=EXCLUSIVE, or select/linear)
    least_loaded: Bools  # LLN=YES: spread jobs over nodes instead of packing them
    qos: Int64s  # partition QOS, whose limits apply in addition to those of the job's QOS; or NONE
    billing: Float64s  # (partitions, TRES) TRESBillingWeights; usage counts Sum(weight * TRES) seconds
    preempt_mode: Int64s  # (partitions,) how its jobs are preempted with `SlurmSettings.preempt_by_partition`

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class SlurmQos:
    """The qualities of service, one row each (sacctmgr(1), "SPECIFICATIONS FOR QOS"). Limits count running jobs."""

    names: tuple[str, ...]
    priority: Int64s  # (qos,)
    usage_factor: Float64s  # (qos,)
    group_jobs: Int64s  # (qos,) GrpJobs
    group_tres: Int64s  # (qos, TRES) GrpTRES
    user_jobs: Int64s  # (qos,) MaxJobsPU
    user_tres: Int64s  # (qos, TRES) MaxTRESPU
    account_jobs: Int64s  # (qos,) MaxJobsPA
    account_tres: Int64s  # (qos, TRES) MaxTRESPA
    job_tres: Int64s  # (qos, TRES) MaxTRES of one job
    preempts: Bools  # (qos, qos): row may preempt column
    preempt_mode: Int64s  # (qos,) how its jobs are preempted, PREEMPT_OFF .. PREEMPT_CANCEL
    preempt_exempt_s: Int64s  # (qos,) time after the start during which its jobs are not preempted, s

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Associations:
    """The tree of accounts and users; arrays of shape (associations,). A parent comes before its children.

    Row 0 is the root account. A row with a user is a leaf; an account has user NONE.
    """

    parent: Int64s  # NONE for the root
    user: Int64s
    account: Int64s  # any numbering; a user's row carries its account's number
    shares: Int64s  # raw fair-share shares, >= 0
    group_jobs: Int64s  # GrpJobs of the row and everything below it
    group_tres: Int64s  # (associations, TRES) GrpTRES
    max_jobs: Int64s  # MaxJobs of each single user below (inherited rows are written out)

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True)
class SlurmJobs:
    """The jobs and array tasks, one row each, by (submit_s, job id); arrays of shape (jobs,) unless noted.

    A job gets the same share of each of its nodes: `cpus_per_node`, `memory_per_node_mb`, `gpus_per_node`.
    """

    submit_s: Int64s
    eligible_s: Int64s  # earliest start: begin time or release of a hold; <= submit_s for none; NEVER: held
    cancel_s: Int64s  # time at which it leaves the queue unless it has started; NEVER for none
    run_s: Int64s  # run time if nothing ends it earlier, >= 0
    limit_s: Int64s  # >= 1: the user's limit, else the partition's default
    failed: Bools  # fails when it ends by itself (dependencies depend on it)
    partition: Int64s  # NONE: a partition that does not exist
    qos: Int64s
    user: Int64s
    association: Int64s
    nodes: Int64s  # >= 1
    cpus_per_node: Int64s  # >= 0
    memory_per_node_mb: Int64s  # >= 0
    gpus_per_node: Int64s  # >= 0
    gpu_type: Int64s  # NONE: any
    exclusive: Bools  # takes its nodes whole
    nice: Int64s
    site_factor: Float64s  # added unchanged to the priority: the site factor, or a fair-share term from another source
    array: Int64s  # row of the array in `SlurmWorld.array_throttle`, NONE for a job of its own
    name: Int64s  # jobs of one user with one name, for SINGLETON; any numbering >= 0
    any_dependency: Bools  # dependencies are joined by "?" (any) instead of "," (all)
    pinned_s: Int64s  # recorded start for replays that are pinned up to `run.run(free_from=)`, NEVER for none

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True)
class Dependencies:
    """The dependencies, one row per condition in any order; arrays of shape (dependencies,)."""

    job: Int64s  # row of the waiting job
    parent: Int64s  # row of the job that it waits for; NONE for SINGLETON
    kind: Int64s  # AFTER .. SINGLETON
    delay_s: Int64s  # AFTER: delay after the parent's start


@dataclass(frozen=True)
class Outages:
    """Times in which nodes accept no new job; arrays of shape (outages,) unless noted. Running jobs continue."""

    kind: Int64s  # DRAIN (unknown until it begins) or RESERVATION (jobs whose limit reaches it do not start there)
    begin_s: Int64s
    end_s: Int64s  # first second in which the nodes are back
    announced_s: Int64s  # second from which a RESERVATION is known; <= begin_s
    nodes: Bools  # (outages, nodes)


@dataclass(frozen=True)
class CapacityChanges:
    """Changes of the number of nodes in service: from `time_s` on, at most `nodes` nodes are busy at once.

    For traces that do not name the nodes out of service. Times rise. If empty, all nodes are always in service.
    """

    time_s: Int64s
    nodes: Int64s


@dataclass(frozen=True)
class SlurmSettings:
    """slurm.conf: priorities, SchedulerParameters and timers, with Slurm 22.05's defaults."""

    # priority/multifactor
    weight_age: int = 0
    weight_fairshare: int = 0
    weight_job_size: int = 0
    weight_partition: int = 0
    weight_qos: int = 0
    weight_tres: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    favor_small: bool = False
    max_age_s: int = 7 * 86400
    calc_period_s: int = 300
    decay_half_life_s: int = 7 * 86400  # 0: usage never decays
    # main loop
    default_queue_depth: int = 100
    sched_interval_s: int = 60
    batch_sched_delay_s: int = 3
    # backfill loop
    backfill: bool = True  # False: sched/builtin
    bf_interval_s: int = 30
    bf_window_s: int = 1440 * 60
    bf_resolution_s: int = 60
    bf_max_job_test: int = 500
    bf_max_job_part: int = 0
    bf_max_job_user: int = 0
    bf_max_job_start: int = 0
    bf_max_job_array_resv: int = 20
    bf_job_part_count_reserve: int = 0
    bf_min_age_reserve_s: int = 0
    bf_min_prio_reserve: int = 0
    # ends
    kill_wait_s: int = 30
    over_time_limit_s: int = 0
    completing_s: int = 0  # delay between a job's end and the release of its nodes (epilog)
    requeue_delay_s: int = 121
    # preemption
    preempt_by_partition: bool = False  # preempt/partition_prio: jobs of lower tiers; else preempt/qos
    preempt_youngest_first: bool = False
    preempt_strict_order: bool = False
    preempt_reorder_count: int = 1
    # clocks
    origin_s: int = 0  # start of the periodic passes


@dataclass(frozen=True)
class SlurmWorld:
    """All inputs of a run."""

    nodes: SlurmNodes
    partitions: Partitions
    qos: SlurmQos
    associations: Associations
    jobs: SlurmJobs
    dependencies: Dependencies
    outages: Outages
    capacity: CapacityChanges
    pinned_first: Int64s  # (jobs + 1,) rows of `pinned_nodes` of job j: [pinned_first[j], pinned_first[j + 1])
    pinned_nodes: Int64s  # recorded nodes of pinned jobs; the placement chooses those of a pinned job without any
    array_throttle: Int64s  # (arrays,) most tasks of an array that may run at once, 0 for no throttle
    settings: SlurmSettings = field(default_factory=SlurmSettings)


@dataclass(frozen=True)
class SlurmResult:
    """The outcome of each job; arrays of shape (jobs,) unless noted."""

    start_s: Int64s  # of the last attempt, NONE if it never started
    end_s: Int64s  # NONE if it has not ended; the cancellation for a job cancelled in the queue
    state: Int64s  # FUTURE .. UNPLACEABLE
    reason: Int64s  # PLACEABLE, or why it can never start
    restarts: Int64s  # number of requeues
    by_backfill: Bools  # whether the backfill loop made the last start
    placement_first: Int64s  # (jobs + 1,) rows of `placement` of job j: [placement_first[j], placement_first[j + 1])
    placement: Int64s  # (sum of nodes,) rows of the nodes of the last attempt, rising; NONE if it never started

    def unplaceable(self) -> dict[str, int]:
        """Count the jobs that can never start, by reason."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {name: int(count) for name, count in zip(REASONS, counts, strict=True) if name and count}


def no_qos() -> SlurmQos:
    """Return one QOS named `normal` without limits."""
    free, tres = np.full(1, NO_LIMIT), np.full((1, TRES), NO_LIMIT)
    zero = np.zeros(1, np.int64)
    return SlurmQos(
        names=("normal",), priority=zero, usage_factor=np.ones(1), group_jobs=free, group_tres=tres,
        user_jobs=free, user_tres=tres, account_jobs=free, account_tres=tres, job_tres=tres,
        preempts=np.zeros((1, 1), bool), preempt_mode=zero, preempt_exempt_s=zero,
    )  # fmt: skip


def flat_associations(users: int) -> Associations:
    """Return a root and one row per user below it, with equal shares and no limits: user u is row u + 1."""
    rows = users + 1
    parent = np.zeros(rows, np.int64)
    parent[0] = NONE
    user = np.arange(rows) - 1
    free = np.full(rows, NO_LIMIT)
    return Associations(
        parent=parent, user=user, account=np.zeros(rows, np.int64), shares=np.ones(rows, np.int64),
        group_jobs=free, group_tres=np.full((rows, TRES), NO_LIMIT), max_jobs=free,
    )  # fmt: skip


def whole_nodes(count: int) -> tuple[SlurmNodes, Partitions]:
    """Return a flat pool: `count` equal nodes, allocated whole, in one partition without limits."""
    one, zero = np.ones(count, np.int64), np.zeros(count, np.int64)
    nodes = SlurmNodes(tuple(f"n{i + 1}" for i in range(count)), one, zero, zero, np.full(count, NONE), one)
    partitions = Partitions(
        names=("all",), nodes=np.ones((1, count), bool), priority_tier=np.ones(1, np.int64),
        priority_job_factor=np.ones(1, np.int64), max_time_s=np.full(1, NO_LIMIT), max_nodes=np.full(1, NO_LIMIT),
        exclusive=np.ones(1, bool), least_loaded=np.zeros(1, bool), qos=np.full(1, NONE),
        billing=np.array([[1.0, 0.0, 0.0, 0.0]]), preempt_mode=np.zeros(1, np.int64),
    )  # fmt: skip
    return nodes, partitions


def plain_jobs(
    submit_s: Int64s, run_s: Int64s, limit_s: Int64s, nodes: Int64s, **columns: NDArray[np.generic]
) -> SlurmJobs:
    """Return jobs of one user in one partition and QOS on whole nodes; `columns` replaces columns of `SlurmJobs`."""
    count = len(submit_s)
    zero = np.zeros(count, np.int64)
    one, none, never, no = zero + 1, zero + NONE, np.full(count, NEVER), np.zeros(count, bool)
    defaults: dict[str, NDArray[np.generic]] = {
        "eligible_s": zero, "cancel_s": never, "failed": no, "partition": zero, "qos": zero, "user": zero,
        "association": one, "cpus_per_node": one, "memory_per_node_mb": zero, "gpus_per_node": zero, "gpu_type": none,
        "exclusive": no, "nice": zero, "site_factor": np.zeros(count), "array": none, "name": zero,
        "any_dependency": no, "pinned_s": never,
    }  # fmt: skip
    return SlurmJobs(submit_s=submit_s, run_s=run_s, limit_s=limit_s, nodes=nodes, **{**defaults, **columns})  # type: ignore[arg-type]


def no_dependencies() -> Dependencies:
    """Return an empty table of dependencies."""
    return Dependencies(*(np.zeros(0, np.int64) for _ in range(4)))


def no_outages(nodes: int) -> Outages:
    """Return an empty table of outages for `nodes` nodes."""
    none = np.zeros(0, np.int64)
    return Outages(none, none, none, none, np.zeros((0, nodes), bool))


def constant_capacity() -> CapacityChanges:
    """Return an empty table of capacity changes."""
    return CapacityChanges(np.zeros(0, np.int64), np.zeros(0, np.int64))


def flat_world(
    jobs: SlurmJobs,
    size: int,
    settings: SlurmSettings,
    /,
    *,
    qos: SlurmQos | None = None,
    users: int = 1,
    **tables: object,
) -> SlurmWorld:
    """Return a world of `size` whole nodes in one partition; `tables` are further fields of `SlurmWorld`."""
    machine, partitions = whole_nodes(size)
    defaults: dict[str, object] = {
        "nodes": machine, "partitions": partitions, "qos": qos or no_qos(), "associations": flat_associations(users),
        "jobs": jobs, "dependencies": no_dependencies(), "outages": no_outages(size),
        "capacity": constant_capacity(), "pinned_first": np.zeros(len(jobs) + 1, np.int64),
        "pinned_nodes": np.zeros(0, np.int64), "array_throttle": np.zeros(0, np.int64), "settings": settings,
    }  # fmt: skip
    return SlurmWorld(**{**defaults, **tables})  # type: ignore[arg-type]
