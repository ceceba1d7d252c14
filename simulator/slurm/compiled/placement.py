"""Placement as in select/cons_tres: choose nodes for a job, and update nodes at starts and ends. Compiled."""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.slurm.compiled.bits import add_range, count_bits, lowest_bit
from simulator.slurm.compiled.state import (
    DRAINED,
    DRAINS,
    EMPTY,
    EXCLUSIVE,
    HOLDING,
    IDLE_CPUS,
    IDLE_GPUS,
    IDLE_MEMORY,
    JOBS,
    NODE_COLUMNS,
    ON_NODES,
    OUT,
    SERVICE,
    SlurmRun,
    SlurmState,
    Tables,
)
from simulator.slurm.world import NONE
from traces.arrays import Int64s

_FIRST, _LAST, _NODES, _WEIGHT = 0, 1, 2, 3  # columns of SlurmScratch.runs


@kernel_inline
def share_of(tables: Tables, shape: int) -> tuple[int, int, int, int]:
    """Return the share of `shape` on a node: CPUs, MB, GPUs, and the largest `JOBS` that the node may have before."""
    share = tables.shape_share
    most_jobs = 0 if tables.shape_exclusive[shape] else EXCLUSIVE - 1
    return int(share[shape, 0]), int(share[shape, 1]), int(share[shape, 2]), most_jobs


@kernel_inline
def holds(node: Int64s, n: int, share: tuple[int, int, int, int]) -> bool:
    """Whether node `n`, one of the shape's nodes, holds the share now; `node` is `SlurmState.node` or a copy.

    An empty node has everything that an exclusive job's share asks for, so one test serves both kinds of job.
    """
    return bool(
        node[n, IDLE_GPUS] >= share[2]
        and node[n, IDLE_CPUS] >= share[0]
        and node[n, IDLE_MEMORY] >= share[1]
        and node[n, JOBS] <= share[3]
    )


@kernel_inline
def count(words: Int64s, row: int) -> int:
    """Return the number of nodes in a row of words."""
    total = 0
    for w in range(words.shape[1]):
        total += count_bits(words[row, w])
    return total


@kernel_inline
def contains(words: Int64s, row: int, n: int) -> bool:
    """Whether node `n` is in the set that a row of words represents."""
    return bool((words[row, n >> 6] >> (n & 63)) & 1)


@kernel_inline
def add(words: Int64s, row: int, n: int) -> None:
    """Add node `n` to the set that a row of words represents."""
    words[row, n >> 6] |= 1 << (n & 63)


@kernel_inline
def nodes_changed(run: SlurmRun) -> None:
    """Invalidate cached results about nodes: a job started or left, or nodes went out of or into service."""
    run.scratch.stamp[ON_NODES] += 1


@kernel
def find_idle(run: SlurmRun, state: SlurmState, shape: int) -> int:
    """Fill row `shape` of `SlurmScratch.idle` with the nodes of row SERVICE that hold a share now; return how many."""
    scratch = run.scratch
    if scratch.idle_stamp[shape] != scratch.stamp[ON_NODES]:
        scratch.idle_stamp[shape] = scratch.stamp[ON_NODES]
        idle, share, whole = scratch.idle, share_of(run.tables, shape), run.knobs.whole_nodes != 0
        total = 0
        for w in range(idle.shape[1]):
            bits = run.tables.shape_nodes[shape, w] & scratch.words[SERVICE, w]
            holding = bits & state.sets[EMPTY, w]
            if not whole:
                holding = 0
                while bits != 0:
                    if holds(state.node, (w << 6) + lowest_bit(bits), share):
                        holding |= bits & -bits
                    bits &= bits - 1
            idle[shape, w] = holding
            total += count_bits(holding)
        scratch.idle_nodes[shape] = total
    return int(scratch.idle_nodes[shape])


@kernel_inline
def hold_now(run: SlurmRun, state: SlurmState, shape: int, row: int, wanted: int) -> bool:
    """Whether `wanted` nodes of row `row`, all in service, hold a share of `shape` now; if so, fill row HOLDING."""
    if find_idle(run, state, shape) < wanted:
        return False
    words, total = run.scratch.words, 0
    for w in range(words.shape[1]):
        words[HOLDING, w] = run.scratch.idle[shape, w] & words[row, w]
        total += count_bits(words[HOLDING, w])
    return total >= wanted


@kernel
def choose(run: SlurmRun, node: Int64s, available: int, chosen: int, shape: int, wanted: int) -> bool:
    """Choose `wanted` nodes for a share of `shape` from row `available` of `SlurmScratch.words` into row `chosen`.

    Returns False, with row `chosen` undefined, if too few hold the share in `node`.
    """
    words, able, share = run.scratch.words, run.tables.shape_nodes, share_of(run.tables, shape)
    for w in range(words.shape[1]):
        bits = words[available, w] & able[shape, w]
        holding = 0
        while bits != 0:
            if holds(node, (w << 6) + lowest_bit(bits), share):
                holding |= bits & -bits
            bits &= bits - 1
        words[HOLDING, w] = holding
    return pick(run, node, chosen, shape, wanted)


@kernel
def pick(run: SlurmRun, node: Int64s, chosen: int, shape: int, wanted: int) -> bool:
    """Choose `wanted` nodes from row HOLDING, all of which hold a share of `shape`; return False if there are too few.

    Runs of neighbouring nodes of one weight are used best fit first, as `_eval_nodes` of select/cons_tres does. Where
    jobs are spread, the choice depends on the idle CPUs in `node`.
    """
    tables, words, runs = run.tables, run.scratch.words, run.scratch.runs
    if count(words, HOLDING) < wanted:
        return False
    runs_used = 0
    last = -2
    for w in range(words.shape[1]):
        words[chosen, w] = 0
        bits, changes = words[HOLDING, w], tables.weight_changes[w]
        while bits != 0:
            at = lowest_bit(bits)
            n = (w << 6) + at
            if n != last + 1 or (changes >> at) & 1:
                runs[runs_used, _FIRST], runs[runs_used, _WEIGHT] = n, tables.node_weight[n]
                runs_used += 1
            # The run ends before the next node that is missing or has another weight, or with the word.
            stop = (~bits >> at | changes >> at) & ~1
            last = (w << 6) + 63
            if stop != 0:
                last = n + lowest_bit(stop) - 1
            runs[runs_used - 1, _LAST] = last
            runs[runs_used - 1, _NODES] = last + 1 - runs[runs_used - 1, _FIRST]
            beyond = last + 1 - (w << 6)
            bits = bits >> beyond << beyond if beyond <= 63 else 0
    if tables.least_loaded[tables.shape_partition[shape]]:
        _spread(run, node, runs_used, chosen, wanted)
    else:
        _pack(run, runs_used, chosen, wanted)
    return True


@kernel_part
def _pack(run: SlurmRun, runs_used: int, chosen: int, wanted: int) -> None:
    words, runs = run.scratch.words, run.scratch.runs
    missing = wanted
    while missing > 0:
        best = NONE
        for k in range(runs_used):
            if runs[k, _NODES] == 0:
                continue
            enough = runs[k, _NODES] >= missing
            better = best == NONE
            if not better and runs[k, _WEIGHT] != runs[best, _WEIGHT]:
                better = runs[k, _WEIGHT] < runs[best, _WEIGHT]
            elif not better and enough != (runs[best, _NODES] >= missing):
                better = enough
            elif not better and enough:
                better = runs[k, _NODES] < runs[best, _NODES]
            elif not better:
                better = runs[k, _NODES] > runs[best, _NODES]
            if better:
                best = k
        add_range(words, chosen, runs[best, _FIRST], min(runs[best, _LAST], runs[best, _FIRST] + missing - 1))
        missing -= runs[best, _NODES]
        runs[best, _NODES] = 0


@kernel_part
def _spread(run: SlurmRun, node: Int64s, runs_used: int, chosen: int, wanted: int) -> None:
    words, runs, weight = run.scratch.words, run.scratch.runs, run.tables.node_weight
    for _ in range(wanted):
        best = NONE
        for k in range(runs_used):
            for n in range(runs[k, _FIRST], runs[k, _LAST] + 1):
                if contains(words, chosen, n):
                    continue
                if (
                    best == NONE
                    or weight[n] < weight[best]
                    or (weight[n] == weight[best] and node[n, IDLE_CPUS] > node[best, IDLE_CPUS])
                ):
                    best = n
        add(words, chosen, best)


@kernel_part
def occupy(run: SlurmRun, node: Int64s, n: int, shape: int) -> None:
    """Take a share of `shape` from node `n`."""
    tables = run.tables
    if tables.shape_exclusive[shape]:
        for column in range(3):
            node[n, column] -= tables.node_size[n, column]
        node[n, JOBS] += EXCLUSIVE
    else:
        for column in range(3):
            node[n, column] -= tables.shape_share[shape, column]
        node[n, JOBS] += 1


@kernel_inline
def vacate(run: SlurmRun, node: Int64s, n: int, shape: int) -> None:
    """Return a share of `shape` to node `n`."""
    tables = run.tables
    if tables.shape_exclusive[shape]:
        for column in range(3):
            node[n, column] += tables.node_size[n, column]
        node[n, JOBS] -= EXCLUSIVE
    else:
        for column in range(3):
            node[n, column] += tables.shape_share[shape, column]
        node[n, JOBS] -= 1


@kernel_inline
def copy_nodes(run: SlurmRun, state: SlurmState) -> None:
    """Copy the nodes to `SlurmScratch.node` for looking ahead."""
    node = run.scratch.node
    for n in range(len(node)):
        for column in range(NODE_COLUMNS):
            node[n, column] = state.node[n, column]


@kernel_inline
def in_service(run: SlurmRun, state: SlurmState, row: int) -> None:
    """Fill row `row` of `SlurmScratch.words` with the nodes that are neither drained nor out for capacity."""
    words = run.scratch.words
    for w in range(words.shape[1]):
        words[row, w] = ~(state.sets[OUT, w] | state.sets[DRAINED, w])


@kernel
def drain(state: SlurmState, outage_nodes: Int64s, row: int, change: int) -> None:
    """Begin (+1) or end (-1) a drain of the nodes in row `row` of `outage_nodes`; drains may overlap."""
    for w in range(outage_nodes.shape[1]):
        bits = outage_nodes[row, w]
        while bits != 0:
            position = lowest_bit(bits)
            bits &= bits - 1
            n = (w << 6) + position
            state.node[n, DRAINS] += change
            if state.node[n, DRAINS] > 0:
                state.sets[DRAINED, w] |= 1 << position
            else:
                state.sets[DRAINED, w] &= ~(1 << position)
