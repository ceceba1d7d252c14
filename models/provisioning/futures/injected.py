"""Simulate the futures of every decision of a table of injected pairs, in the plain world, under any flat scheduler.

At a decision the cluster is the replayed one, with the predecessor in it, as any user sees it: the pending jobs, the
running jobs and their starts, and the scheduler's own rules. Two things are drawn. Run times come from the jobs that
had ended before in this very branch of the replay (`features.futures.run_times`). Arrivals repeat whole weeks and days
before (`features.futures.arrivals`). The predecessor runs to its limit. The pair's user is not a user of the trace, so
no arrival is left out as the user's own. `simulator.flat.future` plays each future until the successor starts.

Cycles reach back at most as many days as the trace has: a longer one would begin with a time without arrivals.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np

from features.futures.arrivals import cycles_s
from features.futures.draws import RUN, spread
from features.futures.run_times import ROOM, RunTimeHistory, draw_run_s, history, like_runs
from features.futures.summary import BEYOND_S, FUTURES
from models.provisioning.futures.recorded import most_arrivals
from models.provisioning.futures.table import carried_over, is_fresh
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
from traces.arrays import Int64s
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
    threads: int | None = None,
) -> Int64s:
    """Simulate when each decision's successor starts in each of its futures, epoch s, int64, (d, futures).

    `table` is of pairs injected into that workload on `capacity` nodes. The result does not depend on the number of
    threads, and uses nothing that happened in the replay at or after each instant.
    """
    fresh = is_fresh(table)
    played = np.zeros((int(fresh.sum()), futures), np.int64)
    at = np.split(np.cumsum(fresh) - 1, table.offset[1:-1])  # of each pair's decisions, rows of `played`
    order = np.argsort(table.submit_s, kind="stable")
    threads = max(min(threads or os.cpu_count() or 1, len(table)), 1)
    longest_s = int(table.limit_s.max(initial=1))
    world = build(
        workload, scheduler=scheduler, capacity=capacity, extra=2 * threads, nodes=1, limit_s=longest_s, threads=threads
    )
    cycles = np.append(cycles_s(futures), cycles_within(futures, futures))
    arrivals = most_arrivals(workload.submit_s, cycles, longest_s + BEYOND_S)
    done = np.zeros(threads, np.int64)

    def play(thread: int, pairs: Int64s) -> None:
        cluster = world.clusters[thread]
        assert isinstance(cluster, FlatCluster)
        branches = world.branch(len(workload) + 2, 0), world.branch(len(workload) + 2, 0)
        room = new_room(cluster.knobs, cluster.jobs, arrivals)
        for i in pairs:
            rows = slice(at[i][0], at[i][-1] + 1)
            decision_s = table.decision_s[table.offset[i] : table.offset[i + 1]]
            one = _Pair(
                world.first_extra + 2 * thread, int(table.pair_nodes[i]), int(table.limit_s[i]), int(table.submit_s[i]),
                int(table.predecessor_end_s[i]), decision_s[fresh[table.offset[i] : table.offset[i + 1]]],
            )  # fmt: skip
            _play_pair(cluster, branches, room, workload, owners, one, played[rows])
            done[thread] += 1

    play(0, order[:1])  # compiles here: numba's compiler is not safe in threads
    about = f"{counted(futures, 'future')} of {len(played):,} submissions"
    with ThreadPoolExecutor(threads) as pool, Progress(about, len(table), stays=False, each=True) as progress:
        work = [pool.submit(play, thread, part) for thread, part in enumerate(np.array_split(order[1:], threads))]
        while wait(work, timeout=1).not_done:
            progress.reach(int(done.sum()))
        for each in work:
            each.result()
    assert (played >= 0).all(), "more arrived than `most_arrivals` allows"
    return carried_over(table, played)


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
        _play(jobs, knobs, branch, pair.row, past, known, owners, room, now, pair.end_s, cycles[d], out[d])
    starts[:] = until_now


def _inject(cluster: FlatCluster, branch: FlatState, base: FlatState, predecessor: int, submit_s: int) -> None:
    """Make `branch` the base plus the predecessor, advanced to its start."""
    copy_state(branch, base)
    submit(branch, predecessor, submit_s)
    advance(cluster.jobs, cluster.knobs, branch, cluster.starts, NEVER, predecessor)


@njit
def _play(
    jobs: FlatJobs,
    knobs: FlatKnobs,
    branch: FlatState,
    predecessor: int,
    past: FlatHistory,
    known: RunTimeHistory,
    owners: Owners,
    room: FlatFutureBuffers,
    now: int,
    end_s: int,
    cycles: Int64s,
    out: Int64s,
) -> None:
    """Fill `out` (futures,) of the decision at `now`, to which the branch has advanced; cycles (futures,)."""
    futures = len(out)
    share, weight, quantile = np.empty(ROOM), np.empty(ROOM), np.empty(futures)
    known_s, head, running = branch.scalars[NOW] + 1, branch.scalars[QUEUE_HEAD], branch.scalars[RUNNING]
    pending = branch.scalars[QUEUE_TAIL] - head
    rows, drawn_s = np.empty(pending + running, np.int64), np.empty((pending + running, futures), np.int64)
    for i in range(pending + running):
        row = branch.queue[head + i, QUEUE_JOB] if i < pending else branch.running[i - pending, RUNNING_JOB]
        elapsed_s = 0 if i < pending else now - branch.running[i - pending, RUNNING_START]
        rows[i], limit_s = row, jobs.limit_s[row]
        if row == predecessor:
            drawn_s[i, :] = limit_s
        else:
            found = like_runs(known, owners.user[row], owners.name[row], limit_s, elapsed_s, known_s, share, weight)
            spread(row, RUN, quantile)
            draw_run_s(share, weight, found, limit_s, elapsed_s, quantile, drawn_s[i])
    for k in range(futures):
        for i in range(pending + running):
            room.jobs.run_s[rows[i]] = drawn_s[i, k]
        out[k] = start_in_future(past, knobs, room, branch, now, cycles[k], end_s + BEYOND_S, predecessor + 1)
