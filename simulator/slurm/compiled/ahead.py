"""Looking ahead: when will enough nodes have room for a job, if running jobs end at their time limits? Compiled.

Steps 4.b and 4.d of docs/schedulers/slurm.md, "Backfill pass". A *share* is what a job asks of each of its nodes, a
*shape* a distinct share of a partition. A node is ready for a shape when so many of its jobs have ended, by their
limits, that it holds the share; what is found out about that holds until a job starts or the pass ends
(`Scratch.stamp`).

A start is attempted now, and then at the ends of slots at which reserved nodes come back (`next_attempt`). An attempt
asks whether as many nodes as the job wants are both usable, that is free of reservations from the attempt to the job's
end, and ready by the next attempt; then it asks when the last of them is. Slurm answers that not to the second: it
removes running jobs in groups, those whose ends lie within 30 s, 60 s, 120 s, ... of the first, and tries to place the
job after each group. So the start is the end of the group's last job, which may be later than necessary.

Example: time 0, four nodes with a job each, expected to end at 10, 25, 50 and 200, and a job that wants two nodes. Two
are ready at 25. The first group begins with the job that ends at 10, at origin (10 // 30 + 1) * 30 = 30, and takes in
what ends by 30 + 30 = 60: three jobs. After it the job can be placed, on two of three nodes, and its start is 50.
`_find_last_awaited` comes to that row of State.planned without making groups.
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
    Run,
    State,
)
from simulator.slurm.compiled.whole import add_ended_by, hold_when_ended, row_that_completes
from simulator.slurm.world import NEVER, NONE

_TAG, _PLACE, _NODES = 0, 1, 2  # columns of Scratch.memory
_LOW_BITS, _ODD = (1 << 31) - 1, 0x5851F42D  # of a hash that stays below 1 << 62
_FIRST_WINDOW_S = 30  # select/cons_tres looks at the ends of running jobs in groups that grow from 30 s on

NEVER_READY = (1 << 31) - 1  # in Scratch.ready


@kernel
def count_ends_needed(run: Run, state: State, shape: int) -> None:
    """How many running jobs must have ended, in the order of expected ends, before each node holds a share of `shape`.

    Fills row `shape` of Scratch.ready with these numbers (0: it does now; NEVER_READY) and of Scratch.ready_order with
    the nodes by rising number.
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
def begin_attempts(run: Run, state: State, shape: int) -> None:
    """Before the first `next_attempt` of a job."""
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
def next_attempt(run: Run, state: State, job: int, attempt: int, skip_hopeless: bool) -> int:
    """Look at an attempt to start at second `attempt`; returns the second of the next one, `later`, NONE for none.

    Fills row USABLE with the nodes that no reservation of this pass needs until the job's end, and row EARLY with
    those that are ready by `later`. If `skip_hopeless`, and fewer nodes than the job wants are in both, the attempt at
    `later` is looked at straight away, and so on: a start before it is out of the question. slots[ATTEMPT] is the
    attempt arrived at, slots[READY] the number of nodes in both rows, slots[TESTED] whether enough were usable at any
    attempt.
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
def last_awaited(run: Run, state: State, shape: int, wanted: int) -> int:
    """The result of `_find_last_awaited`, kept by what it depends on: the shape, the number and the usable nodes."""
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
def _touches(run: Run, state: State, i: int) -> bool:
    """Whether the running job in row `i` of State.planned holds a usable node."""
    words, slot = run.scratch.words, state.planned[i, 2]
    touched = 0
    for w in range(words.shape[1]):
        touched |= state.held[slot, w] & words[USABLE, w]
    return touched != 0


@kernel_part
def _find_last_awaited(run: Run, state: State, shape: int, wanted: int) -> int:
    """The row of State.planned whose job is the last of the group after which `wanted` usable nodes hold the share.

    Before: at least so many usable nodes are ready by `later`, and fewer hold the share now. This is the closed form
    of the loop over groups in `_will_run_test()` of select/cons_tres (tests: `last_of_group`). Only jobs that hold a
    usable node are removed. Row `enough` is the one whose end makes the last of `wanted` nodes ready. A group's window
    reaches to origin + 30 * 2^m s, with the least m that takes in the row with which the group begins; the group goes
    on to the last row within the window, and further to the first job removed where none behind the last lies within
    it. So the group of row `enough` has the least window that takes in that row, unless the group before has already
    taken it.
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
    low, high = enough, running  # the first row beyond the window
    while low < high:
        middle = (low + high) // 2
        if planned[middle, 0] > origin + window:
            high = middle
        else:
            low = middle + 1
    last = low - 1
    while last < running and not _touches(run, state, last):
        last += 1
    if last == running:  # all have been removed
        last = low - 1
        while not _touches(run, state, last):
            last -= 1
    return last


@kernel
def place_ahead(run: Run, state: State, shape: int, wanted: int, last: int) -> None:
    """Row CHOSEN: `wanted` usable nodes as they are when the jobs up to row `last` of State.planned have ended."""
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
def _let_end(run: Run, state: State, ended: int) -> None:
    """Copy the nodes to Scratch.node and take the first `ended` running jobs off."""
    copy_nodes(run, state)
    for i in range(ended):
        slot = state.planned[i, 2]
        for w in range(state.held.shape[1]):
            bits = state.held[slot, w]
            while bits != 0:
                vacate(run, run.scratch.node, (w << 6) + lowest_bit(bits), run.jobs.shape[state.running[slot, RUN_JOB]])
                bits &= bits - 1
