"""One interface to every simulated cluster: advance it, copy it, submit jobs into the copy, and observe it.

A *cluster* never changes: it holds the trace, the machine, the rules, and the working memory of one thread. A *branch*
changes: it holds the waiting and running jobs and the time. Eight functions take both:

    advance(cluster, branch, until_s)           simulate up to and including until_s
    copy(cluster, target, source)               make target equal to source
    submit(cluster, branch, job, submit_s)      submit a job that does not arrive by itself at submit_s
    start_of(cluster, branch, job)              advance until the job starts; return its start
    place_of(cluster, branch, job, submit_s)    count the pending jobs ahead of it if it is submitted at submit_s
    visible_state(cluster, branch, now_s)       return everything visible in the branch at now_s
    withdraw(cluster, branch, job, now_s)       cancel a job given to submit, or end it (not in the recorded world)
    relimit(cluster, branch, job, limit_s)      change the limit of a job given to submit (not in the recorded world)

Plain code and numba's compiled code may call them. Compiled calls cost as little as direct calls, because numba chooses
the implementation by the type of `cluster` when it compiles the caller.

A world is a module with a NamedTuple for its cluster, its compiled functions, which it passes to `implement`, and a
function `build` that returns `Built`. Each world has a line in WORLDS. tests/simulator/test_cluster.py checks the
contract for every world.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

from numba import types
from numba.extending import overload

from simulator.marks import ANY_EXTRA as ANY_EXTRA
from simulator.marks import NO_ROOM as NO_ROOM
from simulator.marks import NONE as NONE
from simulator.names import SLURM
from simulator.workload import Workload
from traces.arrays import Float64s, Int64s

Cluster: TypeAlias = tuple[Any, ...]  # a world's own NamedTuple
Branch: TypeAlias = Any  # a world's own NamedTuple or block

NO_LIMIT = 1_000_000  # of a user's jobs or nodes, if nothing limits them
NOT_RECORDED = "the recorded world takes its cluster from the record again"

WORLDS: dict[str, str] = {  # name -> module with `build`, imported on demand
    "flat": "simulator.flat.world",
    "slurm": "simulator.slurm.branching",
    "recorded": "simulator.recorded.world",
}


class Visible(NamedTuple):
    """The public state of a cluster at an instant, as in `squeue`, `sinfo` and `sacct`. Times in s, sizes in nodes.

    Running jobs show their limits but not their true ends. int64 unless noted.
    """

    capacity: int  # nodes of the cluster, or of the partition in which jobs are submitted
    usable: int  # nodes in service
    pending_nodes: Int64s  # (pending,) in queue order, first to start first
    pending_limit_s: Int64s
    pending_submit_s: Int64s
    pending_held: Int64s  # 1: kept from starting by something other than the queue; else 0
    pending_user: Int64s  # user numbers; 0 for all if the world has no users
    running_nodes: Int64s  # (running,) in an order that does not reveal their true ends
    running_limit_s: Int64s
    running_start_s: Int64s
    running_user: Int64s
    recent_start_s: Int64s  # (at most as many as the branch remembers,) latest starts, in any order
    recent_wait_s: Int64s
    recent_nodes: Int64s
    ended_use: Float64s  # (at most as many,) run time over limit of the latest ended jobs
    arrived_submit_s: Int64s  # (jobs that arrived in the last DAY_S,) without jobs given to `submit`
    arrived_node_s: Int64s  # their nodes x limit
    user_max_jobs: int  # running jobs that a user may have; NO_LIMIT if unlimited
    user_max_nodes: int  # nodes that a user may hold, except for a single wider job; NO_LIMIT if unlimited


class Built(NamedTuple):
    """A world built for a trace. Its clusters share the trace; two threads must not use one cluster."""

    clusters: tuple[Cluster, ...]  # one per thread
    first_extra: int  # rows first_extra .. first_extra + extra - 1 start only through `submit`
    most_nodes: int  # largest number of nodes of one job
    branch: Callable[[int, int], Branch]
    """branch(rows, remembered): a branch before the first job, with room for `rows` waiting jobs (and running jobs, if
    they share the room). It shows the last `remembered` starts and ends; 0 for a branch that is never observed."""
    resize: Callable[[Any, int, int], None]
    """resize(cluster, job, nodes): let extra row `job`, which no branch holds, ask for that many nodes, at most those
    that it was built with."""
    user: int = 0  # number of the extra jobs' user in `Visible`


class Build(Protocol):
    """Builds a world with `extra` equal jobs in addition to its trace, which run for their full limit."""

    def __call__(self, *, extra: int, nodes: int, limit_s: int, threads: int) -> Built:
        """Build the world with `extra` jobs of `nodes` nodes and `limit_s` seconds, for `threads` threads."""
        ...


class Operations(NamedTuple):
    """A world's implementation of the interface; all functions are compiled."""

    advance: Callable[..., int]
    copy: Callable[..., None]
    submit: Callable[..., None]
    start_of: Callable[..., int]
    place_of: Callable[..., int]
    visible_state: Callable[..., Visible]
    withdraw: Callable[..., None] | None = None
    relimit: Callable[..., None] | None = None


_IMPLEMENTED: dict[type, Operations] = {}  # type of a cluster -> its operations


def plain(workload: Workload, *, scheduler: str, capacity: int) -> Build:
    """Return the builder of the workload's jobs on `capacity` whole nodes under `scheduler` (`simulator.names`)."""
    if scheduler == SLURM:
        return partial(import_module(WORLDS[SLURM]).of_workload, workload, capacity=capacity)
    return partial(world("flat"), workload, scheduler=scheduler, capacity=capacity)


def world(name: str) -> Callable[..., Built]:
    """Import the module of the world of that name and return its `build`."""
    build: Callable[..., Built] = import_module(WORLDS[name]).build
    return build


def implement(cluster: type, operations: Operations) -> None:
    """Register the operations of a world's cluster type; called once when the world's module is imported."""
    _IMPLEMENTED[cluster] = operations


def advance(cluster: Cluster, branch: Branch, until_s: int) -> int:
    """Simulate up to and including `until_s`; return 0, or NO_ROOM.

    After NO_ROOM nothing is lost: `copy` the branch to one with more room and call again.
    """
    return _IMPLEMENTED[type(cluster)].advance(cluster, branch, until_s)


def copy(cluster: Cluster, target: Branch, source: Branch) -> None:
    """Make `target`, with at least the room that `source` uses, equal to `source`; the two share no memory.

    `target` remembers as many starts and ends as `source`, or none.
    """
    _IMPLEMENTED[type(cluster)].copy(cluster, target, source)


def submit(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> None:
    """Submit extra row `job` at `submit_s`, after every other submission of that second.

    To let it compete like a job of the trace, submit it at t into a branch that has advanced to t - 1. In a branch that
    has advanced to t already, the next scheduling pass considers it. A branch takes one future submission at a time;
    where jobs can be withdrawn, also several of one second, whose rows follow one another.
    """
    _IMPLEMENTED[type(cluster)].submit(cluster, branch, job, submit_s)


def start_of(cluster: Cluster, branch: Branch, job: int) -> int:
    """Advance until row `job`, which has not started yet, starts; return its start (s), NONE (never) or NO_ROOM.

    With ANY_EXTRA, where jobs can be withdrawn: until any of the rows given to `submit` starts.

    The branch is then in that second, after the pass that started the job.
    """
    return _IMPLEMENTED[type(cluster)].start_of(cluster, branch, job)


def place_of(cluster: Cluster, branch: Branch, job: int, submit_s: int) -> int:
    """Count the visible pending jobs ahead of extra row `job` if it is submitted at `submit_s`."""
    return _IMPLEMENTED[type(cluster)].place_of(cluster, branch, job, submit_s)


def visible_state(cluster: Cluster, branch: Branch, now_s: int) -> Visible:
    """Return the public state of a branch that has advanced to `now_s` or to the second before.

    The arrays may be views of the branch: use them before the branch advances.
    """
    return _IMPLEMENTED[type(cluster)].visible_state(cluster, branch, now_s)


def withdraw(cluster: Cluster, branch: Branch, job: int, now_s: int) -> None:
    """Cancel extra row `job` at `now_s` if it waits; if it runs, end it then. Plain code alone calls it.

    The branch has advanced to the second before `now_s`. Others may start in that second.
    """
    operation = _IMPLEMENTED[type(cluster)].withdraw
    assert operation is not None, NOT_RECORDED
    operation(cluster, branch, job, now_s)


def relimit(cluster: Cluster, branch: Branch, job: int, limit_s: int) -> None:
    """Let extra row `job` have that limit, and run for all of it, from the next second of the branch on.

    It keeps the place of its submission. The limit counts for every branch of the cluster in which the row has not
    started; those in which it waits take it into their queue by this call alone. Plain code alone calls it.
    """
    operation = _IMPLEMENTED[type(cluster)].relimit
    assert operation is not None, NOT_RECORDED
    operation(cluster, branch, job, limit_s)


def _overloaded(name: str) -> Callable[..., Any]:
    """Return the function that gives numba the implementation of an operation for the argument types of a call."""

    def choose(cluster: types.Type, *others: types.Type) -> Callable[..., Any] | None:
        operations = _IMPLEMENTED.get(getattr(cluster, "instance_class", None))  # type: ignore[arg-type]
        if operations is None:
            return None  # numba reports that there is no implementation
        function = getattr(operations, name)
        return lambda cluster, *others: function(cluster, *others)

    return choose


for _operation in (advance, copy, submit, start_of, place_of, visible_state):
    _options: Any = {} if _operation is visible_state else {"_nrt": False}  # as `simulator.compiled.kernel`
    overload(_operation, strict=False, jit_options=_options)(_overloaded(_operation.__name__))
