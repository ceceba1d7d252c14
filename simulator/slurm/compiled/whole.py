"""Look ahead when all nodes are allocated whole, so two jobs never share a node. Compiled.

Then a node is ready for every shape as soon as its job has ended, and node sets can be combined 64 nodes at a time.
`simulator.slurm.compiled.ahead` uses these functions if `SlurmKnobs.whole_nodes` is 1.

Example: jobs on {n1, n2}, {n3} and {n4} are expected to end at 10, 25 and 50, and a job needs three nodes. By second 30
two rows have ended, and row EARLY holds their nodes n1, n2 and n3. The second of these rows, at 25, makes the third
node ready.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.slurm.compiled.bits import count_bits
from simulator.slurm.compiled.slots import KNOWN, READY
from simulator.slurm.compiled.state import EARLY, HOLDING, RUNNING_ROWS, USABLE, SlurmRun, SlurmState


@kernel
def add_ended_by(run: SlurmRun, state: SlurmState, shape: int, known: int, until: int) -> int:
    """Add the nodes of jobs that are expected to end by `until` to row EARLY.

    The first `known` rows of `SlurmState.planned` are in it already; returns the new number of rows.
    """
    words, planned = run.scratch.words, state.planned
    while known < state.scalars[RUNNING_ROWS] and planned[known, 0] <= until:
        slot = planned[known, 2]
        for w in range(words.shape[1]):
            words[EARLY, w] |= state.held[slot, w] & run.tables.shape_nodes[shape, w]
        known += 1
    return known


@kernel
def row_that_completes(run: SlurmRun, state: SlurmState, shape: int, wanted: int) -> int:
    """Return the known row of `SlurmState.planned` whose end makes the last of `wanted` usable nodes ready."""
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
def hold_when_ended(run: SlurmRun, state: SlurmState, shape: int, last: int) -> None:
    """Fill row HOLDING with the usable nodes that hold a share once jobs up to row `last` of `planned` have ended."""
    words = run.scratch.words
    for w in range(words.shape[1]):
        words[HOLDING, w] = run.scratch.idle[shape, w]
    for i in range(last + 1):
        slot = state.planned[i, 2]
        for w in range(words.shape[1]):
            words[HOLDING, w] |= state.held[slot, w]
    for w in range(words.shape[1]):
        words[HOLDING, w] &= words[USABLE, w] & run.tables.shape_nodes[shape, w]
