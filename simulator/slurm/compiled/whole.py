"""Looking ahead where nodes are taken whole, so that no node is ever held by two jobs. Compiled.

A node is then ready for every shape when the job on it has ended, so sets of nodes can be combined 64 at a time and no
node is looked at by itself. `simulator.slurm.compiled.ahead` asks here where `Knobs.whole_nodes` is 1.

Example: jobs on {n1, n2}, {n3} and {n4}, expected to end at 10, 25 and 50, and a job that wants three nodes. Known by
second 30 are two rows, whose nodes n1, n2 and n3 are in row EARLY; the row that makes the third of them ready is the
second, at 25.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.slurm.compiled.bits import count_bits
from simulator.slurm.compiled.slots import KNOWN, READY
from simulator.slurm.compiled.state import EARLY, HOLDING, RUNNING_ROWS, USABLE, Run, State


@kernel
def add_ended_by(run: Run, state: State, shape: int, known: int, until: int) -> int:
    """Add to row EARLY the nodes of jobs that are expected to end by `until`.

    The first `known` rows of State.planned are in it already; returns how many are then.
    """
    words, planned = run.scratch.words, state.planned
    while known < state.scalars[RUNNING_ROWS] and planned[known, 0] <= until:
        slot = planned[known, 2]
        for w in range(words.shape[1]):
            words[EARLY, w] |= state.held[slot, w] & run.tables.shape_nodes[shape, w]
        known += 1
    return known


@kernel
def row_that_completes(run: Run, state: State, shape: int, wanted: int) -> int:
    """The row of State.planned whose end makes the last of `wanted` usable nodes ready; it is one of those known."""
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
def hold_when_ended(run: Run, state: State, shape: int, last: int) -> None:
    """Row HOLDING: the usable nodes that hold a share of `shape` once jobs up to row `last` of State.planned ended."""
    words = run.scratch.words
    for w in range(words.shape[1]):
        words[HOLDING, w] = run.scratch.idle[shape, w]
    for i in range(last + 1):
        slot = state.planned[i, 2]
        for w in range(words.shape[1]):
            words[HOLDING, w] |= state.held[slot, w]
    for w in range(words.shape[1]):
        words[HOLDING, w] &= words[USABLE, w] & run.tables.shape_nodes[shape, w]
