"""Look ahead: find when enough nodes have room for a job if running jobs end at their time limits. Compiled.

Implements steps 4.b and 4.d of docs/schedulers/slurm.md, "Backfill pass". A *share* is a job's request on each of its
nodes; a *shape* is a distinct share in a partition. A node is ready for a shape when enough of its jobs have ended, by
their limits, for it to hold the share. Results stay valid until a job starts or the pass ends (`SlurmScratch.stamp`).

A start is attempted now, and then at the ends of slots at which reserved nodes come back (`next_attempt`). An attempt
succeeds if as many nodes as the job needs are both usable and ready. A node is usable if it is free of reservations
from the attempt to the job's end. It must be ready by the next attempt. Then the time is computed at which the last of
these nodes is ready. Slurm rounds this time: it removes running jobs in groups, those whose ends lie within 30 s, 60 s,
120 s, ... of the first, and tries to place the job after each group. So the start is the end of the group's last job,
which may be later than necessary.

Example: at time 0, four nodes run a job each, expected to end at 10, 25, 50 and 200. A job needs two nodes. Two are
ready at 25. The first group begins with the job that ends at 10, at origin (10 // 30 + 1) * 30 = 30, and includes the
jobs that end by 30 + 30 = 60: three jobs. After this group the job can be placed on two of three nodes, and its start
is
50. `_find_last_awaited` finds that row of `SlurmState.planned` without forming groups.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.slurm.compiled.bits import count_bits, lowest_bit
from simulator.slurm.compiled.placement import add, contains, copy_nodes, find_idle, holds, pick, share_of, vacate
from simulator.slurm.compiled.slots import ATTEMPT, KNOWN, READY, TESTED, begin_sliding, slide_to
from simulator.slurm.compiled.state import (
    CHOSEN,
    EARLY,
    HOLDING,
    NOW,
    ON_NODES,
    RUN_JOB,
    RUNNING_ROWS,
    USABLE,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.compiled.whole import add_ended_by, hold_when_ended, row_that_completes
from simulator.slurm.world import NEVER, NONE

_TAG, _PLACE, _NODES = 0, 1, 2  # columns of SlurmScratch.memory
_LOW_BITS, _ODD = (1 << 31) - 1, 0x5851F42D  # constants of a hash that stays below 1 << 62
_FIRST_WINDOW_S = 30  # select/cons_tres groups the ends of running jobs in windows that grow from 30 s

NEVER_READY = (1 << 31) - 1  # in SlurmScratch.ready


@kernel
def count_ends_needed(run: SlurmRun, state: SlurmState, shape: int) -> None:
    """Count, for each node, the running jobs that must end before it holds a share of `shape`, by expected end.

    Fills row `shape` of SlurmScratch.ready with these numbers (0: it holds the share now; NEVER_READY) and of
    SlurmScratch.ready_order with the nodes by rising number.
    """
    scratch, node, able = run.scratch, run.scratch.node, run.tables.shape_nodes
    if scratch.ready_stamp[shape] == scratch.stamp[ON_NODES]:
        return
    scratch.ready_stamp[shape] = scratch.stamp[ON_NODES]
    ready, order, share = scratch.ready, scratch.ready_order, share_of(run.tables, shape)
    find_idle(run, state, shape)
    copy_nodes(run, state)
    nodes_ready = 0
    for n in range(len(node)):
        ready[shape, n] = NEVER_READY
        if contains(scratch.idle, shape, n):
            ready[shape, n] = 0
            order[shape, nodes_ready] = n
            nodes_ready += 1
    for i in range(state.scalars[RUNNING_ROWS]):
        slot = state.planned[i, 2]
        of_job = run.jobs.shape[state.running[slot, RUN_JOB]]
        for w in range(able.shape[1]):
            bits = state.held[slot, w]
            while bits != 0:
                n = (w << 6) + lowest_bit(bits)
                bits &= bits - 1
                vacate(run, node, n, of_job)
                if ready[shape, n] == NEVER_READY and contains(able, shape, n) and holds(node, n, share):
                    ready[shape, n] = i + 1
                    order[shape, nodes_ready] = n
                    nodes_ready += 1
    scratch.ready_nodes[shape] = nodes_ready


@kernel_part
def begin_attempts(run: SlurmRun, state: SlurmState, shape: int) -> None:
    """Prepare the first `next_attempt` of a job."""
    scratch = run.scratch
    begin_sliding(run)
    scratch.slots[KNOWN], scratch.slots[TESTED] = 0, 0
    whole = run.knobs.whole_nodes != 0
    if whole:
        find_idle(run, state, shape)
    else:
        count_ends_needed(run, state, shape)
    for w in range(scratch.words.shape[1]):
        scratch.words[EARLY, w] = scratch.idle[shape, w] if whole else 0


@kernel
def next_attempt(run: SlurmRun, state: SlurmState, job: int, attempt: int, skip_hopeless: bool) -> int:
    """Evaluate an attempt to start at second `attempt`; return the second of the next attempt, `later`, NONE for none.

    Fills row USABLE with the nodes that no reservation of this pass needs until the job's end, and row EARLY with the
    nodes that are ready by `later`. With `skip_hopeless`, an attempt with too few nodes in both rows is skipped and the
    attempt at `later` is evaluated next, because no earlier start is possible. slots[ATTEMPT] is the last attempt
    evaluated, slots[READY] the number of nodes in both rows, slots[TESTED] whether any attempt had enough usable nodes.
    """
    scratch, words, slots = run.scratch, run.scratch.words, run.scratch.slots
    planned, ready, order, shape = state.planned, scratch.ready, scratch.ready_order, run.jobs.shape[job]
    wanted, length, whole = run.jobs.nodes[job], run.jobs.limit_s[job], run.knobs.whole_nodes != 0
    last_attempt = state.scalars[NOW] + run.knobs.bf_window_s
    known, all_nodes = int(slots[KNOWN]), 0 if whole else int(scratch.ready_nodes[shape])
    while True:
        later = slide_to(run, attempt, attempt + length)
        until = NEVER if later == NONE else later
        if whole:
            known = add_ended_by(run, state, shape, known, until)
        while known < all_nodes:
            n = order[shape, known]
            ended = ready[shape, n]
            if ended > 0 and planned[ended - 1, 0] > until:
                break
            add(words, EARLY, n)
            known += 1
        usable_nodes, early = 0, 0
        for w in range(words.shape[1]):
            usable_nodes += count_bits(words[USABLE, w])
            early += count_bits(words[USABLE, w] & words[EARLY, w])
        if usable_nodes >= wanted:
            slots[TESTED] = 1
        if early >= wanted or later == NONE or not skip_hopeless or later > last_attempt:
            break
        attempt = later
    slots[KNOWN], slots[ATTEMPT], slots[READY] = known, attempt, early
    return later


@kernel
def last_awaited(run: SlurmRun, state: SlurmState, shape: int, wanted: int) -> int:
    """Return the result of `_find_last_awaited`, cached by its inputs: the shape, the number and the usable nodes."""
    scratch, words, memory = run.scratch, run.scratch.words, run.scratch.memory
    tag = (scratch.stamp[ON_NODES] * len(scratch.ready) + shape) * (scratch.ready.shape[1] + 1) + wanted
    mixed = shape * 64 + wanted
    for w in range(words.shape[1]):
        word = words[USABLE, w]
        mixed = ((mixed ^ word ^ (word >> 31)) & _LOW_BITS) * _ODD
        mixed ^= mixed >> 29
    at = mixed & (len(memory) - 1)
    same = memory[at, _TAG] == tag
    for w in range(words.shape[1]):
        same = same and memory[at, _NODES + w] == words[USABLE, w]
    if not same:
        memory[at, _TAG], memory[at, _PLACE] = tag, _find_last_awaited(run, state, shape, wanted)
        for w in range(words.shape[1]):
            memory[at, _NODES + w] = words[USABLE, w]
    return int(memory[at, _PLACE])


@kernel_inline
def _touches(run: SlurmRun, state: SlurmState, i: int) -> bool:
    """Whether the running job in row `i` of SlurmState.planned holds a usable node."""
    words, slot = run.scratch.words, state.planned[i, 2]
    touched = 0
    for w in range(words.shape[1]):
        touched |= state.held[slot, w] & words[USABLE, w]
    return touched != 0


@kernel_part
def _find_last_awaited(run: SlurmRun, state: SlurmState, shape: int, wanted: int) -> int:
    """Return the row of `SlurmState.planned` of the last job in the group that makes `wanted` usable nodes ready.

    Precondition: at least `wanted` usable nodes are ready by `later`, and fewer hold the share now. This is the closed
    form of the loop over groups in `_will_run_test()` of select/cons_tres (tests: `last_of_group`). Only jobs that hold
    a usable node are removed. Row `enough` is the row whose end makes the last of the `wanted` nodes ready. The window
    of a group ends at origin + 30 * 2^m s, with the smallest m that includes the group's first row. The group extends
    to the last row within the window; if no removed job lies within it, the group extends to the first removed job. So
    the group of row `enough` has the smallest window that includes that row, unless the group before includes it.
    """
    scratch, planned = run.scratch, state.planned
    running = int(state.scalars[RUNNING_ROWS])
    if run.knobs.whole_nodes != 0:
        enough = row_that_completes(run, state, shape, wanted)
    else:
        k, ready_usable = int(scratch.slots[KNOWN]), int(scratch.slots[READY])
        while ready_usable >= wanted:
            k -= 1
            if contains(scratch.words, USABLE, scratch.ready_order[shape, k]):
                ready_usable -= 1
        enough = int(scratch.ready[shape, scratch.ready_order[shape, k]]) - 1
    first = 0
    while not _touches(run, state, first):
        first += 1
    origin = (int(planned[first, 0]) // _FIRST_WINDOW_S + 1) * _FIRST_WINDOW_S
    window = _FIRST_WINDOW_S
    while planned[enough, 0] > origin + window:
        window *= 2
    before = enough - 1
    while before >= first and not _touches(run, state, before):
        before -= 1
    if window > _FIRST_WINDOW_S and planned[before + 1, 0] <= origin + window // 2:
        return enough
    low, high = enough, running  # bisect for the first row beyond the window
    while low < high:
        middle = (low + high) // 2
        if planned[middle, 0] > origin + window:
            high = middle
        else:
            low = middle + 1
    last = low - 1
    while last < running and not _touches(run, state, last):
        last += 1
    if last == running:  # all jobs are removed
        last = low - 1
        while not _touches(run, state, last):
            last -= 1
    return last


@kernel
def place_ahead(run: SlurmRun, state: SlurmState, shape: int, wanted: int, last: int) -> None:
    """Fill row CHOSEN with `wanted` usable nodes once the jobs up to row `last` of `SlurmState.planned` have ended."""
    scratch, words = run.scratch, run.scratch.words
    if run.knobs.whole_nodes != 0:
        hold_when_ended(run, state, shape, last)
    else:
        for w in range(words.shape[1]):
            bits = words[USABLE, w] & run.tables.shape_nodes[shape, w]
            holding = 0
            while bits != 0:
                if scratch.ready[shape, (w << 6) + lowest_bit(bits)] <= last + 1:
                    holding |= bits & -bits
                bits &= bits - 1
            words[HOLDING, w] = holding
    if run.tables.least_loaded[run.tables.shape_partition[shape]]:
        _let_end(run, state, last + 1)
    pick(run, scratch.node, CHOSEN, shape, wanted)


@kernel_part
def _let_end(run: SlurmRun, state: SlurmState, ended: int) -> None:
    """Copy the nodes to `SlurmScratch.node` and remove the first `ended` running jobs."""
    copy_nodes(run, state)
    for i in range(ended):
        slot = state.planned[i, 2]
        for w in range(state.held.shape[1]):
            bits = state.held[slot, w]
            while bits != 0:
                vacate(run, run.scratch.node, (w << 6) + lowest_bit(bits), run.jobs.shape[state.running[slot, RUN_JOB]])
                bits &= bits - 1
