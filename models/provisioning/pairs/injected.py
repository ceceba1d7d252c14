"""Build the pair table of injected pairs: replay a trace, insert one predecessor at a time, try every submit time.

For each start the replay is branched at P's submission. At every decision instant along that branch the visible state
is observed, and a second branch finds when S would start if it were submitted now. The cost of a branch depends on the
live jobs in the cluster. Under a quick scheduler, a table of all submit times of all pairs of a month takes seconds.

A decision at t sees everything before t, and a successor submitted at t competes at t. A successor submitted at P's
exact end may therefore take P's nodes without a gap. The work is compiled, for any world of `simulator.cluster`. Pairs
are cut into chunks, which are the tasks of an engine.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from features import observe
from features.snapshot import world_snapshot
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
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
CHUNK = 256  # pairs
DECISION_S = 4e-5  # rough time of a decision: 1e-5 if few jobs wait, 2e-4 if many do

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
def observe_branch(
    cluster: Cluster, branch: Branch, now: int, row: int, pair: tuple[int, int, int, int, int, int], out: Float32s
) -> None:
    """Write the observation in a branch at `now` before extra row `row` is submitted; pair as `world_snapshot`."""
    write_observation(out, visible_state(cluster, branch, now), now, pair, place_of(cluster, branch, row, now))


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
    engine: Engine = each_here,
) -> PairTable:
    """Build the table of all pairs whose P is submitted at one of `submits_s` (ascending epoch s), with all decisions.

    `build` makes the simulated cluster (`simulator.cluster.plain`). The result does not depend on the engine. Raises
    InputError for a pair that the cluster cannot hold.
    """
    if limit_s < decision_s:
        raise InputError(f"a limit of {limit_s} s is shorter than the {decision_s} s between decisions")
    submits_s = np.ascontiguousarray(submits_s, np.int64)
    instants_s = np.unique(np.append(np.arange(0, limit_s, decision_s), limit_s)).astype(np.int64)
    pairs, instants = len(submits_s), len(instants_s)
    most = build(extra=2, nodes=pair_nodes, limit_s=limit_s, threads=1).most_nodes
    check_nodes(pair_nodes, most)
    chunks = chunks_of(pairs)
    tasks = [Task(f"pairs {part.start} to {part.stop}", submits_s[part], str(pair_nodes)) for part in chunks]
    injected = InjectedPairs(build, pair_nodes, limit_s, instants_s)
    about_s = DECISION_S * pairs * instants
    work = Work(build_chunk, tasks, injected, prepare=compile_pairs, is_compiled=True, about_s=about_s)
    times = np.zeros((pairs, 2), np.int64)
    successor_start_s = np.empty((pairs, instants), np.int64)
    observations = np.zeros((pairs, instants, len(observe.FEATURES)), np.float32)
    about = f"pairs of {counted(pair_nodes, 'node')} on {most}"
    with Progress(about, pairs, stays=False, each=True) as progress:
        progress.reach(0)
        for at, found in engine(work, sys.maxsize):
            times[chunks[at]], successor_start_s[chunks[at]], observations[chunks[at]] = found
            progress.reach(int(np.count_nonzero(times[:, 1])))
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


def check_nodes(pair_nodes: int, most: int) -> None:
    """Raise InputError for injected jobs of more nodes than the cluster's `most`, or of none."""
    if not 1 <= pair_nodes <= most:
        raise InputError(
            f"pairs of {counted(pair_nodes, 'node')} on a cluster of {most}: give --pair-nodes 1 to {most}"
        )


def never_starts(pair_nodes: int) -> InputError:
    """The error for an injected job that never starts."""
    return InputError(
        f"a job of {counted(pair_nodes, 'node')} submitted among the others never starts on the simulated cluster: "
        "give another --pair-nodes or --limit"
    )


class InjectedPairs(NamedTuple):
    """What the tasks share: one task fills the rows of some pairs in order of submission."""

    build: Build
    pair_nodes: int
    limit_s: int
    instants_s: Int64s  # (k,) decision instants after P's start


def chunks_of(pairs: int) -> list[slice]:
    """Cut pairs into chunks: at least one a processor, and about CHUNK pairs each; each replays the trace before it."""
    count = max(min(os.cpu_count() or 1, pairs), pairs // CHUNK, 1)
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(np.linspace(0, pairs, count + 1).astype(int))]


def compile_pairs(pairs: InjectedPairs) -> None:
    """Fill no row, because numba's compiler is not safe in threads."""
    build_chunk(pairs, np.zeros(0, np.int64))


def build_chunk(pairs: InjectedPairs, submits_s: Int64s) -> tuple[Int64s, Int64s, Float32s]:
    """Fill the rows of some pairs; returns times, starts of S and observations as `_chunk` fills them."""
    world = pairs.build(extra=2, nodes=pairs.pair_nodes, limit_s=pairs.limit_s, threads=1)
    shape = len(submits_s), len(pairs.instants_s)
    times, starts = np.zeros((len(submits_s), 2), np.int64), np.empty(shape, np.int64)
    observations = np.zeros((*shape, len(observe.FEATURES)), np.float32)
    room = _FIRST_ROOM
    while True:
        result = _chunk(
            world.clusters[0],
            (world.branch(room, observe.RECENT), world.branch(room, observe.RECENT), world.branch(room, 0)),
            world.first_extra,
            pairs.pair_nodes,
            pairs.limit_s,
            world.user,
            submits_s,
            pairs.instants_s,
            times,
            starts,
            observations,
        )
        if result == NONE:
            raise never_starts(pairs.pair_nodes)
        if result != NO_ROOM:
            return times, starts, observations
        room *= 2


def save(pairs: PairTable, path: Path) -> None:
    """Write the table as one compressed .npz, atomically."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **{name: getattr(pairs, name) for name in pairs.__dataclass_fields__})


def load(path: Path) -> PairTable:
    """Read what `save` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return PairTable(**{name: arrays[name] for name in PairTable.__dataclass_fields__ if name in arrays})
