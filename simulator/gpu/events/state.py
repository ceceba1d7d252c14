"""The arrays of the compiled clock: the cluster, the jobs, and their current state. `build` makes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.gpu.algorithms.placement import fewest_nodes, node_gpus
from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, origin_s
from simulator.gpu.profiles.profile import RESTART_S
from simulator.gpu.profiles.scaling import goodput, loses_when_spread
from traces.arrays import Float64s, Int64s

PENDING, RUNNING, DONE = range(1, 4)  # STATUS; 0 is a job that has not arrived
NEVER = np.inf

# Rows of `real`, one float per job; times in s from the origin.
SUBMIT, WORK, RESTART, LEFT, SINCE, RESUME, RATE, ATTAINED = range(8)  # LEFT: rest of WORK at SINCE; ATTAINED: GPU s
LOST, RAN, BEGUN, END, WAKE, PENDED, SERVICE, KEY = range(8, 16)  # SERVICE: rank of a policy, GPU s
FIRST, WAITED = range(16, 18)  # FIRST: charge of the first start; WAITED: seconds without GPUs before PENDED
# Rows of `whole`, one integer per job; ACTIVE_JOB and ORDER are lists of jobs whose lengths are in `counts`.
GPUS, GROUP, KIND, STATUS, LEVEL, ON_TYPE, SLOT, RESTARTS, PREEMPTIONS, ACTIVE_JOB, ORDER, CHOICE, POD_GPUS = range(13)
QUEUE, USER = range(13, 15)  # in `whole`, for YARN: columns of `table`; USER -1: no limit applies
BIN = 13  # column of `table`
NODE_TYPE, RACK, LOAD, BLOCKED, IN_CHOSEN = range(5)  # rows of `node`; the last three are working memory
TYPE_GPUS, TYPE_FREE, ASKED_TYPES = range(3)  # rows of `of_type`
SHARE, DEAF_UNTIL, LEAF = range(3)  # rows of `of_group`; DEAF_UNTIL: no offers before, s; LEAF: queue; -1 for none
NODE, TAKEN = range(2)  # rows of `places` and `chosen`: a node, and the number of its GPUs
PIECES, OPEN = range(2)  # rows of `slots`: number of nodes of the slot; a stack of unused slots
EDGE, COUNT, SUM, INDEX = range(4)  # rows of `table`: upper end of a bin of GPU s, its samples, their sum; see Gittins
ACTIVE, SORTED, OPEN_SLOTS, CHOSEN, DECISIONS, RACKS, SEEN, JOBS = range(8)  # in `counts`; SEEN: old active jobs
LEARNED, RENEWED, LEFT_OVER = range(8, 11)  # in `counts`: samples in `table`, those last used; GPUs left by a policy
USER_LIMITS, STOPS = range(11, 13)  # in `counts`: 1 if YARN's queues limit their users; stops of all jobs


class GpuState(NamedTuple):
    """The state for n jobs, m nodes, R resources (GPUs first), T types, K kinds of job and S slots of running jobs.

    A kind is a model and a number of GPUs. The state has few arrays with named rows instead of one array per name,
    because each array makes every function slower to compile.
    """

    real: Float64s  # (18, n)
    whole: Int64s  # (15, n + 1)
    by_type: Float64s  # (T, n) GPU s that the job had on each type
    need: Int64s  # (n, R) resources per GPU of the job
    fewest: Int64s  # (n, T) nodes of the type that hold the job, if it fits at all
    speed: Float64s  # (K, T, nodes + 1)
    preference: Int64s  # (K, T) types, fastest first
    local: Int64s  # (K,) 1 if a gang loses much when it is spread
    node: Int64s  # (5, m)
    of_type: Int64s  # (3, T)
    total: Int64s  # (R,)
    room: Int64s  # (m, R) capacity
    free: Int64s  # (m, R)
    of_group: Float64s  # (3, groups)
    used: Int64s  # (groups, R)
    asked: Int64s  # (groups,) working memory of a policy
    knobs: Float64s  # settings of the policy
    table: Float64s  # Gittins: (3 + queues, columns) the GPU times that it knows; YARN: queues and users
    places: Int64s  # (2, S, most nodes)
    slots: Int64s  # (2, S)
    chosen: Int64s  # (2, most nodes) the last place found
    counts: Int64s  # (13,)


class JobQueues(NamedTuple):
    """The queues of YARN for n jobs: `table` of the state, and the columns there of each group and user."""

    table: Float64s  # rows as in `simulator.gpu.events.queue_tree`
    leaf: Int64s  # (groups,) leaf queue; -1 for a group without a job
    user: Int64s  # (n,) user in that queue; -1 if no limit applies


class Prices(NamedTuple):
    """What a start costs: seconds in which a job holds its GPUs without progress."""

    restart_s: float | None = None  # None: that of the job's model, RESTART_S without one
    first_start: bool = False  # whether a first start is charged as well


FREE_FIRST_START = Prices()
NO_TABLE = np.zeros((3, 1))


def build(
    cluster: GpuCluster,
    jobs: GpuJobs,
    knobs: Float64s,
    prices: Prices = FREE_FIRST_START,
    table: Float64s = NO_TABLE,
    queues: JobQueues | None = None,
) -> GpuState:
    """Build a state before the first job; kinds that lose much when spread are local. `queues` replaces `table`."""
    types = sorted(set(cluster.types))
    kind, speed, local = _speeds(cluster, jobs, types)
    node_type = np.array([types.index(name) for name in cluster.types], dtype=np.int64)
    gpus = cluster.capacity[:, 0]
    of_type = [gpus[node_type == index] for index in range(len(types))]
    most = min(int(jobs.gpus.max()), cluster.nodes) + 1
    slots = 2 * (cluster.gpus // int(jobs.gpus.min()))  # in a pass, jobs that start and those replaced hold one
    groups, resources = max(1, len(jobs.groups)), cluster.capacity.shape[1]
    real, whole = _of_jobs(jobs, kind, prices)
    counts = np.zeros(13, dtype=np.int64)
    counts[OPEN_SLOTS], counts[RACKS], counts[JOBS] = slots, len(set(cluster.racks.tolist())), len(jobs)
    of_group = np.stack([np.zeros(groups), np.full(groups, -1.0), np.full(groups, -1.0)])
    if queues is None:
        counts[LEARNED] = int(table[COUNT].sum())
    else:
        table, of_group[LEAF], whole[USER, :-1] = queues
        whole[QUEUE, :-1] = queues.leaf[jobs.group]
        counts[USER_LIMITS] = int((queues.user >= 0).any())
    return GpuState(
        real=real,
        whole=whole,
        by_type=np.zeros((len(types), len(jobs))),
        need=jobs.needs(resources),
        fewest=_fewest(cluster, jobs, node_type, len(types)),
        speed=speed,
        preference=np.argsort(-speed[:, :, 1], axis=1, kind="stable"),
        local=local,
        node=np.stack([node_type, cluster.racks, *3 * [0 * node_type]]),
        of_type=np.tile(np.array([own.sum() for own in of_type], dtype=np.int64), (3, 1)),
        total=cluster.capacity.sum(axis=0),
        room=cluster.capacity.copy(),
        free=cluster.capacity.copy(),
        of_group=of_group,
        used=np.zeros((groups, resources), dtype=np.int64),
        asked=np.zeros(groups, dtype=np.int64),
        knobs=np.asarray(knobs, dtype=np.float64),
        table=table.copy(),
        places=np.zeros((2, slots, most), dtype=np.int64),
        slots=np.stack([np.zeros(slots, dtype=np.int64), np.arange(slots)[::-1]]),
        chosen=np.zeros((2, most), dtype=np.int64),
        counts=counts,
    )


def _of_jobs(jobs: GpuJobs, kind: Int64s, prices: Prices) -> tuple[Float64s, Int64s]:
    """Return `real` and `whole` of the state before the first job."""
    real = np.zeros((18, len(jobs)))
    real[SUBMIT] = jobs.submit_s - origin_s(jobs)
    real[WORK] = real[LEFT] = jobs.run_s
    real[RESTART] = _restart_s(jobs, prices)
    real[FIRST] = real[RESTART] if prices.first_start else 0.0
    real[BEGUN], real[END], real[WAKE] = -1.0, NEVER, NEVER
    whole = np.zeros((15, len(jobs) + 1), dtype=np.int64)
    whole[POD_GPUS, :-1] = jobs.pod_gpus
    whole[GPUS, :-1], whole[GROUP, :-1], whole[KIND, :-1], whole[SLOT] = jobs.gpus, jobs.group, kind, -1
    return real, whole


def _fewest(cluster: GpuCluster, jobs: GpuJobs, node_type: Int64s, types: int) -> Int64s:
    """Return how many nodes of each type a job needs on an empty cluster, (n, T); more than there are if none do."""
    sizes, of = np.unique(
        np.column_stack([jobs.gpus, jobs.pod_gpus, jobs.needs(cluster.capacity.shape[1])]), axis=0, return_inverse=True
    )
    fewest = np.zeros((len(sizes), types), dtype=np.int64)
    for kind in range(types):
        nodes = cluster.capacity[node_type == kind]
        for index, (gpus, pod, *need) in enumerate(sizes.tolist()):
            room = np.sort(node_gpus(nodes, np.array(need), pod))[::-1].cumsum()
            fewest[index, kind] = np.searchsorted(room, gpus) + 1
    return fewest[of.reshape(-1)]


def _restart_s(jobs: GpuJobs, prices: Prices) -> Float64s:
    """Return the seconds that a restart of each job takes, (n,): the setting, else the job's own, else its model's."""
    if prices.restart_s is not None:
        return np.full(len(jobs), prices.restart_s)
    of_model = np.array([RESTART_S if model < 0 else jobs.profiles[model].restart_s for model in jobs.model])
    return of_model if jobs.restart_s is None else np.where(np.isnan(jobs.restart_s), of_model, jobs.restart_s)


def _speeds(cluster: GpuCluster, jobs: GpuJobs, types: list[str]) -> tuple[Int64s, Float64s, Int64s]:
    """Return the kind of each job (n,), the speed of each kind by type and number of nodes, and the local kinds.

    Speed 1 is that on the requested GPUs, packed on the reference type, as in `simulator.gpu.round_policy.speed`.
    """
    pairs = np.stack([jobs.model, jobs.gpus], axis=1)
    kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
    most = min(int(jobs.gpus.max()), cluster.nodes)
    widest = cluster.machine().widest
    speed = np.ones((len(kinds), len(types), most + 1))
    local = np.zeros(len(kinds), dtype=np.int64)
    for index, (model, gpus) in enumerate(kinds.tolist()):
        if model < 0:
            continue
        profile = jobs.profiles[model]
        own = goodput(profile, cluster.reference, gpus, fewest_nodes(gpus, widest), gpus)
        for at, name in enumerate(types):
            for nodes in range(1, min(most, gpus) + 1):
                speed[index, at, nodes] = goodput(profile, name, gpus, nodes, gpus) / own
            speed[index, at, 0] = speed[index, at, 1]
        local[index] = int(loses_when_spread(profile, cluster.reference))
    return kind.reshape(-1).astype(np.int64), speed, local
