"""Preemption by QOS or by partition: end running jobs for a waiting job that does not fit. Compiled.

A *class* of jobs is their QOS (preempt/qos) or their partition (preempt/partition_prio). Column 0 of
`SlurmScratch.victims` holds the slots of the candidates in the order in which they are preempted, column 1 how many of
the chosen nodes each of them holds (`usable_nodes` in Slurm's source), by which they are sorted a second time.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline, kernel_part
from simulator.slurm.compiled.bits import lowest_bit
from simulator.slurm.compiled.moves import preempt_slot
from simulator.slurm.compiled.placement import choose, copy_nodes, vacate
from simulator.slurm.compiled.state import (
    CHOSEN,
    NOW,
    RUN_JOB,
    RUN_RELEASE,
    RUN_START,
    RUNNING_ROWS,
    USABLE,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.world import NONE, PREEMPT_OFF, PREEMPT_REQUEUE
from traces.arrays import Int64s

_FIRST_WINDOW_S = 30  # the first group of expected ends; then 60, 120, ...
_LAST = 1 << 40  # usable nodes of the candidate whose end made the job fit: it comes first


@kernel_inline
def _overlaps(held: Int64s, slot: int, sets: Int64s, row: int) -> bool:
    """Whether row `slot` of `held` and row `row` of `sets` have a node in common."""
    common = 0
    for w in range(held.shape[1]):
        common |= held[slot, w] & sets[row, w]
    return common != 0


@kernel_part
def _is_candidate(run: SlurmRun, state: SlurmState, slot: int, job: int) -> bool:
    """Whether row `job` may preempt the job of slot `slot`, which may have the mode OFF all the same."""
    tables, other, now = run.tables, state.running[slot, RUN_JOB], state.scalars[NOW]
    partition = tables.shape_partition[run.jobs.shape[job]]
    return bool(
        tables.preempts[run.jobs.preempt_class[job], run.jobs.preempt_class[other]]
        and now - state.running[slot, RUN_START] >= tables.qos_exempt[run.jobs.qos[other]]
        and state.running[slot, RUN_RELEASE] - run.knobs.completing_s > now
        and _overlaps(state.held, slot, tables.partition_nodes, partition)
    )


@kernel_part
def _gives_way_before(run: SlurmRun, state: SlurmState, slot: int, other: int) -> bool:
    """Whether slot `slot` gives way before slot `other`: lower class, fewer nodes, lower row; or later start, row."""
    job, rival = state.running[slot, RUN_JOB], state.running[other, RUN_JOB]
    if run.knobs.youngest_first:
        if state.running[slot, RUN_START] != state.running[other, RUN_START]:
            return bool(state.running[slot, RUN_START] > state.running[other, RUN_START])
        return bool(job < rival)
    of_class = run.tables.preempt_priority
    priority, rival_priority = of_class[run.jobs.preempt_class[job]], of_class[run.jobs.preempt_class[rival]]
    if priority != rival_priority:
        return bool(priority < rival_priority)
    if run.jobs.nodes[job] != run.jobs.nodes[rival]:
        return bool(run.jobs.nodes[job] < run.jobs.nodes[rival])
    return bool(job < rival)


@kernel
def candidates(run: SlurmRun, state: SlurmState, job: int) -> int:
    """Collect the jobs that row `job` may preempt in the order in which they give way; return their number."""
    victims, found = run.scratch.victims, 0
    for slot in range(state.scalars[RUNNING_ROWS]):
        if _is_candidate(run, state, slot, job):
            i = found
            while i > 0 and _gives_way_before(run, state, slot, victims[i - 1, 0]):
                victims[i, 0] = victims[i - 1, 0]
                i -= 1
            victims[i, 0] = slot
            found += 1
    return found


@kernel
def let_go(run: SlurmRun, state: SlurmState, slot: int) -> None:
    """Remove the job of slot `slot` from the copy of the nodes."""
    for w in range(state.held.shape[1]):
        bits = state.held[slot, w]
        while bits != 0:
            vacate(run, run.scratch.node, (w << 6) + lowest_bit(bits), run.jobs.shape[state.running[slot, RUN_JOB]])
            bits &= bits - 1


@kernel
def _mode(run: SlurmRun, state: SlurmState, slot: int) -> int:
    return int(run.tables.preempt_mode[run.jobs.preempt_class[state.running[slot, RUN_JOB]]])


@kernel
def choose_without(run: SlurmRun, state: SlurmState, nodes: int, job: int, found: int) -> bool:
    """Choose nodes of row `nodes` for row `job` on a copy without the `found` candidates, which it leaves there."""
    copy_nodes(run, state)
    for i in range(found):
        if _mode(run, state, run.scratch.victims[i, 0]) != PREEMPT_OFF:
            let_go(run, state, run.scratch.victims[i, 0])
    return bool(choose(run, run.scratch.node, nodes, CHOSEN, run.jobs.shape[job], run.jobs.nodes[job]))


@kernel
def begin_when_ended(run: SlurmRun, state: SlurmState, job: int, found: int) -> int:
    """Return when row `job` can begin on usable nodes; NONE for never. Row CHOSEN then holds them.

    On the copy that `choose_without` left, the running jobs that are no candidates are removed in groups by expected
    end, as in `_will_run_test` of select/cons_tres: the candidates are gone from the beginning.
    """
    planned, now, running = state.planned, state.scalars[NOW], state.scalars[RUNNING_ROWS]
    window, origin = _FIRST_WINDOW_S, NONE
    at = _next_other(run, state, 0, found)
    while at < running:
        last = NONE
        while at < running:
            slot, end = planned[at, 2], planned[at, 0]
            at = _next_other(run, state, at + 1, found)
            if not _overlaps(state.held, slot, run.scratch.words, USABLE):
                continue
            let_go(run, state, slot)
            last = end
            if origin == NONE:
                origin = (end // _FIRST_WINDOW_S + 1) * _FIRST_WINDOW_S
            if at < running and planned[at, 0] > origin + window:
                break
        if last == NONE:
            break
        window *= 2
        while at < running and planned[at, 0] > origin + window:
            window *= 2
        if choose(run, run.scratch.node, USABLE, CHOSEN, run.jobs.shape[job], run.jobs.nodes[job]):
            return int(last if last > now else max(now + 1, last + run.knobs.end_grace_s))
    return NONE


@kernel_inline
def _next_other(run: SlurmRun, state: SlurmState, at: int, found: int) -> int:
    """Return the first row of SlurmState.planned from `at` on whose job is no candidate."""
    while at < state.scalars[RUNNING_ROWS]:
        is_candidate = False
        for i in range(found):
            is_candidate = is_candidate or run.scratch.victims[i, 0] == state.planned[at, 2]
        if not is_candidate:
            break
        at += 1
    return at


@kernel
def _last_needed(run: SlurmRun, state: SlurmState, nodes: int, job: int, found: int) -> int:
    """Remove candidates one by one until row `job` fits; return the last one's position, NONE if it never fits."""
    copy_nodes(run, state)
    for i in range(found):
        slot = run.scratch.victims[i, 0]
        if _mode(run, state, slot) == PREEMPT_OFF or not _overlaps(state.held, slot, run.scratch.words, nodes):
            continue
        let_go(run, state, slot)
        if choose(run, run.scratch.node, nodes, CHOSEN, run.jobs.shape[job], run.jobs.nodes[job]):
            return int(i)
    return NONE


@kernel_part
def _reorder(run: SlurmRun, state: SlurmState, found: int, last: int) -> None:
    """Move the candidate at `last` to the front; unless the order is strict, sort those before it by chosen nodes."""
    victims, words = run.scratch.victims, run.scratch.words
    for i in range(found):
        victims[i, 1] = 0
        if i < last and not run.knobs.strict_order:
            for w in range(words.shape[1]):
                bits = state.held[victims[i, 0], w] & words[CHOSEN, w]
                while bits != 0:
                    victims[i, 1] += 1
                    bits &= bits - 1
    victims[last, 1] = _LAST
    for k in range(1, last + 1):  # stable, by falling usable nodes; those behind `last` have none
        slot, usable = victims[k, 0], victims[k, 1]
        i = k
        while i > 0 and victims[i - 1, 1] < usable:
            victims[i, 0], victims[i, 1] = victims[i - 1, 0], victims[i - 1, 1]
            i -= 1
        victims[i, 0], victims[i, 1] = slot, usable


@kernel
def choose_by_preemption(run: SlurmRun, state: SlurmState, nodes: int, job: int, found: int) -> bool:
    """Choose nodes of row `nodes` for row `job` by ending some of the `found` candidates, if that makes enough room.

    Candidates are removed one by one from a copy of the nodes until the job fits, and put in another order up to
    `reorder_count` + 1 times, so that fewer end (`_run_now` of select/cons_tres). Those of them that hold a chosen node
    end now.
    """
    victims, rounds = run.scratch.victims, 0
    last = _last_needed(run, state, nodes, job, found)
    while last != NONE and rounds <= run.knobs.reorder_count and found > rounds + 1:
        rounds += 1
        _reorder(run, state, found, last)
        last = _last_needed(run, state, nodes, job, found)
    if last == NONE:
        return False
    ending = 0
    for i in range(last + 1):  # slots are renumbered when one empties, so identify jobs by row
        slot = victims[i, 0]
        if _mode(run, state, slot) != PREEMPT_OFF and _overlaps(state.held, slot, run.scratch.words, CHOSEN):
            victims[ending, 0] = state.running[slot, RUN_JOB]
            ending += 1
    for i in range(ending):
        slot = 0
        while state.running[slot, RUN_JOB] != victims[i, 0]:
            slot += 1
        preempt_slot(run, state, slot, _mode(run, state, slot) == PREEMPT_REQUEUE)
    return True
