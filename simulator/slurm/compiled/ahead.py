"""When nodes will hold a share: now, or once running jobs have reached their expected ends. Compiled.

Step 4.d of docs/schedulers/slurm.md, "Backfill pass". What is found out holds until a job starts or the pass ends.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from simulator.slurm.compiled.bits import count_bits, lowest_bit
from simulator.slurm.compiled.placement import add, contains, copy_nodes, find_idle, holds, pick, share_of, vacate
from simulator.slurm.compiled.slots import ATTEMPT, KNOWN, READY, TESTED, begin_rolling, roll_on
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
from simulator.slurm.compiled.whole import hold_after, know_ends, row_of_last
from simulator.slurm.world import NEVER, NONE

_TAG, _PLACE, _NODES = 0, 1, 2  # columns of Scratch.memory
_LOW_BITS, _ODD = (1 << 31) - 1, 0x5851F42D  # of a hash that stays below 1 << 62
_FIRST_WINDOW_S = 30  # select/cons_tres looks at the ends of running jobs in groups that grow from 30 s on

NEVER_READY = (1 << 31) - 1  # in Scratch.ready


@kernel
def count_ends(run: Run, state: State, shape: int) -> None:
    """How many running jobs must have ended, in the order of expected ends, before each node holds a share of `shape`.

    Fills row `shape` of Scratch.ready, and of Scratch.ready_order with the nodes in this order, those idle now first.
    """
    scratch, node, able = run.scratch, run.scratch.node, run.tables.shape_nodes
    if scratch.ready_stamp[shape] == scratch.stamp[ON_NODES]:
        return
    scratch.ready_stamp[shape] = scratch.stamp[ON_NODES]
    ready, order, share = scratch.ready, scratch.ready_order, share_of(run.tables, shape)
    find_idle(run, state, shape)
    copy_nodes(run, state)
    found = 0
    for n in range(len(node)):
        ready[shape, n] = NEVER_READY
        if contains(scratch.idle, shape, n):
            ready[shape, n] = 0
            order[shape, found] = n
            found += 1
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
                    order[shape, found] = n
                    found += 1
    scratch.ready_nodes[shape] = found


@kernel_inline
def begin_attempts(run: Run, state: State, shape: int) -> None:
    """Before the first `next_attempt` of a job."""
    scratch = run.scratch
    begin_rolling(run)
    scratch.slots[KNOWN], scratch.slots[TESTED] = 0, 0
    whole = run.knobs.whole_nodes != 0
    if whole:
        find_idle(run, state, shape)
    else:
        count_ends(run, state, shape)
    for w in range(scratch.words.shape[1]):
        scratch.words[EARLY, w] = scratch.idle[shape, w] if whole else 0


@kernel
def next_attempt(run: Run, state: State, job: int, attempt: int, patient: bool) -> int:
    """Roll on to `attempt`: rows USABLE and EARLY, the nodes ready by `later`; returns `later`, NONE for none.

    If `patient`, and fewer than the job's number are both, the attempt at `later` comes at once, and so on: no earlier
    start can be found, because too few nodes will be ready before. slots[ATTEMPT] is the attempt arrived at,
    slots[READY] the number of nodes that are both, slots[TESTED] whether enough were usable at any attempt.
    """
    scratch, words, slots = run.scratch, run.scratch.words, run.scratch.slots
    planned, ready, order, shape = state.planned, scratch.ready, scratch.ready_order, run.jobs.shape[job]
    wanted, length, whole = run.jobs.nodes[job], run.jobs.limit_s[job], run.knobs.whole_nodes != 0
    last_attempt = state.scalars[NOW] + run.knobs.bf_window_s
    known, all_nodes = int(slots[KNOWN]), 0 if whole else int(scratch.ready_nodes[shape])
    while True:
        later = roll_on(run, attempt, attempt + length)
        until = NEVER if later == NONE else later
        if whole:
            known = know_ends(run, state, shape, known, until)
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
        if early >= wanted or later == NONE or not patient or later > last_attempt:
            break
        attempt = later
    slots[KNOWN], slots[ATTEMPT], slots[READY] = known, attempt, early
    return later


@kernel
def remembered(run: Run, state: State, shape: int, wanted: int) -> int:
    """`_last_of_group`, which depends on the shape, the number and the usable nodes alone."""
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
        memory[at, _TAG], memory[at, _PLACE] = tag, _last_of_group(run, state, shape, wanted)
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


@kernel_inline
def _last_of_group(run: Run, state: State, shape: int, wanted: int) -> int:
    """The row of State.planned whose job is the last of the group with which `wanted` usable nodes hold the share.

    At least so many are among those ready by `later`, and fewer hold it now.

    `_will_run_test()` of select/cons_tres removes running jobs that touch a usable node group by group and tries after
    each. A group begins at a row i, and its window reaches to B(m) = origin + 30 * 2^m s with the least m for which
    end[i] <= B(m): the first begins with the row that sets the origin, and what makes a group end is a next row beyond
    its window. It goes on to the first touching row that has none behind it within B(m). So the group of row `enough`,
    the one whose end makes the last of `wanted` nodes ready, has the window that reaches it, unless it is what an
    earlier group took beyond its own: then the row behind the touching one before it lies within a smaller window.
    """
    scratch, planned = run.scratch, state.planned
    running = int(state.scalars[RUNNING_ROWS])
    if run.knobs.whole_nodes != 0:
        enough = row_of_last(run, state, shape, wanted)
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
        hold_after(run, state, shape, last)
    else:
        for w in range(words.shape[1]):
            bits = words[USABLE, w] & run.tables.shape_nodes[shape, w]
            found = 0
            while bits != 0:
                if scratch.ready[shape, (w << 6) + lowest_bit(bits)] <= last + 1:
                    found |= bits & -bits
                bits &= bits - 1
            words[HOLDING, w] = found
    if run.tables.least_loaded[run.tables.shape_partition[shape]]:
        _let_end(run, state, last + 1)
    pick(run, scratch.node, CHOSEN, shape, wanted)


@kernel_inline
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
