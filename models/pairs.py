"""The pair table: one predecessor at a time in a continuous replay of a trace, and every submit time of its successor.

For each start the replay is branched at P's submission; along that branch, at every decision instant, what is visible
is observed and a second branch answers "when would S start if it were submitted now". A branch
costs what is alive in the cluster, so a table of all submit times of all pairs of a month takes seconds.

A decision at t sees everything before t, and a successor submitted at t competes at t: one that is submitted at P's
exact end may take P's nodes without a gap. The work is compiled; pairs are cut into chunks that run in threads.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from features import observe
from models.protocol import PairTable
from simulator.compiled import kernel, njit
from simulator.flat.kernel import NO_ROOM, advance, new_state, submit
from simulator.flat.replay import checked_knobs
from simulator.flat.state import (
    ARRIVALS,
    INJECTED_JOB,
    NEVER,
    NEXT_ARRIVAL,
    NONE,
    QUEUE_ESTIMATE,
    QUEUE_HEAD,
    QUEUE_JOB,
    QUEUE_SIZE,
    QUEUE_SUBMIT,
    QUEUE_TAIL,
    RUNNING,
    RUNNING_END,
    RUNNING_EXPECTED_END,
    RUNNING_JOB,
    RUNNING_SIZE,
    RUNNING_START,
    Jobs,
    Knobs,
    State,
    copy_state,
)
from simulator.workload import Workload
from traces.errors import InputError
from traces.files.whole import whole_file
from traces.progress import Progress

Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

DAY_S = 86400
RECENT = observe.RECENT

# The agent runs these as they are; here numba compiles the same functions.
for _function in observe.CALLED_BY_FILL:
    register_jitable(_function)
_fill = njit(observe.fill)


class History(NamedTuple):
    """The jobs that started last and ended last, each in a ring of RECENT, and working memory for `_step`."""

    counts: Int64s  # (2,) started, ended so far
    started: Int64s  # (RECENT, 3) start, wait, nodes
    ended_use: Float64s  # (RECENT,) run time over limit
    mark: Int64s  # (jobs, 2) stamp of the last step at whose end the job was pending, and was running
    stamp: Int64s  # (1,)
    events: Int64s  # (room, 2) time and row, sorted by time


def _new_history(rows: int, room: int) -> History:
    return History(
        np.zeros(2, np.int64),
        np.zeros((RECENT, 3), np.int64),
        np.zeros(RECENT),
        np.zeros((rows, 2), np.int64),
        np.zeros(1, np.int64),
        np.empty((room, 2), np.int64),
    )


@kernel
def _copy_history(target: History, source: History) -> None:
    for i in range(2):
        target.counts[i] = source.counts[i]
    for i in range(RECENT):  # a loop: numba compiles the assignment of slices for seconds
        for k in range(3):
            target.started[i, k] = source.started[i, k]
        target.ended_use[i] = source.ended_use[i]


@kernel
def _sort_by_time(events: Int64s, count: int) -> None:
    """By time, then row: an order that does not depend on where steps end. Few and nearly in order: insertion."""
    for i in range(1, count):
        time, row = events[i, 0], events[i, 1]
        k = i
        while k > 0 and (events[k - 1, 0] > time or (events[k - 1, 0] == time and events[k - 1, 1] > row)):
            events[k, 0], events[k, 1] = events[k - 1, 0], events[k - 1, 1]
            k -= 1
        events[k, 0], events[k, 1] = time, row


@kernel
def _run_of(jobs: Jobs, knobs: Knobs, row: int) -> int:
    if knobs.kill == 1:
        return int(min(jobs.run_s[row], jobs.limit_s[row]))
    return int(jobs.run_s[row])


@kernel
def _step(
    jobs: Jobs, knobs: Knobs, state: State, before: State, starts: Int64s, history: History, until_s: int, stop_job: int
) -> int:
    """`advance`, and the history kept: who started and who ended meanwhile. `before` is scratch for a copy."""
    copy_state(before, state)
    result = advance(jobs, knobs, state, starts, until_s, stop_job)
    if result == NO_ROOM:
        return NO_ROOM
    history.stamp[0] += 1
    stamp = history.stamp[0]
    for i in range(state.scalars[QUEUE_HEAD], state.scalars[QUEUE_TAIL]):
        history.mark[state.queue[i, QUEUE_JOB], 0] = stamp
    for i in range(state.scalars[RUNNING]):
        history.mark[state.running[i, RUNNING_JOB], 1] = stamp

    events = history.events
    started = 0  # was pending or arrived, and is pending no more
    pending = before.scalars[QUEUE_TAIL]
    first_arrival, next_arrival = before.scalars[NEXT_ARRIVAL], state.scalars[NEXT_ARRIVAL]
    for i in range(pending + next_arrival - first_arrival):
        row = before.queue[i, QUEUE_JOB] if i < pending else first_arrival + i - pending
        if history.mark[row, 0] != stamp:
            events[started, 0], events[started, 1] = starts[row], row
            started += 1
    injected = before.scalars[INJECTED_JOB]
    if injected != NONE and state.scalars[INJECTED_JOB] == NONE and history.mark[injected, 0] != stamp:
        events[started, 0], events[started, 1] = starts[injected], injected
        started += 1
    _sort_by_time(events, started)
    for i in range(max(0, started - RECENT), started):
        row = events[i, 1]
        slot = history.counts[0] % RECENT
        submitted = jobs.submit_s[row]
        history.started[slot, 0], history.started[slot, 1] = events[i, 0], events[i, 0] - submitted
        history.started[slot, 2] = jobs.size[row]
        history.counts[0] += 1

    ended = 0  # ran before or just started, and runs no more; reuses the list
    for i in range(started):
        row = events[i, 1]
        if history.mark[row, 1] != stamp:
            events[ended, 0], events[ended, 1] = events[i, 0] + _run_of(jobs, knobs, row), row
            ended += 1
    for i in range(before.scalars[RUNNING]):  # `starts` need not know these: they may have started before the branch
        row = before.running[i, RUNNING_JOB]
        if history.mark[row, 1] != stamp:
            events[ended, 0], events[ended, 1] = before.running[i, RUNNING_END], row
            ended += 1
    _sort_by_time(events, ended)
    for i in range(max(0, ended - RECENT), ended):
        row = events[i, 1]
        history.ended_use[history.counts[1] % RECENT] = _run_of(jobs, knobs, row) / jobs.limit_s[row]
        history.counts[1] += 1
    return result


@njit
def _observe(
    out: Float32s, jobs: Jobs, node_s: Int64s, knobs: Knobs, state: State, history: History, now: int, pair: Int64s
) -> None:
    """The observation of `state` at `now`. pair: start, wait and end of P, nodes and limit of S."""
    head, tail, running = state.scalars[QUEUE_HEAD], state.scalars[QUEUE_TAIL], state.scalars[RUNNING]
    queue, alive = state.queue[head:tail], state.running[:running]
    recent, ended = min(history.counts[0], RECENT), min(history.counts[1], RECENT)
    arrived = state.scalars[NEXT_ARRIVAL]
    first = np.searchsorted(jobs.submit_s[: state.scalars[ARRIVALS]], now - DAY_S)
    seen = observe.Snapshot(
        now,
        knobs.capacity,
        queue[:, QUEUE_SIZE],
        queue[:, QUEUE_ESTIMATE],
        queue[:, QUEUE_SUBMIT],
        alive[:, RUNNING_SIZE],
        alive[:, RUNNING_EXPECTED_END] - alive[:, RUNNING_START],
        alive[:, RUNNING_START],
        history.started[:recent, 0],
        history.started[:recent, 1],
        history.started[:recent, 2],
        history.ended_use[:ended],
        jobs.submit_s[first:arrived],
        node_s[first:arrived],
        pair[0],
        pair[1],
        pair[2],
        pair[3],
        pair[4],
    )
    _fill(out, seen)


@njit
def _chunk(
    jobs: Jobs,
    node_s: Int64s,
    knobs: Knobs,
    states: tuple[State, State, State, State],
    histories: tuple[History, History],
    starts: tuple[Int64s, Int64s, Int64s],
    predecessor: int,
    submits_s: Int64s,
    instants_s: Int64s,
    times: Int64s,
    successor_start_s: Int64s,
    observations: Float32s,
) -> int:
    """Fill the rows of some pairs in order of submission; returns NO_ROOM if a queue outgrew its room, else 0.

    `predecessor` is the row of P in `jobs`, S is the next; no other chunk uses these two, the rest is shared.
    instants_s: (k,) decision instants after P's start; times: (pairs, 2) start and end of P;
    successor_start_s: (pairs, k); observations: (pairs, k, features).
    """
    base, branch, leaf, before = states
    of_base, of_branch = histories
    successor = predecessor + 1
    pair = np.empty(5, np.int64)
    for p in range(len(submits_s)):
        if _step(jobs, knobs, base, before, starts[0], of_base, submits_s[p] - 1, NONE) == NO_ROOM:
            return NO_ROOM
        copy_state(branch, base)
        _copy_history(of_branch, of_base)
        jobs.submit_s[predecessor] = submits_s[p]
        submit(jobs, knobs, branch, predecessor, submits_s[p])
        start = _step(jobs, knobs, branch, before, starts[1], of_branch, NEVER, predecessor)
        if start == NO_ROOM:
            return NO_ROOM
        end = start + jobs.limit_s[predecessor]
        times[p, 0], times[p, 1] = start, end
        pair[0], pair[1], pair[2] = start, start - submits_s[p], end
        pair[3], pair[4] = jobs.size[successor], jobs.limit_s[successor]
        for k in range(len(instants_s)):
            now = start + instants_s[k]
            if _step(jobs, knobs, branch, before, starts[1], of_branch, max(now - 1, start), NONE) == NO_ROOM:
                return NO_ROOM
            _observe(observations[p, k], jobs, node_s, knobs, branch, of_branch, now, pair)
            copy_state(leaf, branch)
            submit(jobs, knobs, leaf, successor, now)
            successor_start_s[p, k] = advance(jobs, knobs, leaf, starts[2], NEVER, successor)
            if successor_start_s[p, k] == NO_ROOM:
                return NO_ROOM
    return 0


def build_pairs(
    workload: Workload,
    *,
    capacity: int,
    scheduler: str,
    submits_s: Int64s,
    pair_nodes: int,
    limit_s: int,
    decision_s: int = 600,
    threads: int | None = None,
) -> PairTable:
    """Every pair whose P is submitted at one of `submits_s` (ascending epoch s), each with all its decisions.

    Deterministic, whatever the number of threads. Raises InputError for a pair that the cluster cannot hold.
    """
    if not 1 <= pair_nodes <= capacity:
        raise InputError(f"pairs of {pair_nodes} nodes on a cluster of {capacity}: give --pair-nodes 1 to {capacity}")
    if limit_s < decision_s:
        raise InputError(f"a limit of {limit_s} s is shorter than the {decision_s} s between decisions")
    submits_s = np.ascontiguousarray(submits_s, np.int64)
    instants_s = np.unique(np.append(np.arange(0, limit_s, decision_s), limit_s)).astype(np.int64)
    pairs, instants = len(submits_s), len(instants_s)
    times = np.zeros((pairs, 2), np.int64)
    successor_start_s = np.empty((pairs, instants), np.int64)
    observations = np.zeros((pairs, instants, len(observe.FEATURES)), np.float32)
    knobs = checked_knobs(scheduler=scheduler, capacity=capacity, kill_at_limit=True)
    cuts = np.linspace(0, pairs, min(threads or os.cpu_count() or 1, max(pairs, 1)) + 1).astype(int)

    threads = len(cuts) - 1
    jobs, node_s = _with_pairs(workload, pair_nodes, limit_s, threads)  # one trace for all threads

    def run(chunk: slice, thread: int) -> None:
        room = 1024
        while True:
            rows, alive = len(jobs.size), min(len(workload) + 2, capacity)
            result = _chunk(
                jobs,
                node_s,
                knobs,
                tuple(new_state(knobs, len(workload), room, alive) for _ in range(4)),  # type: ignore[arg-type]
                (_new_history(rows, rows + alive), _new_history(rows, rows + alive)),
                (np.full(rows, NONE), np.full(rows, NONE), np.full(rows, NONE)),
                len(workload) + 2 * thread,
                submits_s[chunk],
                instants_s,
                times[chunk],
                successor_start_s[chunk],
                observations[chunk],
            )
            if result != NO_ROOM:
                return
            room *= 2

    run(slice(0, 0), 0)  # compiles here: numba's compiler is not safe in threads
    with (
        ThreadPoolExecutor(threads) as pool,
        Progress(f"pairs of {pair_nodes} nodes on {capacity}", pairs, stays=False) as progress,
    ):
        work = [pool.submit(run, slice(a, b), k) for k, (a, b) in enumerate(itertools.pairwise(cuts))]
        while wait(work, timeout=1).not_done:
            progress.reach(int(np.count_nonzero(times[:, 1])))
        for done in work:
            done.result()
    return PairTable(
        np.full(pairs, pair_nodes, np.int64),
        np.full(pairs, limit_s, np.int64),
        submits_s,
        times[:, 0].copy(),
        times[:, 1].copy(),
        np.arange(pairs + 1, dtype=np.int64) * instants,
        (times[:, :1] + instants_s).ravel(),
        successor_start_s.ravel(),
        observations.reshape(pairs * instants, len(observe.FEATURES)),
    )


def _with_pairs(workload: Workload, nodes: int, limit_s: int, threads: int) -> tuple[Jobs, Int64s]:
    """The workload's jobs, then P and S of each thread, which run their full limit; and nodes x limit of each (s)."""
    rows = 2 * threads
    size = np.append(workload.size, np.full(rows, nodes)).astype(np.int64)
    limit = np.append(workload.limit_s, np.full(rows, limit_s)).astype(np.int64)
    run = np.append(workload.run_s, np.full(rows, limit_s)).astype(np.int64)
    submitted = np.append(workload.submit_s, np.zeros(rows, np.int64)).astype(np.int64)
    return Jobs(submitted, size, run, limit), size * limit


def save(pairs: PairTable, path: Path) -> None:
    """Write the table as one compressed .npz, atomically."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **{name: getattr(pairs, name) for name in pairs.__dataclass_fields__})


def load(path: Path) -> PairTable:
    """Read what `save` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return PairTable(**{name: arrays[name] for name in PairTable.__dataclass_fields__})
