"""Simulate the futures of every decision of a table of injected pairs, in the plain world, under any flat scheduler.

At a decision the cluster is the replayed one, with the predecessor in it, as any user sees it: the pending jobs, the
running jobs and their starts, and the scheduler's own rules. Two things are drawn. Run times come from the jobs that
had ended before in this very branch of the replay (`features.futures.run_times`). Arrivals repeat whole weeks and days
before (`features.futures.arrivals`). The predecessor runs to its limit. The pair's user is not a user of the trace, so
no arrival is left out as the user's own. `simulator.flat.future` plays each future until the successor starts.

Cycles reach back at most as many days as the trace has: a longer one would begin with a time without arrivals.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from features.futures.arrivals import cycles_s
from features.futures.draws import RUN, spread
from features.futures.run_times import ROOM, RunTimeHistory, draw_run_s, history, like_runs
from features.futures.summary import BEYOND_S, FUTURES
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.provisioning.futures.recorded import most_arrivals
from models.provisioning.futures.table import carried_over, is_fresh
from models.provisioning.pairs.injected import chunks_of
from models.provisioning.pairs.recorded import about_count
from models.provisioning.protocol import PairTable
from simulator.compiled import njit
from simulator.flat.future import FlatFutureBuffers, FlatHistory, new_room, start_in_future
from simulator.flat.kernel import advance, submit
from simulator.flat.state import (
    NEVER,
    NONE,
    NOW,
    QUEUE_HEAD,
    QUEUE_JOB,
    QUEUE_TAIL,
    RUNNING,
    RUNNING_JOB,
    RUNNING_START,
    FlatJobs,
    FlatKnobs,
    FlatState,
    copy_state,
)
from simulator.flat.world import FlatCluster, build
from simulator.workload import Workload
from traces.arrays import Bools, Int64s
from traces.counted import counted
from traces.progress import Progress
from traces.units import DAY_S


class Owners(NamedTuple):
    """User and name of each job of a workload, int64, (jobs,); all equal if the log does not record them."""

    user: Int64s  # numbers from 0
    name: Int64s  # of the job's name


def injected_starts_ahead(
    table: PairTable,
    workload: Workload,
    owners: Owners,
    *,
    scheduler: str,
    capacity: int,
    futures: int = FUTURES,
    engine: Engine = each_here,
) -> Int64s:
    """Simulate when each decision's successor starts in each of its futures, epoch s, int64, (d, futures).

    `table` is of pairs injected into that workload on `capacity` nodes. The result does not depend on the engine, and
    uses nothing that happened in the replay at or after each instant.
    """
    fresh = is_fresh(table)
    played = np.zeros((int(fresh.sum()), futures), np.int64)
    at = np.split(np.cumsum(fresh) - 1, table.offset[1:-1])  # of each pair's decisions, rows of `played`
    order = np.argsort(table.submit_s, kind="stable")
    parts = [order[chunk] for chunk in chunks_of(len(table))]
    bare = replace(table, observations=table.observations[:0])
    shared = InjectedFutures(bare, fresh, workload, owners, scheduler, capacity, futures)
    tasks = [Task(f"the futures of pairs from {k}", pairs, about_count(len(pairs))) for k, pairs in enumerate(parts)]
    about = f"{counted(futures, 'future')} of {len(played):,} submissions"
    with Progress(about, len(table), stays=False, each=True) as progress:
        progress.reach(0)
        done = 0
        for place, found in engine(
            Work(play_pairs, tasks, shared, prepare=compile_futures, is_compiled=True), sys.maxsize
        ):
            for i, starts in zip(parts[place], found, strict=True):
                played[at[i][0] : at[i][-1] + 1] = starts
            done += len(found)
            progress.reach(done)
    assert (played >= 0).all(), "more arrived than `most_arrivals` allows"
    return carried_over(table, played)


class InjectedFutures(NamedTuple):
    """What the tasks share: one task plays the futures of the decisions of some pairs."""

    table: PairTable  # without observations
    fresh: Bools  # (d,) decisions whose futures are played
    workload: Workload
    owners: Owners
    scheduler: str
    capacity: int
    futures: int


def compile_futures(shared: InjectedFutures) -> None:
    """Play the futures of the first pair, because numba's compiler is not safe in threads."""
    play_pairs(shared, np.argsort(shared.table.submit_s, kind="stable")[:1])


def play_pairs(shared: InjectedFutures, pairs: Int64s) -> list[Int64s]:
    """Play the futures of some pairs (positions, by rising submission): (fresh decisions, futures) of each."""
    table, fresh, workload, owners, scheduler, capacity, futures = shared
    longest_s = int(table.limit_s.max(initial=1))
    world = build(workload, scheduler=scheduler, capacity=capacity, extra=2, nodes=1, limit_s=longest_s, threads=1)
    cycles = np.append(cycles_s(futures), cycles_within(futures, futures))
    arrivals = most_arrivals(workload.submit_s, cycles, longest_s + BEYOND_S)
    cluster = world.clusters[0]
    assert isinstance(cluster, FlatCluster)
    branches = world.branch(len(workload) + 2, 0), world.branch(len(workload) + 2, 0)
    room = new_room(cluster.knobs, cluster.jobs, arrivals)
    found = []
    for i in pairs:
        decisions = slice(table.offset[i], table.offset[i + 1])
        one = _Pair(
            world.first_extra, int(table.pair_nodes[i]), int(table.limit_s[i]), int(table.submit_s[i]),
            int(table.predecessor_end_s[i]), table.decision_s[decisions][fresh[decisions]],
        )  # fmt: skip
        found.append(np.zeros((len(one.decision_s), futures), np.int64))
        _play_pair(cluster, branches, room, workload, owners, one, found[-1])
    return found


def cycles_within(futures: int, days: int) -> Int64s:
    """The cycle of each future, s, (futures,): as `cycles_s`, but whole days within the last `days` (1 or more).

    A longer cycle is replaced by one of the available days, in turn.
    """
    cycles, in_turn = cycles_s(futures), DAY_S * (1 + np.arange(futures) % max(days, 1))
    return np.where(cycles <= days * DAY_S, cycles, in_turn).astype(np.int64)


class _Pair(NamedTuple):
    """A pair and its decisions; P is row `row` of the cluster's jobs, S the next one."""

    row: int
    nodes: int
    limit_s: int
    submit_s: int
    end_s: int
    decision_s: Int64s


def _play_pair(
    cluster: FlatCluster,
    branches: tuple[FlatState, FlatState],
    room: FlatFutureBuffers,
    workload: Workload,
    owners: Owners,
    pair: _Pair,
    out: Int64s,
) -> None:
    """Fill `out`, (decisions, futures). branches: the trace without pairs, at no later submission, and a spare one."""
    base, branch = branches
    jobs, knobs, starts = cluster.jobs, cluster.knobs, cluster.starts
    for row in (pair.row, pair.row + 1):
        for column in (jobs, room.jobs):
            column.size[row], column.run_s[row], column.limit_s[row] = pair.nodes, pair.limit_s, pair.limit_s
    advance(jobs, knobs, base, starts, pair.submit_s - 1, NONE)
    until_now = starts.copy()  # `starts` is scratch: the branches write starts of this pair there
    _inject(cluster, branch, base, pair.row, pair.submit_s)
    advance(jobs, knobs, branch, starts, pair.end_s - 1, NONE)
    start_s, run_s = starts[: len(workload)], np.minimum(workload.run_s, workload.limit_s)
    end_s = np.where(start_s >= 0, start_s + run_s, NEVER)
    ended = end_s < pair.end_s
    known = history(end_s[ended], run_s[ended], workload.limit_s[ended], owners.user[ended], owners.name[ended])
    starts[:] = until_now
    _inject(cluster, branch, base, pair.row, pair.submit_s)
    days = (pair.decision_s - workload.submit_s[0]) // DAY_S
    cycles = np.array([cycles_within(out.shape[1], int(each)) for each in days], np.int64).reshape(out.shape)
    past = FlatHistory(jobs, end_s)
    for d, now in enumerate(pair.decision_s.tolist()):
        if now - 1 > branch.scalars[NOW]:
            advance(jobs, knobs, branch, starts, now - 1, NONE)
        last_s = pair.end_s + BEYOND_S
        play_flat_futures(
            jobs, knobs, branch, (pair.row, pair.row + 1), past, known, owners, room, now, last_s, cycles[d], out[d]
        )
    starts[:] = until_now


def _inject(cluster: FlatCluster, branch: FlatState, base: FlatState, predecessor: int, submit_s: int) -> None:
    """Make `branch` the base plus the predecessor, advanced to its start."""
    copy_state(branch, base)
    submit(branch, predecessor, submit_s)
    advance(cluster.jobs, cluster.knobs, branch, cluster.starts, NEVER, predecessor)


@njit
def play_flat_futures(
    jobs: FlatJobs,
    knobs: FlatKnobs,
    branch: FlatState,
    extra: tuple[int, int],
    past: FlatHistory,
    known: RunTimeHistory,
    owners: Owners,
    room: FlatFutureBuffers,
    now: int,
    last_s: int,
    cycles: Int64s,
    out: Int64s,
    delay_s: int = 0,
) -> None:
    """Fill `out` (futures,) of the decision at `now`, to which the branch has advanced; cycles (futures,).

    extra: the first row beyond the trace, and the row that is submitted now unless it pends. Rows beyond the trace run
    for their limits. A start after `last_s` counts as `last_s`.
    """
    futures, (first, watched) = len(out), extra
    share, weight, quantile = np.empty(ROOM), np.empty(ROOM), np.empty(futures)
    known_s, head, running = branch.scalars[NOW] + 1, branch.scalars[QUEUE_HEAD], branch.scalars[RUNNING]
    pending = branch.scalars[QUEUE_TAIL] - head
    rows, drawn_s = np.empty(pending + running, np.int64), np.empty((pending + running, futures), np.int64)
    for i in range(pending + running):
        row = branch.queue[head + i, QUEUE_JOB] if i < pending else branch.running[i - pending, RUNNING_JOB]
        elapsed_s = 0 if i < pending else now - branch.running[i - pending, RUNNING_START]
        rows[i], limit_s = row, jobs.limit_s[row]
        if row >= first:
            drawn_s[i, :] = limit_s
        else:
            found = like_runs(known, owners.user[row], owners.name[row], limit_s, elapsed_s, known_s, share, weight)
            spread(row, RUN, quantile)
            draw_run_s(share, weight, found, limit_s, elapsed_s, quantile, drawn_s[i])
    for k in range(futures):
        for i in range(pending + running):
            room.jobs.run_s[rows[i]] = drawn_s[i, k]
        out[k] = start_in_future(past, knobs, room, branch, now, cycles[k], last_s, watched, now + delay_s)
