"""One interface to every simulated cluster that can be branched: advance it, copy it, submit into the copy, look.

A *cluster* never changes: the trace, the machine, the rules, and working memory of one thread. A *branch* is what
changes: who waits, who runs, the time. Six functions take both:

    advance(cluster, branch, until_s)           everything up to and including until_s happens
    copy(cluster, target, source)               target becomes equal to source
    submit(cluster, branch, job, submit_s)      a job that does not arrive by itself will be submitted at submit_s
    start_of(cluster, branch, job)              advance until that job starts: its start
    place_of(cluster, branch, job, submit_s)    how many pending jobs go ahead of it, if it is submitted then
    visible(cluster, branch, now_s)             what anyone may see of the branch at now_s

They may be called from plain code and from numba's compiled code, and cost there what a direct call costs: numba picks
the implementation by the type of `cluster` when it compiles the caller.

A world is a module with a NamedTuple for its cluster, the six functions compiled for it and given to `implement`, and
`build`, which makes `Built`; and a line in WORLDS. The contract is tests/simulator/test_cluster.py, over WORLDS.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from simulator.marks import NO_ROOM as NO_ROOM
from simulator.marks import NONE as NONE
from simulator.names import SLURM
from simulator.workload import Workload

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

Cluster: TypeAlias = tuple[Any, ...]  # a world's own NamedTuple
Branch: TypeAlias = Any  # a world's own NamedTuple or block

DAY_S = 86400  # arrivals are visible for so long
NO_LIMIT = 1_000_000  # of a user's jobs or nodes, where nothing limits them

WORLDS: dict[str, str] = {  # name -> module with `build`, imported when it is wanted
    "flat": "simulator.flat.world",
    "slurm": "simulator.slurm.branching",
    "recorded": "simulator.recorded.world",
}


class Visible(NamedTuple):
    """What anyone may see of a cluster at an instant: in `squeue`, `sinfo` and `sacct`. Times in s, sizes in nodes.

    Of running jobs their limits and never their true ends. int64 but where noted.
    """

    capacity: int  # nodes of the cluster, or of the partition in which jobs are submitted
    usable: int  # those in service
    pending_nodes: Int64s  # (pending,) in queue order, first to start first
    pending_limit_s: Int64s
    pending_submit_s: Int64s
    pending_held: Int64s  # 1: kept from starting by something other than the queue; 0
    pending_user: Int64s  # numbers of users; 0 for all where the world knows no users
    running_nodes: Int64s  # (running,) in an order that tells nothing of their true ends
    running_limit_s: Int64s
    running_start_s: Int64s
    running_user: Int64s
    recent_start_s: Int64s  # (up to as many as the branch remembers,) jobs that started last, in any order
    recent_wait_s: Int64s
    recent_nodes: Int64s
    ended_use: Float64s  # (up to as many,) run time over limit of the jobs that ended last
    arrived_submit_s: Int64s  # (jobs that arrived in the last DAY_S,); jobs given to `submit` are not among them
    arrived_node_s: Int64s  # their nodes x limit
    user_max_jobs: int  # running jobs that a user may have; NO_LIMIT where there is none
    user_max_nodes: int  # nodes that a user may hold, but for a single job that is wider; NO_LIMIT


class Built(NamedTuple):
    """A world built for a trace. Its clusters share the trace; two threads must not use one cluster."""

    clusters: tuple[Cluster, ...]  # one a thread
    first_extra: int  # rows first_extra .. first_extra + extra - 1 start only through `submit`
    most_nodes: int  # of one job
    branch: Callable[[int, int], Branch]
    """branch(rows, remembered): a cluster before its first job, with room for `rows` waiting jobs (running ones too,
    where they share the room), which shows the last `remembered` starts and ends; 0 for one that is never looked at."""
    user: int = 0  # number of the extra jobs' user in what is visible


class Build(Protocol):
    """Makes a world with `extra` jobs more than its trace has, alike, which run their full limit."""

    def __call__(self, *, extra: int, nodes: int, limit_s: int, threads: int) -> Built:
        """The cluster with those `extra` jobs of `nodes` nodes and `limit_s` seconds, for `threads` threads."""
        ...


class Operations(NamedTuple):
    """A world's implementation of the interface, each compiled."""

    advance: Callable[..., int]
    copy: Callable[..., None]
    submit: Callable[..., None]
    start_of: Callable[..., int]
    place_of: Callable[..., int]
    visible: Callable[..., Visible]


_IMPLEMENTED: dict[type, Operations] = {}  # type of a cluster -> what is done with it


def plain(workload: Workload, *, scheduler: str, capacity: int) -> Build:
    """What builds the trace's jobs on `capacity` whole nodes under `scheduler`, one of `simulator.names`."""
    if scheduler == SLURM:
        return partial(import_module(WORLDS[SLURM]).of_workload, workload, capacity=capacity)
    return partial(world("flat"), workload, scheduler=scheduler, capacity=capacity)


def world(name: str) -> Callable[..., Built]:
    """The function that builds the world of that name; its module is imported here."""
    build: Callable[..., Built] = import_module(WORLDS[name]).build
    return build


def implement(cluster: type, operations: Operations) -> None:
    """A world says once, when its module is imported, what is done with a cluster of its type."""
    _IMPLEMENTED[cluster] = operations


def advance(cluster: Cluster, branch: Branch, until_s: int) -> int:
    """Let everything happen up to and including `until_s`; 0, or NO_ROOM.

    After NO_ROOM nothing is lost: `copy` the branch to one with more room and call again.
    """
    return _IMPLEMENTED[type(cluster)].advance(cluster, branch, until_s)


def copy(cluster: Cluster, target: Branch, source: Branch) -> None:
    """Make `target` (of at least the room that `source` uses) equal to `source`; the two share nothing.

    `target` remembers as many starts and ends as `source`, or none.
    """
    _IMPLEMENTED[type(cluster)].copy(cluster, target, source)


def submit(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> None:
    """Extra row `job` will be submitted at `submit_s`, behind every other submission of that second.

    One that competes as a job of the trace would is submitted at t into a branch advanced to t - 1. In a branch that
    has advanced to t already the next scheduling pass looks at it. Only one submission may lie ahead of a branch.
    """
    _IMPLEMENTED[type(cluster)].submit(cluster, branch, job, submit_s)


def start_of(cluster: Cluster, branch: Branch, job: int) -> int:
    """Advance until row `job`, which has not started yet, starts: its start (s), or NONE (it never does), or NO_ROOM.

    The branch then stands in that second, after the pass that started the job.
    """
    return _IMPLEMENTED[type(cluster)].start_of(cluster, branch, job)


def place_of(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> int:
    """How many of the pending jobs that are visible go ahead of extra row `job`, if it is submitted at `submit_s`."""
    return _IMPLEMENTED[type(cluster)].place_of(cluster, branch, job, submit_s)


def visible(cluster: Cluster, branch: Branch, now_s: int) -> Visible:
    """What anyone may see of a branch that has advanced to `now_s` or the second before.

    The arrays may be views of the branch: use them before it is advanced.
    """
    return _IMPLEMENTED[type(cluster)].visible(cluster, branch, now_s)


def _overloaded(name: str) -> Callable[..., Any]:
    """What numba asks, with types for arguments, when it compiles a call of that operation: the function to compile."""

    def choose(cluster: types.Type, *others: types.Type) -> Callable[..., Any] | None:
        operations = _IMPLEMENTED.get(getattr(cluster, "instance_class", None))  # type: ignore[arg-type]
        if operations is None:
            return None  # numba says that there is no implementation
        function = getattr(operations, name)
        return lambda cluster, *others: function(cluster, *others)

    return choose


for _operation in (advance, copy, submit, start_of, place_of, visible):
    _options: Any = {} if _operation is visible else {"_nrt": False}  # as `simulator.compiled.kernel`
    overload(_operation, strict=False, jit_options=_options)(_overloaded(_operation.__name__))
