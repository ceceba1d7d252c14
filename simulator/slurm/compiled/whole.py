"""Looking ahead where nodes are taken whole, so that no node is ever held by two jobs. Compiled.

A node then holds a share when the job on it has ended, whatever the share: sets of nodes say all, and none is looked at
by itself. `simulator.slurm.compiled.ahead` asks here where `Knobs.whole_nodes` is 1.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.slurm.compiled.bits import count_bits
from simulator.slurm.compiled.slots import KNOWN, READY
from simulator.slurm.compiled.state import EARLY, HOLDING, RUNNING_ROWS, USABLE, Run, State


@kernel
def know_ends(run: Run, state: State, shape: int, known: int, until: int) -> int:
    """Add to row EARLY the nodes of jobs that end by `until`; `known` rows of State.planned are in, then the result."""
    words, planned = run.scratch.words, state.planned
    while known < state.scalars[RUNNING_ROWS] and planned[known, 0] <= until:
        slot = planned[known, 2]
        for w in range(words.shape[1]):
            words[EARLY, w] |= state.held[slot, w] & run.tables.shape_nodes[shape, w]
        known += 1
    return known


@kernel
def row_of_last(run: Run, state: State, shape: int, wanted: int) -> int:
    """The row of State.planned whose end makes the last of `wanted` usable nodes ready, of the rows that are known."""
    words = run.scratch.words
    known, ready_usable = int(run.scratch.slots[KNOWN]), int(run.scratch.slots[READY])
    while ready_usable >= wanted:
        known -= 1
        slot = state.planned[known, 2]
        for w in range(words.shape[1]):
            held = state.held[slot, w] & run.tables.shape_nodes[shape, w]
            ready_usable -= count_bits(held & words[USABLE, w])
    return known


@kernel
def hold_after(run: Run, state: State, shape: int, last: int) -> None:
    """Row HOLDING: the usable nodes that hold a share of `shape` when rows up to `last` of State.planned have ended."""
    words = run.scratch.words
    for w in range(words.shape[1]):
        words[HOLDING, w] = run.scratch.idle[shape, w]
    for i in range(last + 1):
        slot = state.planned[i, 2]
        for w in range(words.shape[1]):
            words[HOLDING, w] |= state.held[slot, w]
    for w in range(words.shape[1]):
        words[HOLDING, w] &= words[USABLE, w] & run.tables.shape_nodes[shape, w]
