"""Build the pair table of injected pairs: replay a trace, insert one predecessor at a time, try every submit time.

For each start the replay is branched at P's submission. At every decision instant along that branch the visible state
is observed, and a second branch finds when S would start if it were submitted now. The cost of a branch depends on the
live jobs in the cluster. Under a quick scheduler, a table of all submit times of all pairs of a month takes seconds.

A decision at t sees everything before t, and a successor submitted at t competes at t. A successor submitted at P's
exact end may therefore take P's nodes without a gap. The work is compiled, for any world of `simulator.cluster`. Pairs
are cut into chunks that run in threads.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numba.extending import register_jitable

from features import observe
from features.snapshot import world_snapshot
from models.provisioning.protocol import PairTable
from simulator.cluster import (
    NO_ROOM,
    NONE,
    Branch,
    Build,
    Cluster,
    Visible,
    advance,
    copy,
    place_of,
    start_of,
    submit,
    visible_state,
)
from simulator.compiled import njit
from traces.arrays import Float32s, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.files.whole import whole_file
from traces.progress import Progress

_FIRST_ROOM = 1024  # jobs waiting at once; doubled if there are more

# The agent runs these functions as plain Python; here numba compiles them.
for _function in (world_snapshot, *observe.CALLED_BY_FILL):
    register_jitable(_function)
_fill = njit(observe.fill)


@njit
def write_observation(
    out: Float32s, seen: Visible, now: int, pair: tuple[int, int, int, int, int, int], place: int
) -> None:
    """Write the observation at `now`; pair and place as `world_snapshot` takes them."""
    _fill(out, world_snapshot(seen, now, pair, place))


@njit
def _chunk(
    cluster: Cluster,
    branches: tuple[Branch, Branch, Branch],
    predecessor: int,
    pair_nodes: int,
    limit_s: int,
    user: int,
    submits_s: Int64s,
    instants_s: Int64s,
    times: Int64s,
    successor_start_s: Int64s,
    observations: Float32s,
) -> int:
    """Fill the rows of some pairs in order of submission. Returns 0, NO_ROOM, or NONE if P or S would never start.

    branches: the trace without pairs, with P, and with P and S. `predecessor` is the row of P, and S is the next row;
    no other chunk uses these two. instants_s: (k,) decision instants after P's start; times: (pairs, 2) start and end
    of P; successor_start_s: (pairs, k); observations: (pairs, k, features).
    """
    base, branch, leaf = branches
    successor = predecessor + 1
    for p in range(len(submits_s)):
        if advance(cluster, base, submits_s[p] - 1) != 0:
            return NO_ROOM
        copy(cluster, branch, base)
        submit(cluster, branch, predecessor, submits_s[p])
        start = start_of(cluster, branch, predecessor)
        if start < 0:
            return start
        end = start + limit_s
        times[p, 0], times[p, 1] = start, end
        pair = (start, start - submits_s[p], end, pair_nodes, limit_s, user)
        for k in range(len(instants_s)):
            now = start + instants_s[k]
            if advance(cluster, branch, max(now - 1, start)) != 0:
                return NO_ROOM
            seen = visible_state(cluster, branch, now)
            write_observation(observations[p, k], seen, now, pair, place_of(cluster, branch, successor, now))
            copy(cluster, leaf, branch)
            submit(cluster, leaf, successor, now)
            successor_start_s[p, k] = start_of(cluster, leaf, successor)
            if successor_start_s[p, k] < 0:
                return int(successor_start_s[p, k])
    return 0


def build_pairs(
    build: Build,
    *,
    submits_s: Int64s,
    pair_nodes: int,
    limit_s: int,
    decision_s: int = 600,
    threads: int | None = None,
) -> PairTable:
    """Build the table of all pairs whose P is submitted at one of `submits_s` (ascending epoch s), with all decisions.

    `build` makes the simulated cluster (`simulator.cluster.plain`). The result does not depend on the number of
    threads. Raises InputError for a pair that the cluster cannot hold.

    Over 50 lines: the table's arrays are laid out, filled by threads and returned, and each step needs all of them.
    """
    if limit_s < decision_s:
        raise InputError(f"a limit of {limit_s} s is shorter than the {decision_s} s between decisions")
    submits_s = np.ascontiguousarray(submits_s, np.int64)
    instants_s = np.unique(np.append(np.arange(0, limit_s, decision_s), limit_s)).astype(np.int64)
    pairs, instants = len(submits_s), len(instants_s)
    times = np.zeros((pairs, 2), np.int64)
    successor_start_s = np.empty((pairs, instants), np.int64)
    observations = np.zeros((pairs, instants, len(observe.FEATURES)), np.float32)
    cuts = np.linspace(0, pairs, min(threads or os.cpu_count() or 1, max(pairs, 1)) + 1).astype(int)
    threads = len(cuts) - 1
    world = build(extra=2 * threads, nodes=pair_nodes, limit_s=limit_s, threads=threads)  # one trace for all threads
    most = world.most_nodes
    if not 1 <= pair_nodes <= most:
        raise InputError(
            f"pairs of {counted(pair_nodes, 'node')} on a cluster of {most}: give --pair-nodes 1 to {most}"
        )

    def run(chunk: slice, thread: int) -> None:
        room = _FIRST_ROOM
        while True:
            result = _chunk(
                world.clusters[thread],
                (world.branch(room, observe.RECENT), world.branch(room, observe.RECENT), world.branch(room, 0)),
                world.first_extra + 2 * thread,
                pair_nodes,
                limit_s,
                world.user,
                submits_s[chunk],
                instants_s,
                times[chunk],
                successor_start_s[chunk],
                observations[chunk],
            )
            if result == NONE:
                raise InputError(
                    f"a job of {counted(pair_nodes, 'node')} submitted among the others never starts on the simulated "
                    "cluster: give another --pair-nodes or --limit"
                )
            if result != NO_ROOM:
                return
            room *= 2

    run(slice(0, 0), 0)  # compiles here: numba's compiler is not safe in threads
    with (
        ThreadPoolExecutor(threads) as pool,
        Progress(f"pairs of {counted(pair_nodes, 'node')} on {most}", pairs, stays=False, each=True) as progress,
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
        np.full(pairs, NONE),
        np.arange(pairs + 1, dtype=np.int64) * instants,
        (times[:, :1] + instants_s).ravel(),
        successor_start_s.ravel(),
        observations.reshape(pairs * instants, len(observe.FEATURES)),
    )


def save(pairs: PairTable, path: Path) -> None:
    """Write the table as one compressed .npz, atomically."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **{name: getattr(pairs, name) for name in pairs.__dataclass_fields__})


def load(path: Path) -> PairTable:
    """Read what `save` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return PairTable(**{name: arrays[name] for name in PairTable.__dataclass_fields__ if name in arrays})
