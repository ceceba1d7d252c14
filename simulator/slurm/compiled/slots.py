"""The slots of a backfill pass: periods of time, each with the nodes that no reservation holds in it. Compiled.

Slot j lasts from slot_begin[j] to slot_begin[j + 1]; its nodes are column j of slot_nodes, with a row for each word of
the set. At first there is one slot with all nodes in service. A reservation cuts slots at its begin and its end and
removes its nodes from the slots in between. Slots ignore running jobs: `ahead` computes when their nodes are ready.

Example: four nodes, a plan to 86,400, and a reservation of n3 and n4 over [40, 100):

    [0, 40)  n1 n2 n3 n4      [40, 100)  n1 n2      [100, 86,400)  n1 n2 n3 n4

A job that would run over [0, 30] can use all four nodes. A job over [0, 50] can use the nodes in both of the first two
slots, n1 and n2; the next useful attempt is at 100, when n3 and n4 come back.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.slurm.compiled.state import BASE, CHOSEN, NEWER, USABLE, SlurmRun
from simulator.slurm.world import NONE

# Entries of SlurmScratch.slots. USED: current slots; CUTS: slots made in total, which `bf_max_job_test` limits; FIRST,
# LAST and TURN: the window of `slide_to`; KNOWN, ATTEMPT, READY and TESTED: the progress of `ahead.next_attempt`.
USED, CUTS, FIRST, LAST, TURN, KNOWN, ATTEMPT, READY, TESTED = range(9)


@kernel_inline
def first_slot_after(run: SlurmRun, first: int, second: int) -> int:
    """Return the first slot from `first` on that ends after `second`, else the number of slots."""
    begin, used = run.scratch.slot_begin, int(run.scratch.slots[USED])
    while first < used and begin[first + 1] <= second:
        first += 1
    return first


@kernel
def usable(run: SlurmRun, end: int, first: int) -> None:
    """Fill row USABLE with the nodes of row BASE that are in every slot from `first` on that begins by `end`."""
    begin, nodes, words = run.scratch.slot_begin, run.scratch.slot_nodes, run.scratch.words
    last = first
    while last < run.scratch.slots[USED] and begin[last] <= end:
        last += 1
    for w in range(words.shape[1]):
        remaining = words[BASE, w]
        for j in range(first, last):
            remaining &= nodes[w, j]
        words[USABLE, w] = remaining


@kernel_part
def begin_sliding(run: SlurmRun) -> None:
    """Move the window before the first slot; call this before the first `slide_to` of a job."""
    slots = run.scratch.slots
    slots[FIRST], slots[LAST], slots[TURN] = 0, 0, 0


@kernel_part
def slide_to(run: SlurmRun, attempt: int, end: int) -> int:
    """Apply step 4.b: fill row USABLE with the nodes of row BASE in every slot within [attempt, end]; return `later`.

    Neither second may be smaller than in the previous call, so the slots FIRST .. LAST - 1 form a sliding window. Two
    stacks give its intersection in constant time per slot: column j of slot_and holds the intersection of slots
    j .. TURN - 1, and row NEWER that of slots TURN .. LAST - 1. When FIRST reaches TURN, the first stack is rebuilt
    from the whole window. `later` is the end of the first slot that lacks a node of row BASE which the next slot has,
    or NONE: until then an attempt could not use more nodes than this one.
    """
    scratch, slots = run.scratch, run.scratch.slots
    begin, nodes, stack, words = scratch.slot_begin, scratch.slot_nodes, scratch.slot_and, scratch.words
    used, old, turn = int(slots[USED]), int(slots[LAST]), int(slots[TURN])
    first = first_slot_after(run, int(slots[FIRST]), attempt)
    last = old
    while last < used and begin[last] <= end:
        last += 1
    slots[FIRST], slots[LAST] = first, last
    stop = max(first, min(last + 1, used - 1))
    later = stop
    for w in range(words.shape[1]):
        remaining = -1
        if first >= turn:
            for j in range(last - 1, first - 1, -1):
                remaining &= nodes[w, j]
                stack[w, j] = remaining
            words[NEWER, w] = -1
        else:
            remaining = words[NEWER, w]
            for j in range(old, last):
                remaining &= nodes[w, j]
            words[NEWER, w] = remaining
            remaining &= stack[w, first]
        words[USABLE, w] = words[BASE, w] & remaining
        j = first
        while j < later and not words[BASE, w] & nodes[w, j + 1] & ~nodes[w, j]:
            j += 1
        later = j
    if first >= turn:
        slots[TURN] = last
    return int(begin[later + 1]) if later < stop else NONE


@kernel_part
def overlaps(run: SlurmRun, first: int, begin_s: int, end_s: int) -> bool:
    """Whether a slot from `first` on within [begin_s, end_s) lacks a node of row CHOSEN."""
    begin, nodes, words = run.scratch.slot_begin, run.scratch.slot_nodes, run.scratch.words
    j = first_slot_after(run, first, begin_s)
    while j < run.scratch.slots[USED] and begin[j] < end_s:
        for w in range(words.shape[1]):
            if words[CHOSEN, w] & ~nodes[w, j]:
                return True
        j += 1
    return False


@kernel_inline
def _cut(run: SlurmRun, j: int, second: int) -> None:
    """Cut slot `j` at `second`; its later part becomes slot j + 1."""
    scratch = run.scratch
    begin, nodes = scratch.slot_begin, scratch.slot_nodes
    used = int(scratch.slots[USED])
    for k in range(used, j, -1):
        begin[k + 1] = begin[k]
    begin[j + 1] = second
    for w in range(scratch.words.shape[1]):
        for k in range(used, j, -1):
            nodes[w, k] = nodes[w, k - 1]
    scratch.slots[USED] = used + 1
    scratch.slots[CUTS] += 1


@kernel
def reserve(run: SlurmRun, begin_s: int, end_s: int) -> None:
    """Reserve the nodes of row CHOSEN: remove them from the slots within [begin_s, end_s), which are cut there.

    Then the first two neighbouring slots with equal nodes are joined, as in Slurm's `_add_reservation()`.
    """
    scratch = run.scratch
    begin, nodes, words = scratch.slot_begin, scratch.slot_nodes, scratch.words
    j = 0
    while j < scratch.slots[USED] and begin[j + 1] < begin_s:
        j += 1
    if j == scratch.slots[USED]:
        return
    before = max(j - 1, 0)
    if begin[j + 1] > begin_s:
        _cut(run, j, begin_s)
    j += 1
    while j < scratch.slots[USED]:
        if end_s < begin[j + 1]:
            _cut(run, j, end_s)
        for w in range(words.shape[1]):
            nodes[w, j] &= ~words[CHOSEN, w]
        j += 1
        if begin[j] == end_s:
            break
    for k in range(before, min(j, scratch.slots[USED] - 1)):
        same = True
        for w in range(words.shape[1]):
            same = same and nodes[w, k] == nodes[w, k + 1]
        if same:
            _join(run, k)
            return


@kernel_part
def _join(run: SlurmRun, j: int) -> None:
    """Join slots `j` and j + 1."""
    scratch = run.scratch
    used = int(scratch.slots[USED])
    for k in range(j + 1, used):
        scratch.slot_begin[k] = scratch.slot_begin[k + 1]
    for w in range(scratch.words.shape[1]):
        for k in range(j + 1, used - 1):
            scratch.slot_nodes[w, k] = scratch.slot_nodes[w, k + 1]
    scratch.slots[USED] = used - 1
